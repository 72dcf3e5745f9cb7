//! From a parsed head to a response.

mod answers;
mod future;
mod outgoing;
mod read_body;
mod shed;

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, Method, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use answers::Answer;
use future::{Serve, State, Wait, Waiting};
use outgoing::Outgoing;
use read_body::ReadBody;

pub(crate) use shed::HttpDate;

use crate::admission::{Admission, Permit, Refusal, admit};
use crate::connection::Conn;
use crate::router::Found;
use crate::worker::{Route, Site, WorkerState};
use crate::{Application, Params, Priority, Request, RequestId, Worker};

/// What hyper calls for each request of a connection.
pub(crate) struct Service<A: Application> {
    worker: Rc<WorkerState<A>>,
    conn: Rc<Conn>,
}

/// What log and metrics need of a request after the application has taken it.
#[derive(Debug)]
struct Meta {
    id: RequestId,
    start: Instant,
    method: Method,
    /// `None` for a target that has no path, as that of CONNECT.
    target: Option<PathAndQuery>,
    version: Version,
    route: Option<Rc<Route>>,
}

/// An admitted request whose body is not read yet, and all that it takes to go on.
#[derive(Debug)]
struct Head {
    parts: Parts,
    params: Params,
    deadline: Instant,
    priority: Priority,
    route: Rc<Route>,
}

impl<A: Application> Service<A> {
    pub(crate) fn new(worker: Rc<WorkerState<A>>, conn: Rc<Conn>) -> Service<A> {
        Service { worker, conn }
    }
}

impl<A: Application> hyper::service::Service<http::Request<Incoming>> for Service<A> {
    type Response = http::Response<Outgoing>;
    type Error = Infallible;
    type Future = Serve<A>;

    fn call(&self, request: http::Request<Incoming>) -> Serve<A> {
        let start = Instant::now();
        self.worker.request_begins(start);
        self.conn.request_begins();
        let (parts, body) = request.into_parts();
        let mut meta = Meta {
            id: self.worker.next_id(),
            start,
            method: parts.method.clone(),
            target: parts.uri.path_and_query().cloned(),
            version: parts.version,
            route: None,
        };
        let site = self.worker.site();
        let unread = !body.is_end_stream();
        if unread {
            self.conn.has_body();
        }
        let state = match self.begin(&site, &mut meta, parts, body) {
            Ok(state) => state,
            Err(answer) => {
                if unread {
                    self.conn.leaves_unread();
                }
                if matches!(answer, Answer::Refused(_)) {
                    self.worker.has_refused(start);
                }
                State::Answer { answer: Some(answer) }
            }
        };
        Serve::new(self.worker.clone(), self.conn.clone(), site, meta, state)
    }
}

impl Meta {
    fn path(&self) -> &str {
        self.target.as_ref().map_or("", PathAndQuery::path)
    }
}

impl<A: Application> Service<A> {
    /// All that can be said without waiting; nothing here reads the body.
    fn begin(
        &self,
        site: &Site<A>,
        meta: &mut Meta,
        parts: Parts,
        body: Incoming,
    ) -> Result<State<<A::Worker as Worker>::Future>, Answer> {
        let mut hosts = parts.headers.get_all(HOST).iter();
        if parts.version == Version::HTTP_11 && (hosts.next().is_none() || hosts.next().is_some()) {
            return Err(Answer::Host);
        }
        let (route, values) = match site.generation.router.find(&parts.method, parts.uri.path()) {
            Found::Route { route, values } => (&site.routes[route], values),
            Found::NoPath => return Err(Answer::NotFound),
            Found::NoMethod { allow } => return Err(Answer::NotAllowed { allow }),
            Found::Bad(error) => return Err(Answer::Path(error)),
        };
        meta.route = Some(route.clone());
        let timeout = match &site.server().timeout_header {
            None => route.timeout,
            Some(name) => match parts.headers.get(name) {
                None => route.timeout,
                Some(value) => {
                    let sent = value.to_str().ok().and_then(|text| text.trim().parse().ok());
                    let sent = sent.map(Duration::from_millis).ok_or_else(|| Answer::TimeoutHeader(name.clone()))?;
                    if sent.is_zero() {
                        return Err(Answer::Deadline);
                    }
                    sent.min(route.timeout)
                }
            },
        };
        if body.size_hint().lower() > route.max_body as u64 {
            return Err(Answer::TooLarge { limit: route.max_body });
        }
        let deadline = meta.start + timeout;
        let params = Params { names: if values.is_empty() { None } else { route.names.clone() }, values };
        let priority = match &site.server().priority_header {
            None => route.priority,
            Some(name) => self.said_priority(site, name, &parts)?.unwrap_or(route.priority),
        };
        if self.worker.memory.refuses(priority) {
            route.stats.refused(Refusal::Memory);
            return Err(Answer::Refused(Refusal::Memory));
        }
        if self.worker.ready.is_on() {
            let Ok(ready) = self.worker.ready.enqueue(priority, meta.start) else {
                route.stats.refused(Refusal::Queueing);
                return Err(Answer::Refused(Refusal::Queueing));
            };
            let head = Head { parts, params, deadline, priority, route: route.clone() };
            return Ok(State::Admit {
                waiting: Box::new(Waiting { wait: Wait::Worker(ready), head: Some((head, body)) }),
            });
        }
        match admit(route, priority) {
            // Nearly every request: no body, and a place. Nothing of it is moved once more than needed.
            Admission::Admitted(permit) if body.is_end_stream() => {
                Ok(handle(site, meta, &self.conn, route, parts, params, (deadline, priority), Bytes::new(), permit))
            }
            Admission::Admitted(permit) => {
                let head = Head { parts, params, deadline, priority, route: route.clone() };
                Ok(admitted(site, meta, &self.conn, head, body, permit))
            }
            Admission::Wait(admitting) => {
                let head = Head { parts, params, deadline, priority, route: route.clone() };
                let wait = Wait::Place(admitting);
                Ok(State::Admit { waiting: Box::new(Waiting { wait, head: Some((head, body)) }) })
            }
            Admission::Refused(refusal) => {
                route.stats.refused(refusal);
                Err(Answer::Refused(refusal))
            }
        }
    }
}

impl<A: Application> Service<A> {
    /// What a trusted client says of the request's importance; `None` if nothing, or not to us.
    #[cold]
    fn said_priority(&self, site: &Site<A>, name: &HeaderName, parts: &Parts) -> Result<Option<Priority>, Answer> {
        let Some(value) = parts.headers.get(name) else { return Ok(None) };
        let from = self.conn.remote.ip();
        if !site.server().trusted.iter().any(|network| network.contains(from)) {
            return Ok(None);
        }
        let said = value.to_str().ok().and_then(|text| text.trim().parse().ok());
        said.map(Some).ok_or_else(|| Answer::PriorityHeader(name.clone()))
    }
}

/// Reads the body if there is one, else hands the request over.
fn admitted<A: Application>(
    site: &Site<A>,
    meta: &Meta,
    conn: &Conn,
    head: Head,
    body: Incoming,
    permit: Permit,
) -> State<<A::Worker as Worker>::Future> {
    if body.is_end_stream() {
        return handle_head(site, meta, conn, head, Bytes::new(), permit);
    }
    let bound = (Instant::now() + site.server().body_timeout).min(head.deadline);
    let limit = head.route.max_body;
    State::Read { reading: Box::new((ReadBody::new(body, limit), bound, Some((head, permit)))) }
}

/// Hands a request over that had to wait or whose body had to be read.
fn handle_head<A: Application>(
    site: &Site<A>,
    meta: &Meta,
    conn: &Conn,
    head: Head,
    body: Bytes,
    permit: Permit,
) -> State<<A::Worker as Worker>::Future> {
    let Head { parts, params, deadline, priority, route } = head;
    handle(site, meta, conn, &route, parts, params, (deadline, priority), body, permit)
}

/// Hands the request over to the application.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a struct of them would be one more copy of some hundred bytes")]
fn handle<A: Application>(
    site: &Site<A>,
    meta: &Meta,
    conn: &Conn,
    route: &Route,
    parts: Parts,
    params: Params,
    (deadline, priority): (Instant, Priority),
    body: Bytes,
    permit: Permit,
) -> State<<A::Worker as Worker>::Future> {
    let request = Request {
        id: meta.id,
        route: route.index,
        method: parts.method,
        uri: parts.uri,
        version: parts.version,
        params,
        headers: parts.headers,
        body,
        remote: conn.remote,
        start: meta.start,
        deadline,
        priority,
        permit,
    };
    match future::caught(|| site.app.handle(request)) {
        Some(future) => State::Run { future, deadline },
        None => {
            route.stats.panicked();
            State::Answer { answer: Some(Answer::Panic) }
        }
    }
}
