//! The future of one response, and the states that its request passes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fanin_tracecontext::TraceContext;
use http::header::{self, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::cached::{self, FollowWait, GRACE};
use super::connection_headers::remove_connection_headers;
use super::guard_wait::GuardWait;
use super::panic::catch_panic;
use super::pending_request::PendingRequest;
use super::read_body::{BodyError, ReadBody};
use super::response_body::{ResponseBody, StreamEnd};
use super::server_responses::ServerResponse;
use super::{RequestHead, RequestMeta, admitted, begin, enter, handle_head};
use crate::access_log::{CLIENT_DISCONNECTED, Line};
use crate::admission::{Permit, Refusal};
use crate::cache::Outcome;
use crate::client::{self, Bound};
use crate::coarse_timeout::Timeout;
use crate::connection::ConnectionState;
use crate::rpc::{self, Call};
use crate::upgrade::{Takeover, UpgradeOutcome};
use crate::worker::{WorkerGeneration, WorkerState};
use crate::{Application, Body, Report, RequestEnd, Response, Upgraded, Worker};

pin_project! {
    /// The state of a request. States that most requests never reach are boxed.
    #[project = StateProj]
    pub(crate) enum RequestState<F> {
        ServerResponse { answer: Option<ServerResponse> },
        // A stream of a connection with resets: it begins one poll later, so that one that is reset already calls nothing.
        Deferred { request: Option<Box<(Parts, Incoming)>>, deferred: bool },
        Guard { waiting: Box<GuardWait> },
        // Another request makes the response that it wants.
        Follow { waiting: Box<FollowWait> },
        Admit { waiting: Box<PendingRequest> },
        Read { reading: Box<(ReadBody, Instant, Option<(RequestHead, Permit)>)> },
        Run { #[pin] future: F, deadline: Instant },
        Done,
    }
}

pin_project! {
    /// Ready with the response. Dropped before that, the client has left.
    pub(crate) struct ResponseFuture<A: Application> {
        worker: Rc<WorkerState<A>>,
        conn: Rc<ConnectionState>,
        // The application as it was when the request came: a reload must not change it midway.
        generation: Rc<WorkerGeneration<A>>,
        // `None` once the response is made.
        meta: Option<RequestMeta>,
        // Of the present state; set on its first pending poll.
        timeout: Option<Timeout>,
        #[pin]
        state: RequestState<<A::Worker as Worker>::Future>,
    }

    impl<A: Application> PinnedDrop for ResponseFuture<A> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(meta) = this.meta.take() {
                client_disconnected(this.worker, this.conn, this.generation, &meta);
            }
        }
    }
}

impl<A: Application> ResponseFuture<A> {
    pub(super) fn new(
        worker: Rc<WorkerState<A>>,
        conn: Rc<ConnectionState>,
        generation: Rc<WorkerGeneration<A>>,
        meta: RequestMeta,
        state: RequestState<<A::Worker as Worker>::Future>,
    ) -> ResponseFuture<A> {
        ResponseFuture { worker, conn, generation, meta: Some(meta), timeout: None, state }
    }
}

impl<A: Application> Future for ResponseFuture<A> {
    type Output = Result<http::Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(meta) = this.meta.as_mut() else { return Poll::Pending };
        let timeouts = &this.worker.timeouts;
        let passed = |timeout: &mut Option<Timeout>, due: Instant, cx: &mut Context<'_>| {
            timeout.get_or_insert_with(|| Timeout::new(timeouts)).poll(due, cx).is_ready()
        };
        let response = loop {
            let next = match this.state.as_mut().project() {
                StateProj::Run { future, deadline } => match catch_panic(|| future.poll(cx)) {
                    Some(Poll::Ready(response)) => break response_if_read(this.conn, this.generation, meta, response),
                    Some(Poll::Pending) if !passed(this.timeout, *deadline + GRACE, cx) => return Poll::Pending,
                    Some(Poll::Pending) => RequestState::ServerResponse { answer: Some(ServerResponse::Deadline) },
                    None => {
                        if let Some(route) = &meta.route {
                            route.stats.panicked();
                        }
                        RequestState::ServerResponse { answer: Some(ServerResponse::Panic) }
                    }
                },
                StateProj::ServerResponse { answer } => match answer.take() {
                    Some(answer) => break answer.response(meta.id),
                    None => return Poll::Pending,
                },
                StateProj::Read { reading } => {
                    let (body, bound, head) = &mut **reading;
                    let answer = match body.poll(cx) {
                        Poll::Ready(Ok(bytes)) => match head.take() {
                            Some((head, permit)) => {
                                *this.timeout = None;
                                Ok(handle_head(this.generation, meta, this.conn, head, bytes, permit))
                            }
                            // Taken only when this state ends.
                            None => return Poll::Pending,
                        },
                        Poll::Ready(Err(BodyError::TooLarge)) => {
                            let limit = meta.route.as_ref().map_or(0, |route| route.max_body);
                            Err(ServerResponse::TooLarge { limit })
                        }
                        Poll::Ready(Err(BodyError::Broken(error))) => {
                            Err(ServerResponse::BodyBroken(error.to_string()))
                        }
                        Poll::Ready(Err(BodyError::TooSlow)) => Err(ServerResponse::BodyTooSlow),
                        Poll::Pending => {
                            let due = body.due().map_or(*bound, |due| due.min(*bound));
                            if !passed(this.timeout, due, cx) {
                                return Poll::Pending;
                            }
                            if Instant::now() < *bound {
                                continue;
                            }
                            Err(ServerResponse::BodyTimeout)
                        }
                    };
                    answer.unwrap_or_else(|answer| {
                        this.conn.mark_unread();
                        RequestState::ServerResponse { answer: Some(answer) }
                    })
                }
                StateProj::Guard { waiting } => {
                    let deadline = waiting.deadline();
                    let decided = match waiting.poll(cx) {
                        Poll::Ready(decided) => decided,
                        Poll::Pending => match deadline {
                            Some(deadline) if passed(this.timeout, deadline + GRACE, cx) => {
                                Err(ServerResponse::Deadline)
                            }
                            _ => return Poll::Pending,
                        },
                    };
                    *this.timeout = None;
                    let next = decided.and_then(|(pass, head, body)| {
                        meta.pass = Some(pass);
                        enter(this.worker, this.conn, this.generation, meta, head, body, None)
                    });
                    next.unwrap_or_else(|answer| {
                        this.conn.mark_unread();
                        RequestState::ServerResponse { answer: Some(answer) }
                    })
                }
                StateProj::Follow { waiting } => {
                    let followed = match waiting.poll(cx) {
                        Poll::Ready(followed) => followed,
                        Poll::Pending if passed(this.timeout, waiting.until(), cx) => waiting.give_up(),
                        Poll::Pending => return Poll::Pending,
                    };
                    *this.timeout = None;
                    // Taken only when this state ends.
                    let Some((head, body)) = waiting.head.take() else { return Poll::Pending };
                    enter(this.worker, this.conn, this.generation, meta, head, body, Some(followed))
                        .unwrap_or_else(|answer| RequestState::ServerResponse { answer: Some(answer) })
                }
                StateProj::Admit { waiting } => {
                    let deadline = waiting.head.as_ref().map(|(head, _)| head.deadline);
                    let answer = match (waiting.poll(cx), deadline) {
                        (Poll::Ready(Ok(permit)), _) => match waiting.head.take() {
                            Some((head, body)) => {
                                *this.timeout = None;
                                Ok(admitted(this.generation, meta, this.conn, head, body, permit))
                            }
                            // Taken only when this state ends.
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
                        this.conn.mark_unread();
                        RequestState::ServerResponse { answer: Some(ServerResponse::Refused(refusal)) }
                    })
                }
                StateProj::Deferred { deferred: deferred @ false, .. } => {
                    *deferred = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                StateProj::Deferred { request, .. } => match request.take() {
                    Some(request) => begin(this.worker, this.conn, this.generation, meta, request.0, request.1),
                    // Taken only when this state ends.
                    None => return Poll::Pending,
                },
                StateProj::Done => return Poll::Pending,
            };
            this.state.set(next);
        };
        this.state.set(RequestState::Done);
        *this.timeout = None;
        // Taken so that the drop knows that the response was made.
        let Some(meta) = this.meta.take() else { return Poll::Pending };
        Poll::Ready(Ok(respond(this.worker, this.conn, this.generation, meta, response)))
    }
}

/// The application's response, or a refusal: requests that began before the client stopped reading must not pin their responses.
fn response_if_read<A: Application>(
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
    response: Response,
) -> Response {
    if conn.unsent() <= generation.server().max_unsent || response.body.is_empty() {
        return response;
    }
    if let Some(route) = &meta.route {
        route.stats.refused(Refusal::Unsent);
    }
    ServerResponse::Refused(Refusal::Unsent).response(meta.id)
}

fn respond<A: Application>(
    worker: &Rc<WorkerState<A>>,
    conn: &Rc<ConnectionState>,
    generation: &Rc<WorkerGeneration<A>>,
    mut meta: RequestMeta,
    mut response: Response,
) -> http::Response<ResponseBody> {
    if response.status.is_informational() {
        if response.status == StatusCode::SWITCHING_PROTOCOLS
            && meta.can_upgrade
            && let Some(upgraded) = response.body.take_upgrade()
        {
            return switch_protocols(worker, conn, generation, meta, response, upgraded);
        }
        tracing::error!(status = %response.status, "the application answered with an informational status");
        response = ServerResponse::BadResponse.response(meta.id);
    }
    if meta.call.is_none() {
        if generation.shared.all_caches.is_some() {
            response = cached::finish(worker, conn, generation, &mut meta, response);
        } else if let Some(web) = &meta.web {
            web.finish(&mut response);
        }
    }
    // Logs and metrics have the status that it is, not the one that a call is answered with.
    let status = response.status;
    if let Some(call) = meta.call {
        response = rpc::convert(call, response);
        if let Some(web) = &meta.web {
            web.finish(&mut response);
        }
    }
    let Response { status: mut sent, mut headers, mut body, report } = response;
    if meta.call.is_some_and(Call::is_always_ok) {
        sent = StatusCode::OK;
    }
    remove_connection_headers(&mut headers);
    let is_stream = body.is_stream();
    if has_no_content(sent) && !is_stream {
        // HTTP/2 clients take any byte for an error.
        body = Body::empty();
    }
    let bytes = body.size_hint().exact();
    if meta.method == Method::HEAD {
        if let Some(bytes) = bytes.filter(|_| !has_no_content(sent)) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        body = Body::empty();
    }
    if let Some(pass) = &meta.pass {
        headers.extend(pass.headers.iter().cloned());
    }
    meta.add_id(generation.server(), &mut headers);
    let now = Instant::now();
    let duration = now.saturating_duration_since(meta.start);
    meta.route.as_ref().map_or(&generation.unmatched, |route| &route.stats).responded(status, duration, &report);
    worker.on_request_end(now);
    let body = if is_stream && meta.method != Method::HEAD {
        stream_body(worker, conn, generation, meta, status, report, body)
    } else {
        let sent = log(worker, conn, generation, &meta, duration, status.as_u16(), report, bytes.unwrap_or(0));
        if let Some(trace) = sent {
            meta.route.as_ref().map_or(&generation.unmatched, |route| &route.stats).exemplify(duration, trace);
        }
        conn.on_request_end();
        ResponseBody::new(body, conn)
    };
    let mut result = http::Response::new(body);
    *result.status_mut() = sent;
    *result.headers_mut() = headers;
    result
}

/// Whether a response with this status has no body (RFC 9110, 6.4.1).
#[inline]
fn has_no_content(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

/// The body of a stream. Its request is logged, and ends for its connection and its client, when the stream ends.
#[cold]
fn stream_body<A: Application>(
    worker: &Rc<WorkerState<A>>,
    conn: &Rc<ConnectionState>,
    generation: &Rc<WorkerGeneration<A>>,
    mut meta: RequestMeta,
    status: StatusCode,
    first: Report,
    body: Body,
) -> ResponseBody {
    meta.release_head();
    let (at_end, end_conn) = ((worker.clone(), generation.clone()), conn.clone());
    ResponseBody::stream(body, conn, move |end: StreamEnd| {
        let ((worker, generation), conn) = (at_end, end_conn);
        let stats = meta.route.as_ref().map_or(&generation.unmatched, |route| &route.stats);
        if let Some(report) = &end.report {
            stats.reported(report);
        }
        if !end.complete {
            stats.client_disconnected();
            count_reset(&worker, &conn, &generation, &meta);
        }
        let duration = Instant::now().saturating_duration_since(meta.start);
        let status = if end.complete { status.as_u16() } else { CLIENT_DISCONNECTED };
        log(&worker, &conn, &generation, &meta, duration, status, end.report.unwrap_or(first), end.bytes);
        conn.on_request_end();
    })
}

/// The response after which the connection goes on in another protocol. Its request is logged, and ends for its connection and its
/// client, when the connection ends.
#[cold]
fn switch_protocols<A: Application>(
    worker: &Rc<WorkerState<A>>,
    conn: &Rc<ConnectionState>,
    generation: &Rc<WorkerGeneration<A>>,
    meta: RequestMeta,
    response: Response,
    upgraded: Box<dyn Upgraded>,
) -> http::Response<ResponseBody> {
    let Response { status, mut headers, body: _, report } = response;
    let protocol = headers.remove(header::UPGRADE);
    remove_connection_headers(&mut headers);
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
    meta.add_id(generation.server(), &mut headers);
    let now = Instant::now();
    let duration = now.saturating_duration_since(meta.start);
    meta.route.as_ref().map_or(&generation.unmatched, |route| &route.stats).responded(status, duration, &report);
    worker.on_request_end(now);
    let (at_end, end_conn) = ((worker.clone(), generation.clone()), conn.clone());
    conn.set_takeover(Takeover::new(upgraded, move |end: UpgradeOutcome| {
        let ((worker, generation), conn) = (at_end, end_conn);
        if !end.complete {
            meta.route.as_ref().map_or(&generation.unmatched, |route| &route.stats).client_disconnected();
        }
        let duration = Instant::now().saturating_duration_since(meta.start);
        log(&worker, &conn, &generation, &meta, duration, end.status, report, end.bytes);
        conn.on_request_end();
    }));
    let mut result = http::Response::new(ResponseBody::new(Body::empty(), conn));
    *result.status_mut() = status;
    *result.headers_mut() = headers;
    result
}

/// A request of an HTTP/2 client ended early.
fn count_reset<A: Application>(
    worker: &WorkerState<A>,
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
) {
    if meta.version == Version::HTTP_2
        && conn.limits.on_reset(&worker.clients, generation.server(), meta.forwarded.map(|client| client.ip()))
    {
        worker.stats.client_limits[Bound::Resets as usize].add(1);
        conn.wake();
    }
}

fn client_disconnected<A: Application>(
    worker: &WorkerState<A>,
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
) {
    let now = Instant::now();
    count_reset(worker, conn, generation, meta);
    meta.route.as_ref().map_or(&generation.unmatched, |route| &route.stats).client_disconnected();
    let duration = now.saturating_duration_since(meta.start);
    log(worker, conn, generation, meta, duration, CLIENT_DISCONNECTED, Report::default(), 0);
    worker.on_request_end(now);
    conn.on_request_end();
}

/// A request has ended: for the access log, and for its trace, which is given back if its spans are sent.
#[inline]
#[allow(clippy::too_many_arguments, reason = "it is inlined")]
fn log<'a, A: Application>(
    worker: &WorkerState<A>,
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    meta: &'a RequestMeta,
    duration: Duration,
    status: u16,
    report: Report,
    bytes: u64,
) -> Option<&'a TraceContext> {
    let mut log = worker.log.borrow_mut();
    if log.enabled() {
        let forwarded = meta.forwarded.map(client::text);
        let peer = conn.client.peer_besides(meta.remote(conn)).map(client::text);
        log.write(&Line {
            start: meta.start,
            duration,
            method: &meta.method,
            path: meta.path(),
            route: meta.route.as_ref().map_or("null", |route| &route.label),
            status,
            report,
            bytes: if meta.method == Method::HEAD { 0 } else { bytes },
            remote: forwarded.as_deref().unwrap_or_else(|| conn.client.remote_text()),
            peer: peer.as_deref(),
            version: meta.version,
            id: meta.id,
            known_id: meta.known_id.as_ref().map(HeaderValue::as_bytes),
            principal: meta.pass.as_ref().and_then(|pass| pass.identity.as_ref()?.principal()),
            trace: meta.trace.as_ref().map(|trace| trace.id()),
            cache: meta.cached.map(Outcome::label),
        });
    }
    drop(log);
    let trace = meta.trace.as_ref()?;
    // Without an export, its spans are those of others.
    let is_sent = match trace.is_recorded() {
        true => end_trace(conn, generation, meta, trace, duration, status),
        false => trace.is_sampled(),
    };
    is_sent.then_some(trace)
}

#[cold]
fn end_trace<A: Application>(
    conn: &ConnectionState,
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
    trace: &Arc<TraceContext>,
    duration: Duration,
    status: u16,
) -> bool {
    let end = RequestEnd {
        trace,
        duration,
        method: &meta.method,
        path: meta.path(),
        secure: generation.shared.tls.is_some(),
        route: meta.route.as_ref().map(|route| route.index),
        status,
        remote: meta.remote(conn),
        version: meta.version,
    };
    // What it does cannot fail the request, which has ended.
    catch_panic(|| generation.app.request_ended(&end)).unwrap_or(false)
}
