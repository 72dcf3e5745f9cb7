//! The policies of a call in their order, outermost first: circuit breaker, the operation's limit, retry, hedge, and for
//! each attempt the upstream's limit, the choice of an endpoint, the attempt's timeout, the transport.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use fanin_config::{Hedge, Retry};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::attempt_record::{AttemptRecord, is_upstream_failure};
use super::exchanged;
use super::streamed::{BodySlot, StreamedCall};
use crate::attempt_log::AttemptOutcome;
use crate::call_options::CallOptions;
use crate::error::{ErrorKind, Failure};
use crate::limiter::{LimitReached, Limiter, Permit, ReusablePermit};
use crate::metrics::Extra;
use crate::policy::breaker::{Admission, Probe};
use crate::policy::load_balancing::InFlight;
use crate::policy::retry;
use crate::request::CallContext;
use crate::transport::attempt::{Attempt, Phase, Prepared, Received};
use crate::transport::upload::UploadSlot;
use crate::worker::WorkerUpstream;

/// What all attempts of a call have in common.
pub(crate) struct Call<'a> {
    pub local: &'a Rc<WorkerUpstream>,
    pub context: &'a CallContext,
    pub options: &'a CallOptions,
    /// The clock is read only at a call's start, after waits, and at its end.
    pub started: Instant,
    pub deadline: Instant,
    pub phase: &'a Cell<Phase>,
    /// Where the body goes if it is not collected.
    pub slot: Option<&'a BodySlot>,
    /// The request's body if it is not collected. It can be sent once.
    pub upload: Option<&'a Rc<UploadSlot>>,
    /// Attempts begun.
    pub attempts: Cell<u32>,
    /// When the next attempt was wanted, if a log of attempts is kept.
    pub wanted: Cell<Instant>,
}

impl<'a> Call<'a> {
    pub async fn run(&self, request: &Prepared) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        let safe = self.context.safe || request.method.is_safe();
        if self.slot.is_some() || self.upload.is_some() {
            return Box::pin(self.run_streamed(request, safe)).await;
        }
        let admission = match &upstream.policies.breaker {
            None => Admission::Normal,
            Some(policy) => upstream.policy_state.breaker.admit(policy)?,
        };
        self.local.call_started();
        let _own_place = match &self.options.limit {
            None => None,
            Some(limit) => Some(Box::pin(self.operation_permit(limit)).await?),
        };
        if let Admission::Probe(probe) = admission {
            return Box::pin(self.probe(request, safe, probe)).await;
        }
        let used = Cell::new(None);
        let result = match &self.options.hedge {
            // With one endpoint, half of the timeout passes only if it does not answer, and then it would not answer
            // the hedge.
            Some(policy) if safe && !(matches!(policy, Hedge::Half) && self.local.endpoints() < 2) => {
                Box::pin(self.with_hedge(*policy, request, &used)).await
            }
            _ => self.attempt(request, safe, None, &used).await,
        };
        let Some(policy) = &self.options.retry else { return result };
        if !retry::is_worth_it(&result, safe) {
            return result;
        }
        Box::pin(self.again(request, safe, &used, policy, result)).await
    }

    /// The same for a streamed answer or request: without a hedge, because one of two bodies would be thrown away. Its permits last until the body
    /// ends.
    async fn run_streamed(&self, request: &Prepared, safe: bool) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        let admission = match &upstream.policies.breaker {
            None => Admission::Normal,
            Some(policy) => upstream.policy_state.breaker.admit(policy)?,
        };
        self.local.call_started();
        let own = match &self.options.limit {
            None => None,
            Some(limit) => Some((self.operation_permit(limit).await?, limit)),
        };
        let used = Cell::new(None);
        let result = match (admission, &self.options.retry) {
            (Admission::Probe(probe), _) => self.probe(request, safe, probe).await,
            (Admission::Normal, policy) => {
                let result = self.attempt(request, safe, None, &used).await;
                match policy {
                    Some(policy) if retry::is_worth_it(&result, safe) => {
                        self.again(request, safe, &used, policy, result).await
                    }
                    _ => result,
                }
            }
        };
        if let (Ok(_), Some(slot), Some((permit, limit))) = (&result, self.slot, own) {
            slot.hold(permit.own(limit));
        }
        result
    }

    /// The one call that tests an upstream whose breaker is open.
    async fn probe(&self, request: &Prepared, safe: bool, probe: Probe<'_>) -> Result<Received, Failure> {
        let result = self.attempt(request, safe, None, &Cell::new(None)).await;
        match is_upstream_failure(&result) {
            Some(bad) => probe.end(!bad),
            // It shows nothing about the upstream, so the next call is the probe.
            None => drop(probe),
        }
        result
    }

    /// Acquires a permit of the operation's own limit.
    async fn operation_permit(&self, limit: &'a Limiter) -> Result<Permit<'a>, Failure> {
        self.phase.set(Phase::Waiting);
        match limit.try_acquire() {
            Some(permit) => Ok(permit),
            None => limit.acquire(self.context.request_started).await.map_err(|full| refused(limit, full)),
        }
    }

    /// Sends further attempts. A function of its own, so that a call that succeeds at once does not carry its state.
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
            let is_lost = self.upload.is_some_and(|upload| upload.is_taken());
            if is_lost || !retry::is_worth_it(&result, safe) {
                break;
            }
            let elsewhere = next == 1 && self.local.endpoints() > 1;
            let pause = if elsewhere { Duration::ZERO } else { retry::pause(policy, next, self.local.random()) };
            let now = Instant::now();
            if now + pause >= self.deadline || !upstream.policy_state.breaker.is_closed() {
                break;
            }
            // An endpoint that was not reached has no load from the retry, and the retry goes to another one.
            let free = elsewhere && matches!(&result, Err(failure) if failure.unsent);
            if !free && !upstream.policy_state.retry_budget.take(policy.floor, now) {
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
        let latencies = self.options.latencies.as_ref().unwrap_or(&upstream.policy_state.latencies);
        let Some(delay) = latencies.delay(policy, self.deadline.saturating_duration_since(Instant::now())) else {
            return self.attempt(request, true, None, used).await;
        };
        let first = self.attempt(request, true, None, used);
        tokio::pin!(first);
        if let Ok(result) = timeout(delay, &mut first).await {
            return result;
        }
        let floor = self.options.retry.as_ref().map_or(0.0, |policy| policy.floor);
        // A hedge does not wait for a permit, and takes from the retry budget only if it has one.
        let permit = upstream.limit.try_acquire().map(|permit| ReusablePermit::of(&upstream.limit, permit));
        let affordable = permit.is_some() && upstream.policy_state.retry_budget.take(floor, Instant::now());
        let (Some(permit), true) = (permit, affordable) else { return first.await };
        self.local.metrics.count(Extra::Hedged);
        let avoid = used.get();
        let second = self.attempt_with(permit, None, request, true, avoid, used);
        tokio::pin!(second);
        let (result, by_hedge) = tokio::select! {
            biased;
            result = &mut first => (result, false),
            result = &mut second => (result, true),
        };
        // A failure does not win while the other attempt may still succeed.
        let (result, by_hedge) = match (is_upstream_failure(&result), by_hedge) {
            (Some(false), _) => (result, by_hedge),
            (_, false) => (second.await, true),
            (_, true) => (first.await, false),
        };
        if by_hedge {
            self.local.metrics.count(Extra::HedgeWon);
        }
        result
    }

    /// One attempt, with a permit of the upstream's limit.
    async fn attempt(
        &self,
        request: &Prepared,
        safe: bool,
        avoid: Option<u64>,
        used: &Cell<Option<u64>>,
    ) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        self.phase.set(Phase::Waiting);
        if self.context.attempts.is_some() && used.get().is_some() {
            self.wanted.set(Instant::now());
        }
        let age = self.context.request_started;
        let (permit, begun) = match ReusablePermit::try_take(&upstream.limit, age) {
            // If nothing has been waited for, the call's start is the attempt's start.
            Some(permit) => (permit, (used.get().is_none() && self.options.limit.is_none()).then_some(self.started)),
            None => {
                let permit = Box::pin(upstream.limit.acquire(age)).await;
                let permit = permit.map_err(|full| refused(&upstream.limit, full))?;
                (ReusablePermit::of(&upstream.limit, permit), None)
            }
        };
        self.attempt_with(permit, begun, request, safe, avoid, used).await
    }

    async fn attempt_with(
        &self,
        place: ReusablePermit<'a>,
        begun: Option<Instant>,
        request: &Prepared,
        safe: bool,
        avoid: Option<u64>,
        used: &Cell<Option<u64>>,
    ) -> Result<Received, Failure> {
        let upstream = &*self.local.upstream;
        if let Some(slot) = self.slot {
            slot.clear();
        }
        let begun = begun.filter(|_| self.local.endpoints() > 0);
        let worker_endpoint = self.local.choose_endpoint(avoid, self.phase).await?;
        used.set(Some(worker_endpoint.endpoint.id));
        // A single endpoint needs no load balancing, and so no count.
        let on_endpoint = (self.local.endpoints() > 1).then(|| worker_endpoint.endpoint.load.begin());
        let record = AttemptRecord::begin(
            self.local,
            self.options,
            self.deadline,
            &worker_endpoint.endpoint,
            begun.unwrap_or_else(Instant::now),
        );
        let number = self.attempts.replace(self.attempts.get() + 1);
        let noted = self.context.attempts.as_ref().map(|log| {
            // A hedge does not wait.
            let wanted =
                if self.wanted.get() <= record.begun { self.wanted.replace(record.begun) } else { record.begun };
            let first = self.context.trace.as_ref().map_or(0, |of| of.first);
            let is_streamed = self.slot.is_some() || self.upload.is_some();
            let operation = self.context.operation;
            let exchange = log.keeps_exchanges().then(|| exchanged::begin(request, operation, safe, is_streamed));
            log.begin(first, number, wanted, record.begun, worker_endpoint.endpoint.address.to_string(), exchange)
        });
        let attempt = Attempt {
            request,
            noted: noted.as_ref(),
            trace: self.context.trace.as_ref().map(|of| (&*of.request, of.attempt(number))),
            endpoint: &worker_endpoint.endpoint,
            config: upstream.config(),
            services: upstream.services().map(|services| &**services),
            age: self.context.request_started,
            begun: record.begun,
            deadline: self
                .options
                .attempt_timeout
                .map_or(self.deadline, |limit| self.deadline.min(record.begun + limit)),
            safe,
            operation: self.context.operation,
            max_answer: self.slot.map_or(self.options.max_answer, |slot| slot.max(self.options)),
            chunk_timeout: self.options.chunk_timeout,
            // The time for a head says nothing about the time for a streamed body.
            timeout_header: upstream.config().timeout_header.as_ref().filter(|_| self.slot.is_none()),
            source: self.slot.map(|slot| &slot.source),
            stream_timeout: self.slot.and_then(BodySlot::timeout),
            upload: self.upload,
            phase: self.phase,
            metrics: &self.local.metrics,
        };
        let result = match self.options.attempt_timeout {
            None => worker_endpoint.connections.send(&attempt).await,
            Some(limit) => {
                let sent = Box::pin(timeout_at(record.begun + limit, worker_endpoint.connections.send(&attempt))).await;
                sent.unwrap_or_else(|_| Err(attempt_timed_out(limit, self.phase)))
            }
        };
        let begun = attempt.begun;
        if let Some(noted) = noted {
            let outcome = match &result {
                Ok(received) => AttemptOutcome::Status(received.status.as_u16()),
                Err(failure) => AttemptOutcome::Failed(failure.kind.as_str()),
            };
            noted.end(outcome, || exchanged::end(&result, self.slot.is_some() || self.upload.is_some()));
        }
        record.end(&result);
        if let (Some(slot), Ok(_)) = (self.slot, &result) {
            let is_counted = on_endpoint.map(InFlight::keep).is_some();
            let call = StreamedCall {
                local: self.local.clone(),
                endpoint: worker_endpoint.endpoint.clone(),
                _permit: place.own(),
                operation_permit: None,
                is_counted,
            };
            // A gRPC server has got the time for the whole call with its request.
            let is_grpc = upstream.services().is_some();
            slot.bind(call, self.options, if is_grpc { begun } else { Instant::now() });
        }
        result
    }
}

#[cold]
fn refused(limit: &Limiter, full: LimitReached) -> Failure {
    let LimitReached { in_flight, waiting } = full;
    let max = limit.max();
    Failure::new(ErrorKind::Limit, format!("{in_flight} calls in flight (limit {max}) and {waiting} waiting"))
}

#[cold]
fn attempt_timed_out(limit: Duration, phase: &Cell<Phase>) -> Failure {
    Failure::new(
        ErrorKind::Timeout,
        format!("the attempt timed out after {} ms: {}", limit.as_millis(), phase.get().describe()),
    )
}
