//! Fast rejection: refusals without the work of a request.
//!
//! Under overload a server mostly writes refusals, and their cost is lost to the requests it serves. So while requests are being refused,
//! a connection shows the bytes it has read before hyper gets them. If they are one whole plain GET that would be refused at once, the
//! response is written from a template. Everything else takes the usual path, which decides anew. Client, access log and metrics see the
//! same either way.

use std::cell::OnceCell;
use std::time::Duration;

use http::{Method, StatusCode, Version};
use httparse::{EMPTY_HEADER, Status};
use tokio::time::Instant;

use super::server_responses::ServerResponse;
use crate::access_log::Line;
use crate::admission::Refusal;
use crate::client;
use crate::connection::{ConnectionState, FastRejection};
use crate::http_date::{DATE_LEN, HttpDate};
use crate::router::Found;
use crate::worker::{Route, WorkerState};
use crate::{Application, Report, RequestId, host};

/// For this long after a refusal new bytes are examined.
const ACTIVE_FOR: Duration = Duration::from_secs(1);
/// A request with more headers takes the usual path.
const MAX_HEADERS: usize = 32;

impl<A: Application> WorkerState<A> {
    /// A request was refused before any work; the next ones may be too.
    pub(super) fn note_refusal(&self, now: Instant) {
        self.fast_rejection_until.set(now + ACTIVE_FOR);
    }

    /// Why a request that arrives now would be refused at once, if it would. Same order of checks as [`begin`](super::Service::begin).
    fn refusal(&self, route: &Route, now: Instant) -> Option<Refusal> {
        let priority = route.priority;
        if self.memory.refuses(priority) {
            return Some(Refusal::Memory);
        }
        if self.run_queue.is_active() {
            return self.run_queue.refuses(priority, now).then_some(Refusal::Queueing);
        }
        if route.limiters.route.is_full(priority) {
            return Some(Refusal::Route);
        }
        (route.limiters.route.has_free_permit() && route.limiters.server.is_full(priority)).then_some(Refusal::Server)
    }
}

impl<A: Application> FastRejection for WorkerState<A> {
    #[inline]
    fn is_rejecting(&self) -> bool {
        self.now.get() < self.fast_rejection_until.get() && !self.draining.get()
    }

    fn try_reject(&self, conn: &ConnectionState, bytes: &[u8], to: &mut Vec<u8>) -> bool {
        let generation = self.generation();
        let server = generation.server();
        if bytes.len() > server.max_header_size {
            return false;
        }
        // Whom a proxy names is of interest to the log only.
        let forwarded = server.forwarded_header.as_ref().filter(|_| self.log.borrow().enabled());
        let decides = [server.timeout_header.as_ref(), server.priority_header.as_ref(), forwarded]
            .map(|name| name.map(|n| n.as_str()));
        let Some(Plain { path, has_origin }) = plain_get(bytes, decides) else { return false };
        let router = &generation.shared.router;
        if router.has_hosts() {
            return false;
        }
        let Found::Route { route, .. } = router.find(&Method::GET, || None, path) else { return false };
        let route = &generation.routes[route];
        if route.web.as_ref().is_some_and(|web| web.concerns_refusal(has_origin)) {
            return false;
        }
        let now = Instant::now();
        let Some(refusal) = self.refusal(route, now) else { return false };
        self.on_request_start(now);
        self.note_refusal(now);
        let id = self.next_request_id();
        let bytes = write(refusal, id, &mut self.date.borrow_mut(), now, to);
        self.stats.shed.add(1);
        route.stats.refused(refusal);
        route.stats.responded(StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO, &Report::default());
        let mut log = self.log.borrow_mut();
        if log.enabled() {
            let peer = conn.client.peer_besides(conn.client.remote()).map(client::text);
            log.write(&Line {
                start: now,
                duration: Duration::ZERO,
                method: &Method::GET,
                path,
                route: &route.label,
                status: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
                report: Report::default(),
                bytes,
                remote: conn.client.remote_text(),
                peer: peer.as_deref(),
                version: Version::HTTP_11,
                id,
                known_id: None,
                principal: None,
                trace: None,
                cache: None,
            });
        }
        self.on_request_end(now);
        true
    }
}

/// What decides about a plain GET.
#[derive(Debug, PartialEq)]
struct Plain<'a> {
    path: &'a str,
    /// It is of a page, perhaps of another origin.
    has_origin: bool,
}

/// The path of a request, if it is one whole GET in HTTP/1.1 without a body and without anything that needs the usual path: a connection
/// that ends, an expectation, or one of the headers that influence admission.
fn plain_get<'a>(bytes: &'a [u8], decides: [Option<&str>; 3]) -> Option<Plain<'a>> {
    if !bytes.starts_with(b"GET /") {
        return None;
    }
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Complete(len)) if len == bytes.len() && request.version == Some(1) => {}
        _ => return None,
    }
    let (mut hosts, mut has_origin) = (0, false);
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            4 if is("host") && !host::is_valid(header.value) => return None,
            4 if is("host") => hosts += 1,
            6 if is("expect") => return None,
            6 if is("origin") => has_origin = true,
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
    // Only characters that are always valid: any other target might be refused for another reason.
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%:@!$&'()*+,;=?".contains(&byte);
    let path = || target.split_once('?').map_or(target, |(path, _)| path);
    target.bytes().all(usual).then(|| Plain { path: path(), has_origin })
}

/// A refusal as the usual path writes it, with room for what differs.
struct Template {
    bytes: Vec<u8>,
    date: usize,
    id: usize,
    body: u64,
}

impl Template {
    fn new(refusal: Refusal) -> Template {
        const ID: RequestId = RequestId::new(0xf1f2_f3f4_f5f6_f7f8);
        let response = ServerResponse::Refused(refusal).response(ID);
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
        bytes.extend_from_slice(&[b' '; DATE_LEN]);
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
        written[template.date..][..DATE_LEN].copy_from_slice(date.at(now));
        written[template.id..][..16].copy_from_slice(&id.hex());
        template.body
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(request: &str) -> Option<&str> {
        plain_get(request.as_bytes(), [Some("x-priority"), None, None]).map(|plain| plain.path)
    }

    #[test]
    fn a_plain_get_is_recognised() {
        assert_eq!(path("GET /a/b HTTP/1.1\r\nhost: a\r\n\r\n"), Some("/a/b"));
        assert_eq!(
            path("GET /a?b=/c HTTP/1.1\r\nAccept: */*\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n"),
            Some("/a")
        );
        let of_page = b"GET /a HTTP/1.1\r\nhost: a\r\nOrigin: https://a.example\r\n\r\n";
        assert_eq!(plain_get(of_page, [None; 3]), Some(Plain { path: "/a", has_origin: true }));
    }

    #[test]
    fn everything_else_takes_the_usual_path() {
        for request in [
            "",
            "GET /a HTTP/1.1\r\nhost: a\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\n\r\nG",
            "GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /a HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /a HTTP/1.0\r\nhost: a\r\n\r\n",
            "GET /a HTTP/1.1\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a b\r\n\r\n",
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
        let many = "x: y\r\n".repeat(MAX_HEADERS);
        assert_eq!(path(&format!("GET /a HTTP/1.1\r\nhost: a\r\n{many}\r\n")), None);
    }

    #[test]
    fn each_template_is_the_usual_response() {
        for refusal in Refusal::ALL {
            let (mut text, date) = (Vec::new(), HttpDate::new());
            let body = write(refusal, RequestId::new(0xab), &mut date.borrow_mut(), Instant::now(), &mut text);
            let text = String::from_utf8(text).unwrap();
            let (head, document) = text.split_once("\r\n\r\n").unwrap();
            assert_eq!(document.len() as u64, body);
            assert_eq!(
                document.as_bytes(),
                ServerResponse::Refused(refusal).response(RequestId::new(0xab)).body.to_bytes()
            );
            let date = head.rsplit_once("\r\ndate: ").unwrap().1;
            assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
        }
    }
}
