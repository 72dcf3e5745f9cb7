//! A file with the last requests of a server.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::request::RequestTrace;
use crate::waterfall::{millis, shorten};

/// Requests in the text of a dump.
const SHOWN: usize = 20;
/// Characters of a path in it.
const TARGET: usize = 60;

/// The last requests, the newest first, and why they were written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dump {
    /// Why; `None` if a person did it.
    #[serde(default)]
    pub cause: Option<Cause>,
    /// The version of the program.
    #[serde(default)]
    pub version: String,
    /// When: microseconds since 1970.
    #[serde(default)]
    pub written_unix_us: u64,
    /// The requests.
    pub requests: Vec<RequestTrace>,
    /// Older requests that the file had no room for.
    #[serde(default)]
    pub left_out: usize,
}

/// What made a server write its last requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// `panic`, `stall` or `objective`.
    pub kind: String,
    /// What happened, for people.
    pub detail: String,
}

impl Dump {
    /// Reads a dump, or what the admin page `/requests` shows.
    ///
    /// # Errors
    /// It is neither.
    pub fn read(bytes: &[u8]) -> Result<Dump, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The request with this id.
    pub fn find(&self, id: &str) -> Option<&RequestTrace> {
        self.requests.iter().find(|request| request.id == id)
    }

    /// For a terminal: the cause, and the slowest requests.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        if let Some(cause) = &self.cause {
            let at = date(self.written_unix_us);
            let _ = writeln!(text, "{}: {}", shorten(&cause.kind, TARGET), shorten(&cause.detail, 500));
            let _ = writeln!(text, "written at {at} by Fanin {}", shorten(&self.version, TARGET));
        }
        let full = self.requests.iter().filter(|request| request.step.is_some()).count();
        let _ = write!(text, "{} requests, {full} of them explained", self.requests.len());
        if self.left_out > 0 {
            let _ = write!(text, "; {} older ones did not fit", self.left_out);
        }
        text.push('\n');
        let mut slowest: Vec<&RequestTrace> = self.requests.iter().collect();
        slowest.sort_by_key(|request| std::cmp::Reverse(request.duration));
        slowest.truncate(SHOWN);
        if slowest.is_empty() {
            return text;
        }
        text.push_str("\nThe slowest:\n  id                time          ms      status  explained  route, path\n");
        for request in slowest {
            let time = date(request.started_unix_us);
            let explained = if request.step.is_some() { "yes" } else { "no" };
            let (route, target) = (shorten(&request.route, TARGET), shorten(&request.target, TARGET));
            let id = shorten(&request.id, 16);
            let partial = if request.partial { "  partial" } else { "" };
            let _ = writeln!(
                text,
                "  {id:16}  {:12}  {:8.1}  {:6}  {explained:9}  {route}  {target}{partial}",
                time.get(11..23).unwrap_or(&time),
                millis(request.duration),
                request.status,
            );
        }
        text
    }
}

/// A time as RFC 3339 has it, in UTC; the number itself if no calendar has it.
pub fn date(unix_us: u64) -> String {
    const LAST: u64 = 253_402_300_799;
    let since = Duration::from_micros(unix_us);
    if since.as_secs() > LAST {
        return unix_us.to_string();
    }
    let date = httpdate::HttpDate::from(UNIX_EPOCH + since).to_string();
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let part = |from: usize, to: usize| date.get(from..to).unwrap_or_default().to_owned();
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| *name == part(8, 11)).unwrap_or_default() + 1;
    format!("{}-{month:02}-{}T{}.{:03}Z", part(12, 16), part(5, 7), part(17, 25), since.subsec_millis())
}

/// For fuzzing.
pub mod fuzzing {
    use super::Dump;

    /// Reads a dump and shows all of it. Whether it is one.
    pub fn dump(bytes: &[u8]) -> bool {
        let Ok(dump) = Dump::read(bytes) else { return false };
        assert!(dump.describe().lines().count() <= super::SHOWN + 6, "the text is bounded");
        for request in &dump.requests {
            crate::describe(request);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(1_709_251_199_250_000), "2024-02-29T23:59:59.250Z");
        assert_eq!(date(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn the_slowest_requests_come_first() {
        let mut requests = vec![request(3), request(30)];
        requests[1].id = "00000000000000aa".to_owned();
        let cause = Cause { kind: "stall".to_owned(), detail: "worker 1 was stalled".to_owned() };
        let dump = Dump { cause: Some(cause), version: "0.1.0".to_owned(), written_unix_us: 1, requests, left_out: 4 };
        let text = dump.describe();
        assert!(text.starts_with("stall: worker 1 was stalled\n"), "{text}");
        assert!(text.contains("2 requests, 0 of them explained; 4 older ones did not fit"), "{text}");
        assert!(text.find("00000000000000aa") < text.find("00000000000000ff"), "{text}");
        let bytes = serde_json::to_vec(&dump).expect("it can be written");
        assert_eq!(Dump::read(&bytes).expect("it can be read"), dump);
        // The admin page has the requests alone.
        let page = serde_json::json!({ "requests": dump.requests });
        let page = Dump::read(page.to_string().as_bytes()).expect("it can be read");
        assert_eq!((page.find("00000000000000aa").is_some(), page.find("x").is_some()), (true, false));
    }
}
