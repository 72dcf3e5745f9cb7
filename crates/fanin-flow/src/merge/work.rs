//! Single-flight and the cache of whole answers: one call, cached if it may be, with a stale answer if the upstream fails.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::{Operation, Shape};
use fanin_upstream::shared::{
    Body, CacheLookup, FlightRole, Follower, Leader, Member, OperationMetrics, OperationShared, ParsedAnswer,
    RequestKey, SharedResult,
};
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Fault, Request, Upstream};
use futures_util::future::join;
use http::StatusCode;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::Work;
use super::keyed::{KeyedCall, is_server_failure};
use crate::answer::{BodyRule, UNREQUESTED_PART};
use crate::caller::{CallFuture, Caller};
use crate::inflight::{Checked, InFlight, without_body};
use crate::returns;

/// The wait for a flight; `None` if the flight was lost.
type FlightFuture = Pin<Box<dyn Future<Output = Option<SharedResult>>>>;

/// How often a call joins or leads a flight. A flight is lost only when its worker ends.
const MAX_STARTS: usize = 3;

/// A call with a cache or single-flight.
pub(crate) struct Shareable {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) shared: Arc<OperationShared>,
    pub(crate) key: RequestKey,
    /// The operation's statuses besides 2xx that count as success.
    pub(crate) ok: Vec<StatusCode>,
    /// Whether identical calls in flight share one request.
    pub(crate) single_flight: bool,
    /// Whether the work can be a task of its own. If not, the leader polls it; if the leader is cancelled, its followers start
    /// over.
    pub(crate) can_spawn: bool,
    /// Makes the call.
    pub(crate) make_call: CallFactory,
    /// The call, if it is recorded.
    pub(crate) member: Option<Member>,
    /// Set for operations with an item cache.
    pub(crate) keyed: Option<Rc<KeyedCall>>,
}

impl Shareable {
    /// The cached answer. A stale one is refreshed in the background.
    pub(crate) fn lookup(self: &Rc<Self>) -> Option<Arc<ParsedAnswer>> {
        match self.shared.cache.as_ref()?.lookup(&self.key) {
            CacheLookup::Fresh(ready) => Some(ready),
            // Without tasks there is no refresh in the background.
            CacheLookup::Stale(_) if !self.can_spawn => None,
            CacheLookup::Stale(ready) => {
                if let FlightRole::Leader(lead) = self.shared.single_flight.join(&self.key, None) {
                    let this = self.clone();
                    spawn_local(async move {
                        // A follower keeps the flight alive, although no call awaits it.
                        let _follower = lead.follow();
                        let work = (this.make_call)();
                        lead.run(this.run_and_cache(work)).await;
                    });
                }
                Some(ready)
            }
            CacheLookup::Miss => None,
        }
    }

    /// A fresh answer that was cached just before this call became the leader.
    fn lookup_again(&self) -> Option<Arc<ParsedAnswer>> {
        if let Some(keyed) = &self.keyed {
            return keyed.lookup_again().map(Arc::new);
        }
        self.shared.cache.as_ref()?.lookup_fresh(&self.key)
    }

    /// Leads a flight, as a task of its own if possible, and returns the wait for its outcome.
    fn lead(self: &Rc<Self>, lead: Leader, work: Work) -> FlightFuture {
        let this = self.clone();
        let follow = lead.follow();
        let flight = async move {
            let work = async {
                match this.lookup_again() {
                    Some(ready) => Ok(ready),
                    None => this.run_and_cache(work).await,
                }
            };
            lead.run(work).await;
        };
        if self.can_spawn {
            spawn_local(flight);
            return Box::pin(follow.outcome());
        }
        Box::pin(async move { join(flight, follow.outcome()).await.1 })
    }

    /// Leads a flight and awaits it until `deadline`.
    pub(crate) fn lead_until(self: Rc<Self>, lead: Leader, work: Work, deadline: Instant) -> Work {
        let first = self.lead(lead, work);
        Box::pin(self.wait(first, deadline))
    }

    /// Awaits another call's flight until `deadline`.
    pub(crate) fn follow_until(self: Rc<Self>, follow: Follower, deadline: Instant) -> Work {
        Box::pin(self.wait(Box::pin(follow.outcome()), deadline))
    }

    /// Awaits a flight; starts over if it is lost.
    async fn wait(self: Rc<Self>, mut flight: FlightFuture, deadline: Instant) -> SharedResult {
        let started = Instant::now();
        for _ in 0..MAX_STARTS {
            match timeout_at(deadline, flight).await {
                Ok(Some(outcome)) => return outcome,
                Err(_) => return Err(timed_out(self.upstream.name(), started)),
                Ok(None) => {
                    flight = match self.shared.single_flight.join(&self.key, self.member) {
                        FlightRole::Follower(follow) => Box::pin(follow.outcome()),
                        FlightRole::Leader(lead) => self.lead(lead, (self.make_call)()),
                    };
                }
            }
        }
        Err(CallError::cancelled(self.upstream.name()))
    }

    /// Runs the work, caches its answer, and replaces a failure by a stale answer if there is one.
    pub(crate) async fn run_and_cache(&self, work: Work) -> SharedResult {
        let started = Instant::now();
        let outcome = work.await;
        let Some(cache) = &self.shared.cache else { return outcome };
        match outcome {
            Ok(ready) if is_server_failure(ready.answer.status) => {
                Ok(cache.lookup_if_error(&self.key).unwrap_or(ready))
            }
            Ok(ready) => {
                let accepted = ready.answer.is_success() || self.ok.contains(&ready.answer.status);
                cache.store(&self.key, &ready, accepted, started);
                Ok(ready)
            }
            Err(error) if error.kind == ErrorKind::Cancelled => Err(error),
            Err(error) => cache.lookup_if_error(&self.key).ok_or(error),
        }
    }

    /// Joins the flight of this call, as its leader or as a follower.
    pub(crate) fn join(&self) -> FlightRole {
        let joined = self.shared.single_flight.join(&self.key, self.member);
        if matches!(joined, FlightRole::Follower(_)) {
            OperationMetrics::increment(&self.shared.metrics.joined);
        }
        joined
    }
}

#[cold]
fn timed_out(upstream: &Arc<str>, started: Instant) -> CallError {
    CallError {
        upstream: upstream.clone(),
        kind: ErrorKind::Timeout,
        fault: Fault::Upstream,
        retry: true,
        elapsed: started.elapsed(),
        detail: "timeout while waiting for a shared request".into(),
    }
}

/// Awaits work whose deadline may be later than this call's.
pub(crate) fn with_deadline(upstream: &Arc<str>, deadline: Instant, work: Work) -> Work {
    let upstream = upstream.clone();
    Box::pin(async move {
        let started = Instant::now();
        timeout_at(deadline, work).await.unwrap_or_else(|_| Err(timed_out(&upstream, started)))
    })
}

/// One call with its parsed body.
pub(crate) fn call(
    caller: &Rc<dyn Caller>,
    upstream: &Arc<Upstream>,
    request: Request,
    context: CallContext,
    operation: &Operation,
    max_depth: usize,
) -> Work {
    let (rule, name) = (BodyRule::of(&request.method, context.safe), context.operation);
    let call: CallFuture = caller.call(upstream, request, context);
    let (upstream, ok, returns) = (upstream.clone(), operation.ok.clone(), operation.returns.clone());
    Box::pin(async move {
        let (_, result) = InFlight::new(0, call, rule, max_depth).await;
        let (answer, checked) = result?;
        ready(&upstream, answer, checked, &ok, (returns.as_deref(), name)).map(Arc::new)
    })
}

fn ready(
    upstream: &Upstream,
    answer: Answer,
    checked: Checked,
    ok: &[StatusCode],
    (shape, operation): (Option<&Shape>, Option<u32>),
) -> Result<ParsedAnswer, CallError> {
    let accepted = answer.is_success() || ok.contains(&answer.status);
    if answer.unrequested_part && !accepted {
        return Err(upstream.unusable(&answer, UNREQUESTED_PART));
    }
    match without_body(checked, answer.status.is_success() && shape.is_some()) {
        Ok(body) => match shape.filter(|_| answer.status.is_success()) {
            Some(shape) => {
                let name = operation.and_then(|at| upstream.operation_name(at));
                match returns::mismatch(shape, &body, name.map(|name| &**name)) {
                    Some(problem) => Err(upstream.unusable(&answer, problem)),
                    None => Ok(ParsedAnswer { answer, body }),
                }
            }
            None => Ok(ParsedAnswer { answer, body }),
        },
        Err(error) if accepted => Err(upstream.unusable(&answer, error.to_string())),
        // An invalid body of a failure is ignored.
        Err(_) => Ok(ParsedAnswer { answer, body: Body::Text }),
    }
}

/// The context of shared work: it has the operation's timeout, not that of its first caller.
pub(crate) fn context(
    upstream: &Upstream,
    operation: usize,
    timeout: Option<Duration>,
    request_started: Instant,
) -> CallContext {
    let time = timeout.unwrap_or(upstream.config().timeout);
    let operation = u32::try_from(operation).ok();
    CallContext { request_started, timeout: Some(time), operation, ..CallContext::new(Instant::now() + time) }.safe()
}

/// A call without single-flight whose answer is cached.
pub(crate) fn unshared(shareable: Rc<Shareable>, work: Work) -> Work {
    Box::pin(async move { shareable.run_and_cache(work).await })
}

/// Makes the shared call. See [`Shareable::make_call`].
pub(crate) type CallFactory = Box<dyn Fn() -> Work>;
