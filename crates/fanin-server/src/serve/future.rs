//! The future of one request's response.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Method;
use http::header::{self, CONTENT_LENGTH, HeaderMap, HeaderValue};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::answers::Answer;
use super::outgoing::Outgoing;
use super::read_body::{BodyError, ReadBody};
use super::{Head, Meta, admitted, handle_head};
use crate::access_log::Line;
use crate::admission::{Admission, Admitting, Permit, Refusal, admit};
use crate::connection::Conn;
use crate::sweep::Timeout;
use crate::worker::{Ready, Site, WorkerState};
use crate::{Application, Body, Report, Response, Worker};

/// The application is expected to answer by the deadline. After this much more the server answers instead.
const GRACE: Duration = Duration::from_millis(100);

/// In the access log, the status of a request whose client left before the response.
const CLIENT_LEFT: u16 = 499;

/// A request that waits to be let in.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) wait: Wait,
    /// `None` once it has been admitted.
    pub(super) head: Option<(Head, Incoming)>,
}

/// What for.
#[derive(Debug)]
pub(super) enum Wait {
    /// Its worker, which has more to do than it can.
    Worker(Ready),
    /// A place below the limits.
    Place(Admitting),
}

impl Waiting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refusal>> {
        if let Wait::Worker(ready) = &self.wait {
            if ready!(ready.poll(cx)).is_err() {
                return Poll::Ready(Err(Refusal::Queueing));
            }
            // It is taken only on the way out of this state.
            let Some((head, _)) = &self.head else { return Poll::Pending };
            match admit(&head.route, head.priority) {
                Admission::Admitted(permit) => return Poll::Ready(Ok(permit)),
                Admission::Refused(refusal) => return Poll::Ready(Err(refusal)),
                Admission::Wait(admitting) => self.wait = Wait::Place(admitting),
            }
        }
        match &mut self.wait {
            Wait::Place(admitting) => admitting.poll(cx),
            // It became a place above.
            Wait::Worker(_) => Poll::Pending,
        }
    }
}

pin_project! {
    /// Where a request is. What most requests never are is boxed.
    #[project = StateProj]
    pub(crate) enum State<F> {
        Answer { answer: Option<Answer> },
        Admit { waiting: Box<Waiting> },
        Read { reading: Box<(ReadBody, Instant, Option<(Head, Permit)>)> },
        Run { #[pin] future: F, deadline: Instant },
        Done,
    }
}

pin_project! {
    /// Ready with the response. Dropped before that, the client has left.
    pub(crate) struct Serve<A: Application> {
        worker: Rc<WorkerState<A>>,
        conn: Rc<Conn>,
        // The application as it was when the request came: a reload must not change it midway.
        site: Rc<Site<A>>,
        // `None` once the response is made.
        meta: Option<Meta>,
        // Of the present state; set when it is first waited for.
        timeout: Option<Timeout>,
        #[pin]
        state: State<<A::Worker as Worker>::Future>,
    }

    impl<A: Application> PinnedDrop for Serve<A> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(meta) = this.meta.take() {
                client_left(this.worker, this.conn, this.site, &meta);
            }
        }
    }
}

impl<A: Application> Serve<A> {
    pub(super) fn new(
        worker: Rc<WorkerState<A>>,
        conn: Rc<Conn>,
        site: Rc<Site<A>>,
        meta: Meta,
        state: State<<A::Worker as Worker>::Future>,
    ) -> Serve<A> {
        Serve { worker, conn, site, meta: Some(meta), timeout: None, state }
    }
}

impl<A: Application> Future for Serve<A> {
    type Output = Result<http::Response<Outgoing>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(meta) = this.meta.as_ref() else { return Poll::Pending };
        let sweep = &this.worker.sweep;
        let passed = |timeout: &mut Option<Timeout>, due: Instant, cx: &mut Context<'_>| {
            timeout.get_or_insert_with(|| Timeout::new(sweep, due)).poll(cx).is_ready()
        };
        let response = loop {
            let next = match this.state.as_mut().project() {
                StateProj::Run { future, deadline } => match caught(|| future.poll(cx)) {
                    Some(Poll::Ready(response)) => break response,
                    Some(Poll::Pending) if !passed(this.timeout, *deadline + GRACE, cx) => return Poll::Pending,
                    Some(Poll::Pending) => State::Answer { answer: Some(Answer::Deadline) },
                    None => {
                        if let Some(route) = &meta.route {
                            route.stats.panicked();
                        }
                        State::Answer { answer: Some(Answer::Panic) }
                    }
                },
                StateProj::Answer { answer } => match answer.take() {
                    Some(answer) => break answer.response(meta.id),
                    None => return Poll::Pending,
                },
                StateProj::Read { reading } => {
                    let (body, bound, head) = &mut **reading;
                    let answer = match body.poll(cx) {
                        Poll::Ready(Ok(bytes)) => match head.take() {
                            Some((head, permit)) => {
                                *this.timeout = None;
                                Ok(handle_head(this.site, meta, this.conn, head, bytes, permit))
                            }
                            // It is taken only on the way out of this state.
                            None => return Poll::Pending,
                        },
                        Poll::Ready(Err(BodyError::TooLarge)) => Err(Answer::TooLarge { limit: body.limit() }),
                        Poll::Ready(Err(BodyError::Broken(error))) => Err(Answer::BodyBroken(error.to_string())),
                        Poll::Pending if !passed(this.timeout, *bound, cx) => return Poll::Pending,
                        Poll::Pending => Err(Answer::BodyTimeout),
                    };
                    answer.unwrap_or_else(|answer| {
                        this.conn.leaves_unread();
                        State::Answer { answer: Some(answer) }
                    })
                }
                StateProj::Admit { waiting } => {
                    let deadline = waiting.head.as_ref().map(|(head, _)| head.deadline);
                    let answer = match (waiting.poll(cx), deadline) {
                        (Poll::Ready(Ok(permit)), _) => match waiting.head.take() {
                            Some((head, body)) => {
                                *this.timeout = None;
                                Ok(admitted(this.site, meta, this.conn, head, body, permit))
                            }
                            // It is taken only on the way out of this state.
                            None => return Poll::Pending,
                        },
                        (Poll::Ready(Err(refusal)), _) => Err(refusal),
                        (Poll::Pending, Some(deadline)) if passed(this.timeout, deadline, cx) => Err(Refusal::Deadline),
                        (Poll::Pending, _) => return Poll::Pending,
                    };
                    answer.unwrap_or_else(|refusal| {
                        if let Some(route) = &meta.route {
                            route.stats.refused(refusal);
                        }
                        this.conn.leaves_unread();
                        State::Answer { answer: Some(Answer::Refused(refusal)) }
                    })
                }
                StateProj::Done => return Poll::Pending,
            };
            this.state.set(next);
        };
        this.state.set(State::Done);
        *this.timeout = None;
        // Seen above; taken so that the drop knows that the response is made.
        let Some(meta) = this.meta.take() else { return Poll::Pending };
        Poll::Ready(Ok(respond(this.worker, this.conn, this.site, &meta, response)))
    }
}

/// Runs the application's code; a panic ends its request and nothing else. What the panic says is logged by the panic hook.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    // What the request leaves behind half done is its own and is dropped with it.
    catch_unwind(AssertUnwindSafe(run)).ok()
}

fn respond<A: Application>(
    worker: &WorkerState<A>,
    conn: &Rc<Conn>,
    site: &Site<A>,
    meta: &Meta,
    mut response: Response,
) -> http::Response<Outgoing> {
    if response.status.is_informational() {
        tracing::error!(status = %response.status, "the application answered a status that is no answer");
        response = Answer::BadResponse.response(meta.id);
    }
    let Response { status, mut headers, mut body, report } = response;
    drop_headers_of_the_connection(&mut headers);
    let bytes = body.len() as u64;
    if meta.method == Method::HEAD {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        body = Body::empty();
    }
    let now = Instant::now();
    let duration = now.saturating_duration_since(meta.start);
    meta.route.as_ref().map_or(&site.unmatched, |route| &route.stats).responded(status, duration, &report);
    log(worker, conn, meta, duration, status.as_u16(), report, bytes);
    worker.request_ends(now);
    conn.request_ends();
    let mut result = http::Response::new(Outgoing::new(body, conn));
    *result.status_mut() = status;
    *result.headers_mut() = headers;
    result
}

fn client_left<A: Application>(worker: &WorkerState<A>, conn: &Conn, site: &Site<A>, meta: &Meta) {
    let now = Instant::now();
    meta.route.as_ref().map_or(&site.unmatched, |route| &route.stats).client_left();
    log(worker, conn, meta, now.saturating_duration_since(meta.start), CLIENT_LEFT, Report::default(), 0);
    worker.request_ends(now);
    conn.request_ends();
}

#[inline]
fn log<A: Application>(
    worker: &WorkerState<A>,
    conn: &Conn,
    meta: &Meta,
    duration: Duration,
    status: u16,
    report: Report,
    bytes: u64,
) {
    let mut log = worker.log.borrow_mut();
    if log.enabled() {
        log.write(&Line {
            start: meta.start,
            duration,
            method: &meta.method,
            path: meta.path(),
            route: meta.route.as_ref().map_or("null", |route| &route.label),
            status,
            report,
            bytes: if meta.method == Method::HEAD { 0 } else { bytes },
            remote: conn.remote_text(),
            version: meta.version,
            id: meta.id,
        });
    }
}

/// The application does not decide about these; a response copied from an upstream may have them.
fn drop_headers_of_the_connection(headers: &mut HeaderMap) {
    let ours =
        [CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE, header::TRAILER, header::TE];
    let is_ours = |name: &http::HeaderName| ours.contains(name) || name == "keep-alive" || name == "proxy-connection";
    // Names are compared as small integers; removing what is not there would hash each.
    if headers.keys().any(is_ours) {
        for name in ours {
            headers.remove(name);
        }
        headers.remove("keep-alive");
        headers.remove("proxy-connection");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_are_dropped() {
        let mut headers = HeaderMap::new();
        for name in ["content-length", "connection", "keep-alive", "x-mine", "transfer-encoding"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        drop_headers_of_the_connection(&mut headers);
        assert_eq!(headers.keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["x-mine"]);
    }

    #[test]
    fn panics_are_caught() {
        assert_eq!(caught(|| 1), Some(1));
        assert_eq!(caught(|| -> u8 { panic!("expected by this test") }), None);
    }
}
