//! A line of the access log: one JSON object.

use std::time::Duration;

use fanin_tracecontext::TraceId;
use http::{Method, Version};

use crate::json_text::escape;
use crate::wall_clock::WallClock;
use crate::{Report, RequestId};

/// The contents of a line. A query may hold secrets, so only the path is logged.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) start: tokio::time::Instant,
    pub(crate) duration: Duration,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// The route as JSON; `null` if none matched.
    pub(crate) route: &'a str,
    /// 499 if the client disconnected before the response.
    pub(crate) status: u16,
    pub(crate) report: Report,
    /// Bytes of the response's body.
    pub(crate) bytes: u64,
    /// The client's address, as text.
    pub(crate) remote: &'a str,
    /// Whom the connection comes from, if a proxy names another client.
    pub(crate) peer: Option<&'a str>,
    pub(crate) version: Version,
    pub(crate) id: RequestId,
    /// The id that others know it by, which needs no escaping. It is written if it is another one.
    pub(crate) known_id: Option<&'a [u8]>,
    /// Who sent it, if its route asks.
    pub(crate) principal: Option<&'a str>,
    pub(crate) trace: Option<TraceId>,
    /// What the route's cache did.
    pub(crate) cache: Option<&'static str>,
}

impl Line<'_> {
    pub(crate) fn write(&self, clock: &mut WallClock, to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"time\":\"");
        to.extend_from_slice(clock.rfc3339(self.start));
        to.extend_from_slice(b"\",\"duration_ms\":");
        milliseconds(self.duration, to);
        to.extend_from_slice(b",\"method\":\"");
        // A method is a token: nothing in it needs escaping.
        to.extend_from_slice(self.method.as_str().as_bytes());
        to.extend_from_slice(b"\",\"path\":\"");
        escape(self.path, to);
        to.extend_from_slice(b"\",\"route\":");
        to.extend_from_slice(self.route.as_bytes());
        to.extend_from_slice(b",\"status\":");
        number(u64::from(self.status), to);
        if self.report == Report::default() {
            to.extend_from_slice(b",\"upstream_ms\":0.000,\"calls\":0,\"partial\":false,\"bytes\":");
        } else {
            to.extend_from_slice(b",\"upstream_ms\":");
            milliseconds(self.report.upstream, to);
            to.extend_from_slice(b",\"calls\":");
            number(u64::from(self.report.calls), to);
            to.extend_from_slice(if self.report.partial { b",\"partial\":true" } else { b",\"partial\":false" });
            to.extend_from_slice(b",\"bytes\":");
        }
        number(self.bytes, to);
        to.extend_from_slice(b",\"remote\":\"");
        to.extend_from_slice(self.remote.as_bytes());
        if let Some(peer) = self.peer {
            to.extend_from_slice(b"\",\"peer\":\"");
            to.extend_from_slice(peer.as_bytes());
        }
        to.extend_from_slice(match self.version {
            Version::HTTP_2 => b"\",\"protocol\":\"HTTP/2\",\"id\":\"".as_slice(),
            Version::HTTP_10 => b"\",\"protocol\":\"HTTP/1.0\",\"id\":\"",
            _ => b"\",\"protocol\":\"HTTP/1.1\",\"id\":\"",
        });
        to.extend_from_slice(&self.id.hex());
        if let Some(known) = self.known_id.filter(|known| *known != self.id.hex()) {
            to.extend_from_slice(b"\",\"request_id\":\"");
            to.extend_from_slice(known);
        }
        if let Some(principal) = self.principal {
            to.extend_from_slice(b"\",\"principal\":\"");
            escape(principal, to);
        }
        if let Some(trace) = self.trace {
            to.extend_from_slice(b"\",\"trace_id\":\"");
            to.extend_from_slice(&trace.hex());
        }
        if let Some(cache) = self.cache {
            to.extend_from_slice(b"\",\"cache\":\"");
            to.extend_from_slice(cache.as_bytes());
        }
        to.extend_from_slice(b"\"}\n");
    }
}

fn number(number: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Milliseconds with three decimals.
fn milliseconds(duration: Duration, to: &mut Vec<u8>) {
    let micros = duration.as_micros() as u64;
    number(micros / 1000, to);
    let rest = (micros % 1000) as u16;
    to.extend_from_slice(&[b'.', b'0' + (rest / 100) as u8, b'0' + (rest / 10 % 10) as u8, b'0' + (rest % 10) as u8]);
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn line(path: &str, remote: &str) -> serde_json::Value {
        let mut text = Vec::new();
        let trace = (path == "/a").then(TraceId::random);
        let line = Line {
            start: Instant::now(),
            duration: Duration::from_nanos(1_234_999),
            method: &Method::GET,
            path,
            route: "\"GET /a\"",
            status: 200,
            report: Report { partial: true, calls: 3, upstream: Duration::from_micros(900), ..Report::default() },
            bytes: 17,
            remote,
            peer: (path == "/a").then_some("10.0.0.1:5"),
            version: Version::HTTP_11,
            id: RequestId::new(1),
            known_id: Some(if path == "/a" { b"b6f1-7" } else { b"0000000000000001" }),
            principal: (path == "/a").then_some("\"ann\"\n"),
            trace,
            cache: (path == "/a").then_some("hit"),
        };
        line.write(&mut WallClock::new(), &mut text);
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(json.get("trace_id"), trace.map(|id| id.to_string().into()).as_ref());
        json
    }

    #[test]
    fn a_line_is_json_with_all_fields() {
        let json = line("/a", "127.0.0.1:65535");
        assert_eq!(json["duration_ms"].to_string(), "1.234");
        assert_eq!(json["upstream_ms"].as_f64(), Some(0.9));
        assert_eq!((json["calls"].as_u64(), json["partial"].as_bool()), (Some(3), Some(true)));
        assert_eq!(json["route"], "GET /a");
        assert_eq!((&json["remote"], &json["peer"]), (&"127.0.0.1:65535".into(), &"10.0.0.1:5".into()));
        assert_eq!((&json["id"], &json["request_id"]), (&"0000000000000001".into(), &"b6f1-7".into()));
        assert_eq!(json["cache"], "hit");
        assert_eq!(json["principal"], "\"ann\"\n");
        assert_eq!(json["time"].as_str().unwrap().len(), 24);
    }

    #[test]
    fn paths_cannot_break_a_line() {
        let path = "/\"\\\n\u{1}\u{7f}é";
        let json = line(path, "[::1]:80");
        assert_eq!(json["path"], path);
        assert_eq!(json["remote"], "[::1]:80");
        assert_eq!((json.get("peer"), json.get("request_id")), (None, None), "the id is its own");
    }
}
