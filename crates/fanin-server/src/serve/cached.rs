//! The cache of a route's responses: before a request is admitted, and when its response is there.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Method;
use http::request::Parts;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::cache_part::CachePart;
use super::panic::catch_panic;
use super::{RequestHead, RequestMeta};
use crate::admission::{Admission, admit};
use crate::cache::{Changed, End, Entered, Entering, Follower, Outcome, Refresh, TAGS, Used, enter};
use crate::connection::ConnectionState;
use crate::worker::{Route, WorkerGeneration, WorkerState};
use crate::{Application, Params, Priority, Request, Response, Worker};

/// The application should answer by the deadline. After this much more the server answers instead.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// What becomes of a request that has met the cache of its route.
pub(super) enum Met {
    Pass,
    Answered(Box<Response>),
    Waits(Follower),
}

/// Looks a request up in the cache of its route.
#[allow(clippy::too_many_arguments, reason = "a struct of them would copy some hundred bytes once more")]
pub(super) fn meet<A: Application>(
    generation: &WorkerGeneration<A>,
    route: &Route,
    meta: &mut RequestMeta,
    parts: &mut Parts,
    params: &Params,
    has_body: bool,
    conn: &ConnectionState,
    followed: Option<(End, u8)>,
) -> Met {
    let Some(cache) = &route.cache else {
        if generation.shared.all_caches.is_some() {
            let changed = Changed::by(&parts.method, &parts.uri, &parts.headers);
            meta.cache = changed.map(|changed| Box::new(CachePart::Changes(changed)));
        }
        return Met::Pass;
    };
    if let Some(changed) = Changed::by(&parts.method, &parts.uri, &parts.headers) {
        meta.cache = Some(Box::new(CachePart::Changes(changed)));
        return Met::Pass;
    }
    let entering = Entering {
        has_identity: conn.certificate().is_some() || meta.pass.as_ref().is_some_and(|pass| pass.identity.is_some()),
        coding: meta.web.as_ref().and_then(|web| web.coding()),
        parts,
        has_body,
        followed,
    };
    let (used, met) = match enter(cache, entering) {
        Entered::Pass(used) => (used, Met::Pass),
        Entered::Respond(response, used) => (used, Met::Answered(response)),
        Entered::Follow(follower) => return Met::Waits(follower),
    };
    meta.cache = Some(Box::new(CachePart::Of(used, params.clone())));
    met
}

/// A request that waits for the response of another one.
pub(super) struct FollowWait {
    follower: Follower,
    /// When it goes on by itself.
    until: Instant,
    /// `None` once the wait has ended.
    pub(super) head: Option<(RequestHead, Incoming)>,
}

impl FollowWait {
    /// It waits for half of the time that it has, so that the rest may be enough to go on.
    pub(super) fn new(follower: Follower, head: RequestHead, body: Incoming) -> FollowWait {
        let now = Instant::now();
        let until = now + head.deadline.saturating_duration_since(now) / 2;
        FollowWait { follower, until, head: Some((head, body)) }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(End, u8)> {
        self.follower.wait.as_mut().poll(cx).map(|end| (end, self.follower.followed))
    }

    /// It has waited for long enough.
    pub(super) fn give_up(&self) -> (End, u8) {
        (End::GoAlone, self.follower.followed)
    }
}

/// Makes the application's response what is sent, and what is kept.
pub(super) fn finish<A: Application>(
    worker: &Rc<WorkerState<A>>,
    conn: &ConnectionState,
    generation: &Rc<WorkerGeneration<A>>,
    meta: &mut RequestMeta,
    mut response: Response,
) -> Response {
    if let Some(caches) = &generation.shared.all_caches {
        caches.obey(response.status, &mut response.headers);
    }
    match meta.cache.take().map(|part| *part) {
        None => {}
        Some(CachePart::Changes(changed)) => {
            changed.apply(&generation.shared.caches, response.status, &response.headers);
        }
        Some(CachePart::Of(used, params)) => {
            let (outcome, is_whole) = match used {
                Used::Bypass(bypass) => {
                    if let Some(web) = &meta.web {
                        web.finish(&mut response);
                    }
                    bypass.report(&mut response.headers);
                    (Outcome::Bypass, true)
                }
                Used::Fetch(fetch) => {
                    let is_encoded_here = meta.web.as_ref().is_some_and(|web| web.represent(&mut response));
                    let outcome;
                    (response, outcome) = fetch.settle(response, is_encoded_here);
                    (outcome, false)
                }
                Used::Sent { outcome, refresh: None } => (outcome, false),
                Used::Sent { outcome, refresh: Some(refresh) } => {
                    begin_refresh(worker, conn, generation, meta, *refresh, params);
                    (outcome, false)
                }
            };
            if let Some(web) = meta.web.as_ref().filter(|_| !is_whole) {
                web.deliver(&mut response);
            }
            meta.cached = Some(outcome);
            if let Some(route) = &meta.route {
                route.stats.cached(outcome);
            }
            response.headers.remove(TAGS);
            return response;
        }
    }
    if let Some(web) = &meta.web {
        web.finish(&mut response);
    }
    if generation.shared.all_caches.is_some() {
        response.headers.remove(TAGS);
    }
    response
}

/// Sends a request in the background, unless the server has more urgent things to do.
#[cold]
fn begin_refresh<A: Application>(
    worker: &Rc<WorkerState<A>>,
    conn: &ConnectionState,
    generation: &Rc<WorkerGeneration<A>>,
    meta: &RequestMeta,
    refresh: Refresh,
    params: Params,
) {
    let Some(route) = meta.route.clone() else { return };
    if worker.run_queue.is_active() || worker.memory.refuses(Priority::Background) {
        return;
    }
    let Admission::Admitted(permit) = admit(&route.limiters, Priority::Background) else { return };
    let start = Instant::now();
    let Refresh { uri, version, headers, fetch } = refresh;
    let web = meta.web.as_ref().map(|web| web.again());
    let deadline = start + route.timeout;
    let request = Request {
        id: worker.next_request_id(),
        known_id: None,
        route: route.index,
        method: Method::GET,
        uri,
        version,
        params,
        headers,
        body: bytes::Bytes::new(),
        upload: None,
        remote: meta.remote(conn),
        start,
        deadline,
        priority: Priority::Background,
        identity: meta.pass.as_ref().and_then(|pass| pass.identity.clone()),
        certificate: conn.certificate().cloned(),
        trace: None,
        can_upgrade: false,
        permit,
    };
    let generation = generation.clone();
    tokio::task::spawn_local(async move {
        let Some(future) = catch_panic(|| generation.app.handle(request)) else {
            route.stats.panicked();
            return;
        };
        let mut future = pin!(future);
        let answered = poll_fn(|cx| match catch_panic(|| future.as_mut().poll(cx)) {
            Some(polled) => polled.map(Some),
            None => Poll::Ready(None),
        });
        let mut response = match timeout_at(deadline + GRACE, answered).await {
            Ok(Some(response)) => response,
            Ok(None) => return route.stats.panicked(),
            Err(_) => return,
        };
        if let Some(caches) = &generation.shared.all_caches {
            caches.obey(response.status, &mut response.headers);
        }
        let is_encoded_here = web.is_some_and(|web| web.represent(&mut response));
        let (mut response, _) = fetch.settle(response, is_encoded_here);
        if response.body.is_stream() {
            // It is kept when it has ended, and nobody else reads it.
            let all =
                async { while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut response.body).poll_frame(cx)).await {} };
            let _ = timeout_at(Instant::now() + route.timeout, all).await;
        }
    });
}
