//! The work behind flights and caches: one call, its answer kept if it may be, an old answer where the upstream fails.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_upstream::shared::{
    Body, CacheLookup, FlightRole, Follower, Leader, OperationMetrics, OperationShared, ParsedAnswer, RequestKey,
    SharedResult,
};
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Fault, Request, Upstream};
use futures_util::future::join;
use http::{Method, StatusCode};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::Work;
use super::keyed::{KeyedCall, is_server_failure};
use crate::caller::{CallFuture, Caller};
use crate::inflight::{Checked, InFlight};

/// A wait for a flight.
type FlightFuture = Pin<Box<dyn Future<Output = Option<SharedResult>>>>;

/// Starts that a call makes when the flights that it joins come to nothing. A flight does only when its worker ends.
const MAX_STARTS: usize = 3;

/// A call that is cached or shared: all that its work needs, whoever does it.
pub(crate) struct Shareable {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) shared: Arc<OperationShared>,
    pub(crate) key: RequestKey,
    /// Statuses besides 2xx that are answers, by the operation.
    pub(crate) ok: Vec<StatusCode>,
    /// Whether identical calls in flight share one.
    pub(crate) single_flight: bool,
    /// Whether work can be a task of its own here. Where it cannot, the leader does it; if the leader leaves, its followers
    /// start over.
    pub(crate) can_spawn: bool,
    /// Makes the call anew.
    pub(crate) make_call: CallFactory,
    /// Of a call whose items are kept each by itself.
    pub(crate) keyed: Option<Rc<KeyedCall>>,
}

impl Shareable {
    /// What the cache has; a stale answer is fetched anew in the background.
    pub(crate) fn lookup(self: &Rc<Self>) -> Option<Arc<ParsedAnswer>> {
        match self.shared.cache.as_ref()?.lookup(&self.key) {
            CacheLookup::Fresh(ready) => Some(ready),
            // Nobody could fetch the new one beside the flow.
            CacheLookup::Stale(_) if !self.can_spawn => None,
            CacheLookup::Stale(ready) => {
                if let FlightRole::Leader(lead) = self.shared.single_flight.join(&self.key) {
                    let this = self.clone();
                    spawn_local(async move {
                        // Nobody waits for it, and yet it is wanted.
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

    /// A fresh answer that came while this call was on its way to become the leader.
    fn lookup_again(&self) -> Option<Arc<ParsedAnswer>> {
        if let Some(keyed) = &self.keyed {
            return keyed.lookup_again().map(Arc::new);
        }
        self.shared.cache.as_ref()?.lookup_fresh(&self.key)
    }

    /// Does the work, as a task of its own if possible. The outcome is what the flight has; it is only waited for here.
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

    /// Leads a flight, and waits for it until `deadline`.
    pub(crate) fn lead_until(self: Rc<Self>, lead: Leader, work: Work, deadline: Instant) -> Work {
        let first = self.lead(lead, work);
        Box::pin(self.wait(first, deadline))
    }

    /// Waits for another's flight until `deadline`.
    pub(crate) fn follow_until(self: Rc<Self>, follow: Follower, deadline: Instant) -> Work {
        Box::pin(self.wait(Box::pin(follow.outcome()), deadline))
    }

    /// Waits for a flight; starts over if it comes to nothing.
    async fn wait(self: Rc<Self>, mut flight: FlightFuture, deadline: Instant) -> SharedResult {
        let started = Instant::now();
        for _ in 0..MAX_STARTS {
            match timeout_at(deadline, flight).await {
                Ok(Some(outcome)) => return outcome,
                Err(_) => return Err(timed_out(self.upstream.name(), started)),
                Ok(None) => {
                    flight = match self.shared.single_flight.join(&self.key) {
                        FlightRole::Follower(follow) => Box::pin(follow.outcome()),
                        FlightRole::Leader(lead) => self.lead(lead, (self.make_call)()),
                    };
                }
            }
        }
        Err(CallError::cancelled(self.upstream.name()))
    }

    /// The work with what the cache does about its outcome.
    pub(crate) async fn run_and_cache(&self, work: Work) -> SharedResult {
        let started = Instant::now();
        let outcome = work.await;
        let Some(cache) = &self.shared.cache else { return outcome };
        match outcome {
            Ok(ready) if is_server_failure(ready.answer.status) => {
                Ok(cache.lookup_if_error(&self.key).unwrap_or(ready))
            }
            Ok(ready) => {
                let accepted = ready.answer.status.is_success() || self.ok.contains(&ready.answer.status);
                cache.store(&self.key, &ready, accepted, started);
                Ok(ready)
            }
            Err(error) if error.kind == ErrorKind::Cancelled => Err(error),
            Err(error) => cache.lookup_if_error(&self.key).ok_or(error),
        }
    }

    /// Joins the flight of this call, as a follower or as the one who has to start it.
    pub(crate) fn join(&self) -> FlightRole {
        let joined = self.shared.single_flight.join(&self.key);
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
        detail: "the call timed out: waiting for a request that it shares".into(),
    }
}

/// Waits for work that has more time than this call.
pub(crate) fn with_deadline(upstream: &Arc<str>, deadline: Instant, work: Work) -> Work {
    let upstream = upstream.clone();
    Box::pin(async move {
        let started = Instant::now();
        timeout_at(deadline, work).await.unwrap_or_else(|_| Err(timed_out(&upstream, started)))
    })
}

/// One call, its body read.
pub(crate) fn call(
    caller: &Rc<dyn Caller>,
    upstream: &Arc<Upstream>,
    request: Request,
    context: CallContext,
    ok: &[StatusCode],
    max_depth: usize,
) -> Work {
    let head = request.method == Method::HEAD;
    let call: CallFuture = caller.call(upstream, request, context);
    let (name, ok) = (upstream.name().clone(), ok.to_vec());
    Box::pin(async move {
        let (_, result) = InFlight::new(0, call, head, max_depth).await;
        let (answer, checked) = result?;
        ready(&name, answer, checked, &ok).map(Arc::new)
    })
}

fn ready(upstream: &Arc<str>, answer: Answer, checked: Checked, ok: &[StatusCode]) -> Result<ParsedAnswer, CallError> {
    let accepted = answer.status.is_success() || ok.contains(&answer.status);
    match checked {
        Ok(body) => Ok(ParsedAnswer { answer, body }),
        Err(error) if accepted => Err(CallError::decode(upstream, &answer, error.to_string())),
        // Of a failure nobody reads more than the status.
        Err(_) => Ok(ParsedAnswer { answer, body: Body::Text }),
    }
}

/// The context of work that is nobody's own: it has the operation's time, whoever asked first.
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

/// A call that shares nothing but leaves its answer for others.
pub(crate) fn unshared(shareable: Rc<Shareable>, work: Work) -> Work {
    Box::pin(async move { shareable.run_and_cache(work).await })
}

/// What [`Shareable::start`] makes.
pub(crate) type CallFactory = Box<dyn Fn() -> Work>;
