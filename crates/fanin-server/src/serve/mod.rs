//! One request: from the parsed head to the response.
//!
//! - `response_future`: the future that hyper polls, and its states. `guard_wait`, `pending_request`: waits before the request runs.
//! - `cached`, `cache_part`: the cache of a route's responses.
//! - `client_headers`: what trusted clients set by headers.
//! - `head`: what the head of a request says. `request_meta`: what is known of a request until it is logged. `read_body`: the request's body. `response_body`: the response's.
//! - `trace`: the trace that a request takes part in.
//! - `server_responses`: what the server answers without the application.
//! - `fast_rejection`: refusals that hyper never sees. `connection_headers`: headers that only the server writes.

mod cache_part;
mod cached;
mod client_headers;
mod connection_headers;
mod fast_rejection;
mod guard_wait;
mod head;
mod panic;
mod pending_request;
mod read_body;
mod request_meta;
mod response_body;
mod response_future;
mod server_responses;
mod trace;

use std::convert::Infallible;
use std::rc::Rc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use cached::{FollowWait, Met};
use client_headers::{client_priority, client_timeout};
use guard_wait::GuardWait;
use head::{called, can_upgrade, is_chunked_at_most, with_path};
pub(crate) use panic::catch_panic;
use pending_request::{PendingRequest, Wait};
use read_body::ReadBody;
use request_meta::RequestMeta;
use response_body::ResponseBody;
use response_future::{RequestState, ResponseFuture};
use server_responses::{MAX_HEADERS, ServerResponse};

use crate::admission::{Admission, Permit, Refusal, admit};
use crate::cache::End;
use crate::client::{self};
use crate::connection::{ConnectionState, HeldBack};
use crate::router::Found;
use crate::rpc::Call;
use crate::worker::{Route, WorkerGeneration, WorkerState};
use crate::{Application, GuardedHead, Params, Priority, Request, Upload, Verdict, Worker, host, request_id, web};

/// What hyper calls for each request of a connection.
pub(crate) struct Service<A: Application> {
    worker: Rc<WorkerState<A>>,
    conn: Rc<ConnectionState>,
}

/// A request whose body is not read yet.
#[derive(Debug)]
struct RequestHead {
    parts: Parts,
    params: Params,
    deadline: Instant,
    priority: Priority,
    route: Rc<Route>,
}

impl<A: Application> Service<A> {
    pub(crate) fn new(worker: Rc<WorkerState<A>>, conn: Rc<ConnectionState>) -> Service<A> {
        Service { worker, conn }
    }
}

impl<A: Application> hyper::service::Service<http::Request<Incoming>> for Service<A> {
    type Response = http::Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture<A>;

    fn call(&self, request: http::Request<Incoming>) -> ResponseFuture<A> {
        let start = Instant::now();
        self.worker.on_request_start(start);
        self.conn.on_request_start();
        let (mut parts, body) = request.into_parts();
        let mut meta = RequestMeta {
            id: self.worker.next_request_id(),
            start,
            method: parts.method.clone(),
            target: parts.uri.path_and_query().cloned(),
            version: parts.version,
            route: None,
            forwarded: None,
            call: if parts.version == Version::HTTP_2 { Call::grpc(&parts.headers) } else { None },
            can_upgrade: can_upgrade(&parts, &body),
            trace: None,
            known_id: None,
            web: None,
            pass: None,
            in_progress: None,
            cache: None,
            cached: None,
        };
        let generation = self.worker.generation();
        let server = generation.server();
        if let Some(tracing) = generation.shared.app.tracing() {
            let peer = self.conn.client.remote().ip();
            let recorded = generation.shared.app.records_traces();
            meta.trace = Some(trace::begin(tracing, server, recorded, &parts.headers, peer));
        }
        if let Some(name) = &server.forwarded_header {
            let trusts = |address| client::is_trusted(server, address);
            meta.forwarded = client::forwarded_client(&parts.headers, name, self.conn.client.remote(), trusts);
        }
        if let Some(name) = &server.request_id {
            let is_trusted = client::is_trusted(server, self.conn.client.remote().ip());
            meta.known_id = Some(request_id::known(meta.id, name, &mut parts.headers, is_trusted));
        }
        let unread = !body.is_end_stream();
        if unread {
            self.conn.on_request_body();
        }
        let state = if self.conn.limits.has_resets() {
            RequestState::Deferred { request: Some(Box::new((parts, body))), deferred: false }
        } else {
            begin(&self.worker, &self.conn, &generation, &mut meta, parts, body)
        };
        ResponseFuture::new(self.worker.clone(), self.conn.clone(), generation, meta, state)
    }
}

/// The first state of a request.
#[inline]
fn begin<A: Application>(
    worker: &WorkerState<A>,
    conn: &Rc<ConnectionState>,
    generation: &WorkerGeneration<A>,
    meta: &mut RequestMeta,
    parts: Parts,
    body: Incoming,
) -> RequestState<<A::Worker as Worker>::Future> {
    let unread = !body.is_end_stream();
    check(worker, conn, generation, meta, parts, body).unwrap_or_else(|answer| {
        if unread {
            conn.mark_unread();
        }
        if matches!(answer, ServerResponse::Refused(_)) {
            worker.note_refusal(meta.start);
        }
        RequestState::ServerResponse { answer: Some(answer) }
    })
}

/// Every check that needs no waiting. Does not read the body.
#[inline]
fn check<A: Application>(
    worker: &WorkerState<A>,
    conn: &Rc<ConnectionState>,
    generation: &WorkerGeneration<A>,
    meta: &mut RequestMeta,
    mut parts: Parts,
    body: Incoming,
) -> Result<RequestState<<A::Worker as Worker>::Future>, ServerResponse> {
    let (is_http2, forwarded) = (parts.version == Version::HTTP_2, meta.forwarded.map(|client| client.ip()));
    let now = meta.start.into_std();
    meta.in_progress =
        conn.limits.begin_request(&worker.clients, generation.server(), is_http2, forwarded, now).map_err(|bound| {
            worker.stats.client_limits[bound as usize].add(1);
            ServerResponse::ClientLimit(bound)
        })?;
    host::check(parts.version, &parts.uri, &parts.headers).map_err(ServerResponse::Host)?;
    if parts.headers.len() > MAX_HEADERS {
        return Err(ServerResponse::TooManyHeaders);
    }
    if !body.is_end_stream() && !is_chunked_at_most(&parts.headers) {
        return Err(ServerResponse::TransferCoding);
    }
    if parts.method == Method::OPTIONS
        && let Some(answer) = preflight(generation, &parts)
    {
        return Err(answer);
    }
    let found = generation.shared.router.find(&parts.method, || host::of(&parts.uri, &parts.headers), parts.uri.path());
    let (route, values) = match found {
        Found::Route { route, values } => (&generation.routes[route], values),
        Found::NoPath => return Err(ServerResponse::NotFound),
        Found::NoHost => return Err(ServerResponse::NoHost),
        Found::NoMethod { allow } => return Err(ServerResponse::NotAllowed { allow }),
        Found::Options { allow } => return Err(ServerResponse::Options { allow }),
        Found::Bad(error) => return Err(ServerResponse::Path(error)),
    };
    if route.grpc {
        meta.call = called(&parts);
    } else if meta.call.is_some() {
        return Err(ServerResponse::NotFound);
    }
    if let Some(path) = generation.shared.router.rewritten(parts.uri.path()) {
        parts.uri = with_path(parts.uri, &path);
    }
    meta.route = Some(route.clone());
    if let Some(web) = &route.web {
        meta.web = Some(web.begin(&parts));
    }
    let timeout = match &generation.server().timeout_header {
        None => route.timeout,
        Some(name) => {
            client_timeout(conn, generation, name, &parts)?.map_or(route.timeout, |sent| sent.min(route.timeout))
        }
    };
    if body.size_hint().lower() > route.max_read() as u64 {
        return Err(ServerResponse::TooLarge { limit: route.max_body });
    }
    let deadline = meta.start + timeout;
    let params = Params { names: if values.is_empty() { None } else { route.names.clone() }, values };
    let priority = match &generation.server().priority_header {
        None => route.priority,
        Some(name) => client_priority(conn, generation, name, &parts)?.unwrap_or(route.priority),
    };
    let allowed = if worker.crowded.get() { 0 } else { generation.server().max_unsent };
    if conn.unsent() > allowed {
        route.stats.refused(Refusal::Unsent);
        return Err(ServerResponse::Refused(Refusal::Unsent));
    }
    if worker.memory.refuses(priority) {
        route.stats.refused(Refusal::Memory);
        return Err(ServerResponse::Refused(Refusal::Memory));
    }
    if route.guarded {
        let head = GuardedHead {
            route: route.index,
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            client: meta.remote(conn).ip(),
            certificate: conn.certificate(),
            start: meta.start,
            deadline,
        };
        match guard_wait::decide(generation, route, &head)? {
            Verdict::Pass(pass) => meta.pass = Some(Box::new(pass)),
            Verdict::Refuse(response) => return Err(ServerResponse::Guard(response)),
            Verdict::Wait(verdict) => {
                let _held_back = held_back(conn, &body);
                let head = RequestHead { parts, params, deadline, priority, route: route.clone() };
                return Ok(RequestState::Guard {
                    waiting: Box::new(GuardWait { verdict, _held_back, head: Some((head, body)) }),
                });
            }
        }
    }
    past_cache(worker, conn, generation, meta, route, parts, params, (deadline, priority), body, None)
}

/// The cache of the route, and admission behind it. `followed`: what the request has waited for already.
#[inline]
#[allow(clippy::too_many_arguments, reason = "a struct of them would copy some hundred bytes once more")]
fn past_cache<A: Application>(
    worker: &WorkerState<A>,
    conn: &Rc<ConnectionState>,
    generation: &WorkerGeneration<A>,
    meta: &mut RequestMeta,
    route: &Rc<Route>,
    mut parts: Parts,
    params: Params,
    (deadline, priority): (Instant, Priority),
    body: Incoming,
    followed: Option<(End, u8)>,
) -> Result<RequestState<<A::Worker as Worker>::Future>, ServerResponse> {
    if generation.shared.all_caches.is_some() {
        match cached::meet(generation, route, meta, &mut parts, &params, !body.is_end_stream(), conn, followed) {
            Met::Pass => {}
            Met::Answered(response) => {
                return Ok(RequestState::ServerResponse { answer: Some(ServerResponse::Cached(response)) });
            }
            Met::Waits(follower) => {
                let head = RequestHead { parts, params, deadline, priority, route: route.clone() };
                return Ok(RequestState::Follow { waiting: Box::new(FollowWait::new(follower, head, body)) });
            }
        }
    }
    admission(worker, conn, generation, meta, route, parts, params, (deadline, priority), body)
}

/// The run queue of an overloaded worker, and the permits of route and server.
#[inline]
#[allow(clippy::too_many_arguments, reason = "a struct of them would copy some hundred bytes once more")]
fn admission<A: Application>(
    worker: &WorkerState<A>,
    conn: &Rc<ConnectionState>,
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
    route: &Rc<Route>,
    parts: Parts,
    params: Params,
    (deadline, priority): (Instant, Priority),
    body: Incoming,
) -> Result<RequestState<<A::Worker as Worker>::Future>, ServerResponse> {
    if worker.run_queue.is_active() {
        let Ok(queued) = worker.run_queue.enqueue(priority, meta.start) else {
            route.stats.refused(Refusal::Queueing);
            return Err(ServerResponse::Refused(Refusal::Queueing));
        };
        let head = RequestHead { parts, params, deadline, priority, route: route.clone() };
        return Ok(RequestState::Admit {
            waiting: Box::new(PendingRequest {
                wait: Wait::Worker(queued),
                _held_back: held_back(conn, &body),
                head: Some((head, body)),
            }),
        });
    }
    match admit(&route.limiters, priority) {
        // The common case, no body and a free permit: without an extra move of the head.
        Admission::Admitted(permit) if body.is_end_stream() && !route.stream_body => {
            Ok(handle(generation, meta, conn, route, parts, params, (deadline, priority), (Bytes::new(), None), permit))
        }
        Admission::Admitted(permit) => {
            let head = RequestHead { parts, params, deadline, priority, route: route.clone() };
            Ok(admitted(generation, meta, conn, head, body, permit))
        }
        Admission::Wait(admitting) => {
            let head = RequestHead { parts, params, deadline, priority, route: route.clone() };
            let wait = Wait::Permit(admitting);
            let _held_back = held_back(conn, &body);
            Ok(RequestState::Admit { waiting: Box::new(PendingRequest { wait, _held_back, head: Some((head, body)) }) })
        }
        Admission::Refused(refusal) => {
            route.stats.refused(refusal);
            Err(ServerResponse::Refused(refusal))
        }
    }
}

/// The answer to a browser that asks whether a page of another origin may send a request, if the route of that request says so.
#[cold]
fn preflight<A: Application>(generation: &WorkerGeneration<A>, parts: &Parts) -> Option<ServerResponse> {
    let asked = web::preflight_method(&parts.headers)?;
    let router = &generation.shared.router;
    let found = router.find(&asked, || host::of(&parts.uri, &parts.headers), parts.uri.path());
    let Found::Route { route, .. } = found else { return None };
    let headers = generation.routes[route].web.as_ref()?.preflight(&asked, &parts.headers)?;
    Some(ServerResponse::Preflight(Box::new(headers)))
}

/// A request goes on that the application's guard or another request has let wait.
fn enter<A: Application>(
    worker: &WorkerState<A>,
    conn: &Rc<ConnectionState>,
    generation: &WorkerGeneration<A>,
    meta: &mut RequestMeta,
    head: RequestHead,
    body: Incoming,
    followed: Option<(End, u8)>,
) -> Result<RequestState<<A::Worker as Worker>::Future>, ServerResponse> {
    let RequestHead { parts, params, deadline, priority, route } = head;
    past_cache(worker, conn, generation, meta, &route, parts, params, (deadline, priority), body, followed)
}

/// A request with a body waits before it is read.
fn held_back(conn: &Rc<ConnectionState>, body: &Incoming) -> Option<HeldBack> {
    (!body.is_end_stream()).then(|| HeldBack::new(conn))
}

/// Reads the body if there is one, else hands the request over.
fn admitted<A: Application>(
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
    conn: &Rc<ConnectionState>,
    head: RequestHead,
    body: Incoming,
    permit: Permit,
) -> RequestState<<A::Worker as Worker>::Future> {
    if head.route.stream_body {
        let upload = Upload::new(body, conn, head.route.max_body, generation.server());
        let RequestHead { parts, params, deadline, priority, route } = head;
        let bounds = (deadline, priority);
        return handle(
            generation,
            meta,
            conn,
            &route,
            parts,
            params,
            bounds,
            (Bytes::new(), Some(Box::new(upload))),
            permit,
        );
    }
    if body.is_end_stream() {
        return handle_head(generation, meta, conn, head, Bytes::new(), permit);
    }
    let bound = (Instant::now() + generation.server().body_timeout).min(head.deadline);
    let limit = head.route.max_read();
    RequestState::Read {
        reading: Box::new((ReadBody::new(body, limit, conn, generation.server()), bound, Some((head, permit)))),
    }
}

/// Hands a request over that waited or whose body was read.
fn handle_head<A: Application>(
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
    conn: &ConnectionState,
    head: RequestHead,
    body: Bytes,
    permit: Permit,
) -> RequestState<<A::Worker as Worker>::Future> {
    let RequestHead { parts, params, deadline, priority, route } = head;
    handle(generation, meta, conn, &route, parts, params, (deadline, priority), (body, None), permit)
}

/// Hands the request over to the application.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a struct of them would copy some hundred bytes once more")]
fn handle<A: Application>(
    generation: &WorkerGeneration<A>,
    meta: &RequestMeta,
    conn: &ConnectionState,
    route: &Route,
    mut parts: Parts,
    params: Params,
    (deadline, priority): (Instant, Priority),
    (body, upload): (Bytes, Option<Box<Upload>>),
    permit: Permit,
) -> RequestState<<A::Worker as Worker>::Future> {
    if let Some(rules) = &route.request_headers {
        rules.apply(&mut parts.headers);
    }
    let request = Request {
        id: meta.id,
        known_id: meta.known_id.clone(),
        route: route.index,
        method: parts.method,
        uri: parts.uri,
        version: parts.version,
        params,
        headers: parts.headers,
        body,
        upload,
        remote: meta.remote(conn),
        start: meta.start,
        deadline,
        priority,
        certificate: conn.certificate().cloned(),
        identity: meta.pass.as_ref().and_then(|pass| pass.identity.clone()),
        trace: meta.trace.clone(),
        can_upgrade: meta.can_upgrade,
        permit,
    };
    match catch_panic(|| generation.app.handle(request)) {
        Some(future) => RequestState::Run { future, deadline },
        None => {
            route.stats.panicked();
            RequestState::ServerResponse { answer: Some(ServerResponse::Panic) }
        }
    }
}
