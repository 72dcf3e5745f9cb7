//! Refusals without the work of a request.
//!
//! Under overload a server writes little else than refusals, and what they cost is lost to those it serves. So while requests are
//! being refused, a connection shows what it has read before it hands it on: is it one whole plain GET that would be refused at
//! once, the refusal is written from a template, and nothing of it ever becomes a request. Everything else goes the usual way,
//! which decides anew. What the client, the access log and the metrics get is the same either way.

use std::cell::{OnceCell, RefCell};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode, Version};
use httparse::{EMPTY_HEADER, Status};
use tokio::time::Instant;

use super::answers::Answer;
use crate::access_log::Line;
use crate::admission::Refusal;
use crate::connection::{Conn, Shed};
use crate::router::Found;
use crate::worker::{Route, WorkerState};
use crate::{Application, Report, RequestId};

/// For so long after a refusal what comes is looked at.
const LOOKS: Duration = Duration::from_secs(1);
/// A request with more headers goes the usual way.
const MOST_HEADERS: usize = 32;

impl<A: Application> WorkerState<A> {
    /// A request is refused before it has cost anything: the next ones may be too.
    pub(super) fn has_refused(&self, now: Instant) {
        self.sheds_until.set(now + LOOKS);
    }

    /// Why a request that comes now would be refused at once, if it would. In the order of [`begin`](super::Service::begin).
    fn refusal(&self, route: &Route, now: Instant) -> Option<Refusal> {
        let priority = route.priority;
        if self.memory.refuses(priority) {
            return Some(Refusal::Memory);
        }
        if self.ready.is_on() {
            return self.ready.refuses_one(priority, now).then_some(Refusal::Queueing);
        }
        if route.gate.is_full(priority) {
            return Some(Refusal::Route);
        }
        (route.gate.has_place() && route.server_gate.is_full(priority)).then_some(Refusal::Server)
    }
}

impl<A: Application> Shed for WorkerState<A> {
    #[inline]
    fn sheds(&self) -> bool {
        self.now.get() < self.sheds_until.get() && !self.draining.get()
    }

    fn shed(&self, conn: &Conn, bytes: &[u8], to: &mut Vec<u8>) -> bool {
        let site = self.site();
        let server = site.server();
        if bytes.len() > server.max_header_size {
            return false;
        }
        let decides =
            [server.timeout_header.as_ref(), server.priority_header.as_ref()].map(|name| name.map(|n| n.as_str()));
        let Some(path) = plain_get(bytes, decides) else { return false };
        let Found::Route { route, .. } = site.generation.router.find(&Method::GET, path) else { return false };
        let route = &site.routes[route];
        let now = Instant::now();
        let Some(refusal) = self.refusal(route, now) else { return false };
        self.request_begins(now);
        self.has_refused(now);
        let id = self.next_id();
        let bytes = write(refusal, id, &mut self.date.borrow_mut(), now, to);
        self.stats.shed.add(1);
        route.stats.refused(refusal);
        route.stats.responded(StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO, &Report::default());
        let mut log = self.log.borrow_mut();
        if log.enabled() {
            log.write(&Line {
                start: now,
                duration: Duration::ZERO,
                method: &Method::GET,
                path,
                route: &route.label,
                status: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
                report: Report::default(),
                bytes,
                remote: conn.remote_text(),
                version: Version::HTTP_11,
                id,
            });
        }
        self.request_ends(now);
        true
    }
}

/// The path of a request, if it is one whole GET in HTTP/1.1 without a body and without anything that is up to others: a connection
/// that is to end, an expectation, or one of the headers that decide about it.
fn plain_get<'a>(bytes: &'a [u8], decides: [Option<&str>; 2]) -> Option<&'a str> {
    if !bytes.starts_with(b"GET /") {
        return None;
    }
    let mut headers = [EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Complete(len)) if len == bytes.len() && request.version == Some(1) => {}
        _ => return None,
    }
    let mut hosts = 0;
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            4 if is("host") => hosts += 1,
            6 if is("expect") => return None,
            7 if is("upgrade") => return None,
            10 if is("connection") && !header.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            14 if is("content-length") => return None,
            17 if is("transfer-encoding") => return None,
            _ => {}
        }
        if decides.iter().flatten().any(|name| is(name)) {
            return None;
        }
    }
    let target = request.path.filter(|_| hosts == 1)?;
    // Of what a target may have, what it usually has: what else would be refused for its own sake is not known here.
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%:@!$&'()*+,;=?".contains(&byte);
    target.bytes().all(usual).then(|| target.split_once('?').map_or(target, |(path, _)| path))
}

/// The refusal as it is written otherwise, with room for what differs.
struct Template {
    bytes: Vec<u8>,
    date: usize,
    id: usize,
    body: u64,
}

impl Template {
    fn new(refusal: Refusal) -> Template {
        const ID: RequestId = RequestId::new(0xf1f2_f3f4_f5f6_f7f8);
        let response = Answer::Refused(refusal).response(ID);
        let body = response.body.to_bytes();
        let status = response.status;
        let mut bytes =
            format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or("")).into_bytes();
        for (name, value) in &response.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("content-length: {}\r\ndate: ", body.len()).as_bytes());
        let date = bytes.len();
        bytes.extend_from_slice(&[b' '; DATE]);
        bytes.extend_from_slice(b"\r\n\r\n");
        let head = bytes.len();
        bytes.extend_from_slice(&body);
        let id = body.windows(16).position(|window| window == ID.hex());
        // Each problem carries its request's id.
        Template { bytes, date, id: head + id.unwrap_or_default(), body: body.len() as u64 }
    }
}

thread_local! {
    static TEMPLATES: [OnceCell<Template>; Refusal::ALL.len()] = const { [const { OnceCell::new() }; Refusal::ALL.len()] };
}

/// Writes a refusal; gives the length of its body.
fn write(refusal: Refusal, id: RequestId, date: &mut HttpDate, now: Instant, to: &mut Vec<u8>) -> u64 {
    TEMPLATES.with(|templates| {
        let template = templates[refusal as usize].get_or_init(|| Template::new(refusal));
        let from = to.len();
        to.extend_from_slice(&template.bytes);
        let written = &mut to[from..];
        written[template.date..][..DATE].copy_from_slice(date.at(now));
        written[template.id..][..16].copy_from_slice(&id.hex());
        template.body
    })
}

/// Bytes of a date as HTTP has it (RFC 9110, section 5.6.7).
const DATE: usize = 29;

/// The text of the present second.
#[derive(Debug)]
pub(crate) struct HttpDate {
    text: [u8; DATE],
    /// When the second is over.
    until: Option<Instant>,
}

impl HttpDate {
    pub(crate) const fn new() -> RefCell<HttpDate> {
        RefCell::new(HttpDate { text: [b' '; DATE], until: None })
    }

    fn at(&mut self, now: Instant) -> &[u8; DATE] {
        if self.until.is_none_or(|until| now >= until) {
            let time = SystemTime::now();
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            let of_second = Duration::from_nanos(since_epoch.subsec_nanos().into());
            self.until = Some(now + (Duration::from_secs(1) - of_second));
            let text = httpdate::fmt_http_date(time);
            if let Ok(text) = text.as_bytes().try_into() {
                self.text = text;
            }
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(request: &str) -> Option<&str> {
        plain_get(request.as_bytes(), [Some("x-priority"), None])
    }

    #[test]
    fn a_plain_get_is_known() {
        assert_eq!(path("GET /a/b HTTP/1.1\r\nhost: a\r\n\r\n"), Some("/a/b"));
        assert_eq!(
            path("GET /a?b=/c HTTP/1.1\r\nAccept: */*\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n"),
            Some("/a")
        );
    }

    #[test]
    fn everything_else_goes_the_usual_way() {
        for request in [
            "",
            "GET /a HTTP/1.1\r\nhost: a\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\n\r\nG",
            "GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /a HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /a HTTP/1.0\r\nhost: a\r\n\r\n",
            "GET /a HTTP/1.1\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\nContent-Length: 0\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\nUpgrade: h2c\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\nX-Priority: low\r\n\r\n",
            "GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /ü HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
            "POST /a HTTP/1.1\r\nhost: a\r\n\r\n",
            "HEAD /a HTTP/1.1\r\nhost: a\r\n\r\n",
        ] {
            assert_eq!(path(request), None, "{request:?}");
        }
        let many = "x: y\r\n".repeat(MOST_HEADERS);
        assert_eq!(path(&format!("GET /a HTTP/1.1\r\nhost: a\r\n{many}\r\n")), None);
    }

    #[test]
    fn each_template_has_its_places() {
        for refusal in Refusal::ALL {
            let (mut text, date) = (Vec::new(), HttpDate::new());
            let body = write(refusal, RequestId::new(0xab), &mut date.borrow_mut(), Instant::now(), &mut text);
            let text = String::from_utf8(text).unwrap();
            let (head, document) = text.split_once("\r\n\r\n").unwrap();
            assert_eq!(document.len() as u64, body);
            assert_eq!(document.as_bytes(), Answer::Refused(refusal).response(RequestId::new(0xab)).body.to_bytes());
            let date = head.rsplit_once("\r\ndate: ").unwrap().1;
            assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
        }
    }
}
