//! A call on its way through the policies, outermost first: breaker, retry, hedge, then for each try the limit, the choice
//! of an endpoint, the try's own time, the transport.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::{Hedge, Retry};
use http::StatusCode;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure};
use crate::limit::{Full, Limit, Permit, Place};
use crate::metrics::Extra;
use crate::policy::breaker::{Pass, Probe};
use crate::policy::retry;
use crate::request::CallContext;
use crate::terms::Terms;
use crate::transport::{Attempt, Phase, Prepared, Received};
use crate::worker::Local;

/// What all tries of a call have in common.
pub(crate) struct Call<'a> {
    pub local: &'a Rc<Local>,
    pub context: &'a CallContext,
    pub terms: &'a Terms,
    /// The clock is read at a call's start and at its end; what comes between and does not wait goes by these.
    pub started: Instant,
    pub deadline: Instant,
    pub phase: &'a Cell<Phase>,
}

impl<'a> Call<'a> {
    pub async fn run(&self, request: &Prepared) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        let safe = self.context.safe || request.method.is_safe();
        let pass = match &upstream.policies.breaker {
            None => Pass::Free,
            Some(policy) => upstream.guards.breaker.admit(policy)?,
        };
        self.local.call_begins();
        let _own_place = match &self.terms.limit {
            None => None,
            Some(limit) => Some(Box::pin(self.own_place(limit)).await?),
        };
        if let Pass::Probe(probe) = pass {
            return Box::pin(self.probe(request, safe, probe)).await;
        }
        let used = Cell::new(None);
        let result = match &self.terms.hedge {
            // Half of the time is over only when an endpoint does not answer, and the same one would not then either.
            Some(policy) if safe && !(matches!(policy, Hedge::Half) && self.local.endpoints() < 2) => {
                Box::pin(self.with_hedge(*policy, request, &used)).await
            }
            _ => self.attempt(request, safe, None, &used).await,
        };
        let Some(policy) = &self.terms.retry else { return result };
        if !retry::is_worth_it(&result, safe) {
            return result;
        }
        Box::pin(self.again(request, safe, &used, policy, result)).await
    }

    /// The one call that finds out whether the upstream is well again.
    async fn probe(&self, request: &Prepared, safe: bool, probe: Probe<'_>) -> Result<Received, Failure> {
        let result = self.attempt(request, safe, None, &Cell::new(None)).await;
        match is_bad(&result) {
            Some(bad) => probe.end(!bad),
            // It says nothing about the upstream: the next call is the probe.
            None => drop(probe),
        }
        result
    }

    /// A place below the operation's own limit.
    async fn own_place(&self, limit: &'a Limit) -> Result<Permit<'a>, Failure> {
        self.phase.set(Phase::Waiting);
        match limit.try_enter() {
            Some(place) => Ok(place),
            None => limit.enter(self.context.request_started).await.map_err(|full| refused(limit, full)),
        }
    }

    /// Further tries, apart from the first so that a call that goes well does not carry their state.
    async fn again(
        &self,
        request: &Prepared,
        safe: bool,
        used: &Cell<Option<u64>>,
        policy: &Retry,
        mut result: Result<Received, Failure>,
    ) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        for next in 1..=policy.max {
            if !retry::is_worth_it(&result, safe) {
                break;
            }
            let elsewhere = next == 1 && self.local.endpoints() > 1;
            let pause = if elsewhere { Duration::ZERO } else { retry::pause(policy, next, self.local.chance()) };
            let now = Instant::now();
            if now + pause >= self.deadline || !upstream.guards.breaker.is_closed() {
                break;
            }
            // Who was not reached bears no load from a second try, and another endpoint is what there are several for.
            let free = elsewhere && matches!(&result, Err(failure) if failure.unsent);
            if !free && !upstream.guards.budget.take(policy.floor, now) {
                self.local.metrics.count(Extra::RetryDenied);
                break;
            }
            if !pause.is_zero() {
                self.phase.set(Phase::Pausing);
                sleep(pause).await;
            }
            self.local.metrics.count(Extra::Retried);
            result = self.attempt(request, safe, used.get(), used).await;
        }
        result
    }

    async fn with_hedge(
        &self,
        policy: Hedge,
        request: &Prepared,
        used: &Cell<Option<u64>>,
    ) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        let latencies = self.terms.latencies.as_ref().unwrap_or(&upstream.guards.latencies);
        let Some(delay) = latencies.delay(policy, self.deadline.saturating_duration_since(Instant::now())) else {
            return self.attempt(request, true, None, used).await;
        };
        let first = self.attempt(request, true, None, used);
        tokio::pin!(first);
        if let Ok(result) = timeout(delay, &mut first).await {
            return result;
        }
        let floor = self.terms.retry.as_ref().map_or(0.0, |policy| policy.floor);
        // A place is taken only if one is free at once, and a hedge is paid for only if it has its place.
        let place = upstream.limit.try_enter().map(|permit| Place::of(&upstream.limit, permit));
        let affordable = place.is_some() && upstream.guards.budget.take(floor, Instant::now());
        let (Some(place), true) = (place, affordable) else { return first.await };
        self.local.metrics.count(Extra::Hedged);
        let avoid = used.get();
        let second = self.attempt_in(place, None, request, true, avoid, used);
        tokio::pin!(second);
        let (result, by_hedge) = tokio::select! {
            biased;
            result = &mut first => (result, false),
            result = &mut second => (result, true),
        };
        // A failure does not win while the other may still answer.
        let (result, by_hedge) = match (is_bad(&result), by_hedge) {
            (Some(false), _) => (result, by_hedge),
            (_, false) => (second.await, true),
            (_, true) => (first.await, false),
        };
        if by_hedge {
            self.local.metrics.count(Extra::HedgeWon);
        }
        result
    }

    /// One try, with a place below the limit.
    async fn attempt(
        &self,
        request: &Prepared,
        safe: bool,
        avoid: Option<u64>,
        used: &Cell<Option<u64>>,
    ) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        self.phase.set(Phase::Waiting);
        let age = self.context.request_started;
        let (place, begun) = match Place::try_take(&upstream.limit, age) {
            // The first try of a call that has not waited for anything, its operation's limit included.
            Some(place) => (place, (used.get().is_none() && self.terms.limit.is_none()).then_some(self.started)),
            None => {
                let place = Box::pin(upstream.limit.enter(age)).await;
                let place = place.map_err(|full| refused(&upstream.limit, full))?;
                (Place::of(&upstream.limit, place), None)
            }
        };
        self.attempt_in(place, begun, request, safe, avoid, used).await
    }

    async fn attempt_in(
        &self,
        _place: Place<'a>,
        begun: Option<Instant>,
        request: &Prepared,
        safe: bool,
        avoid: Option<u64>,
        used: &Cell<Option<u64>>,
    ) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        let begun = begun.filter(|_| self.local.endpoints() > 0);
        let reach = self.local.choose(avoid, self.phase).await?;
        used.set(Some(reach.endpoint.id));
        // With one endpoint there is nothing to choose, and nothing to count for it.
        let _on_endpoint = (self.local.endpoints() > 1).then(|| reach.endpoint.load.begin());
        let trial = Trial::begin(self, &reach.endpoint, begun.unwrap_or_else(Instant::now));
        let attempt = Attempt {
            request,
            endpoint: &reach.endpoint,
            config: upstream.config(),
            services: upstream.services().map(|services| &**services),
            age: self.context.request_started,
            begun: trial.begun,
            deadline: self.terms.attempt_timeout.map_or(self.deadline, |limit| self.deadline.min(trial.begun + limit)),
            safe,
            max_answer: self.terms.max_answer,
            chunk_timeout: self.terms.chunk_timeout,
            timeout_header: upstream.config().timeout_header.as_ref(),
            phase: self.phase,
            metrics: &self.local.metrics,
        };
        let result = match self.terms.attempt_timeout {
            None => reach.connections.send(&attempt).await,
            Some(limit) => {
                let sent = Box::pin(timeout_at(trial.begun + limit, reach.connections.send(&attempt))).await;
                sent.unwrap_or_else(|_| Err(attempt_timed_out(limit, self.phase)))
            }
        };
        trial.end(&result);
        result
    }
}

#[cold]
fn refused(limit: &Limit, full: Full) -> Failure {
    let Full { in_flight, waiting } = full;
    let max = limit.max();
    Failure::new(ErrorKind::Limit, format!("{in_flight} calls in flight (limit {max}) and {waiting} waiting"))
}

#[cold]
fn attempt_timed_out(limit: Duration, phase: &Cell<Phase>) -> Failure {
    Failure::new(ErrorKind::Timeout, format!("the try's {} ms are over: {}", limit.as_millis(), phase.get().describe()))
}

/// Whether a try's outcome speaks against the upstream; `None` if it says nothing about it.
fn is_bad(result: &Result<Received, Failure>) -> Option<bool> {
    match result {
        // That it does not know a method says nothing of its state.
        Ok(received) => Some(received.status.is_server_error() && received.status != StatusCode::NOT_IMPLEMENTED),
        Err(failure) => match failure.kind {
            ErrorKind::Refused | ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Protocol => {
                (failure.fault == crate::error::Fault::Upstream).then_some(true)
            }
            // It answered, too much of a good thing.
            ErrorKind::TooLarge => Some(false),
            ErrorKind::Limit | ErrorKind::Breaker | ErrorKind::Status | ErrorKind::Decode | ErrorKind::Cancelled => {
                None
            }
        },
    }
}

/// One try at one endpoint, for all who learn from it. A try that is dropped at the call's deadline counts as a timeout. One that
/// is dropped earlier, because a hedge was faster or nobody needs it any more, says nothing about the upstream; if it had taken
/// long by then, it speaks against its endpoint.
struct Trial<'a> {
    local: &'a Local,
    terms: &'a Terms,
    endpoint: &'a Arc<Endpoint>,
    begun: Instant,
    deadline: Instant,
    ended: bool,
}

impl<'a> Trial<'a> {
    fn begin(call: &Call<'a>, endpoint: &'a Arc<Endpoint>, begun: Instant) -> Trial<'a> {
        Trial { local: call.local, terms: call.terms, endpoint, begun, deadline: call.deadline, ended: false }
    }

    fn end(mut self, result: &Result<Received, Failure>) {
        self.ended = true;
        match is_bad(result) {
            Some(false) => self.good(result.as_ref().map_or_else(|_| Instant::now(), |received| received.at)),
            Some(true) => self.bad(matches!(result, Err(failure) if failure.kind == ErrorKind::Timeout)),
            None => {}
        }
    }

    fn good(&self, now: Instant) {
        let upstream = &*self.local.upstream;
        let policies = &upstream.policies;
        let latency = now.saturating_duration_since(self.begun);
        self.local.attempt_succeeded(latency);
        let many = self.local.endpoints() > 1;
        if many && policies.ejection {
            self.endpoint.health.succeeded();
        }
        if many {
            self.endpoint.load.observe(latency, now);
        }
        if let Some(Hedge::Percentile(percentile)) = self.terms.hedge {
            self.terms.latencies.as_ref().unwrap_or(&upstream.guards.latencies).observe(latency, percentile);
        }
        if let (Some(bounds), Some(gradient)) = (&policies.adaptive, &upstream.guards.gradient)
            && let Some(limit) = gradient.answered(latency, upstream.limit.load().0, now, bounds)
        {
            upstream.limit.resize(limit, upstream.config().max_waiting);
        }
    }

    #[cold]
    fn bad(&self, timed_out: bool) {
        let upstream = &*self.local.upstream;
        let policies = &upstream.policies;
        let now = Instant::now();
        self.bad_endpoint(now);
        if timed_out
            && let (Some(bounds), Some(gradient)) = (&policies.adaptive, &upstream.guards.gradient)
            && let Some(limit) = gradient.timed_out(now, bounds)
        {
            upstream.limit.resize(limit, upstream.config().max_waiting);
        }
        self.local.attempt_failed();
    }

    fn bad_endpoint(&self, now: Instant) {
        if self.local.endpoints() < 2 {
            return;
        }
        let upstream = &*self.local.upstream;
        self.endpoint.load.observe(now - self.begun, now);
        if upstream.policies.ejection && self.endpoint.health.failed(now, || self.local.may_eject()) {
            tracing::warn!(upstream = %upstream.name(), endpoint = %self.endpoint.address, "endpoint left out: it fails");
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let now = Instant::now();
        // A request that comes with next to no time left must not speak against an upstream that had no chance.
        if !self.local.is_long(now - self.begun) {
            return;
        }
        if now >= self.deadline {
            self.bad(true);
        } else {
            self.bad_endpoint(now);
        }
    }
}
