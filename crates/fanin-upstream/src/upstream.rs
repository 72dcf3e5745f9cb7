//! An upstream and its call: the order of all policies in one place.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use fanin_config::UpstreamKind;
use tokio::time::{Instant, timeout_at};

use crate::call::Call;
use crate::deadlines::Deadline;
use crate::endpoint::Origin;
use crate::error::{BuildError, CallError, ErrorKind, Failure};
use crate::grpc::Services;
use crate::limit::Limit;
use crate::metrics::{Gauges, Observed, Outcome, Shard, UpstreamMetrics};
use crate::policy::Policies;
use crate::policy::adaptive::Gradient;
use crate::policy::breaker::Breaker;
use crate::policy::budget::Budget;
use crate::policy::hedge::Latencies;
use crate::request::{Answer, CallContext, Request};
use crate::resolve::Endpoints;
use crate::shared::{OperationShared, Snapshot};
use crate::terms::AllTerms;
use crate::transport::{Phase, Prepared, Received, content_encoding};
use crate::worker::WorkerClient;

/// A named backend service: its endpoints, its limit, its policies. Shared by all workers.
pub struct Upstream {
    /// Never used again in this process.
    pub(crate) id: u64,
    name: Arc<str>,
    config: fanin_config::Upstream,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) limit: Arc<Limit>,
    pub(crate) policies: Policies,
    pub(crate) terms: AllTerms,
    pub(crate) guards: Arc<Guards>,
    pub(crate) metrics: Arc<UpstreamMetrics>,
    /// What calls of each operation share, in the order of the configuration.
    operations: Vec<Arc<OperationShared>>,
    snapshot: Option<Arc<Snapshot>>,
    services: Option<Arc<Services>>,
    retired: AtomicBool,
}

/// What the policies know about an upstream, over all workers.
pub(crate) struct Guards {
    pub breaker: Breaker,
    pub budget: Budget,
    pub latencies: Latencies,
    pub gradient: Option<Gradient>,
}

impl Guards {
    fn new(policies: &Policies) -> Arc<Guards> {
        Arc::new(Guards {
            breaker: Breaker::new(),
            budget: Budget::new(),
            latencies: Latencies::new(),
            gradient: policies.adaptive.as_ref().map(Gradient::new),
        })
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upstream {}", self.name)
    }
}

impl Upstream {
    /// Takes over from `before` what the change of configuration allows: endpoints and connections if they are reached in the
    /// same way, what the policies know if those are the same too, calls in flight and waiting in any case.
    pub(crate) fn build(
        config: &fanin_config::Upstream,
        services: Option<Services>,
        metrics: Arc<UpstreamMetrics>,
        before: Option<&Arc<Upstream>>,
    ) -> Result<Arc<Upstream>, Vec<BuildError>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let policies = Policies::from(config);
        let endpoints = match before {
            Some(before) if reached_alike(&before.config, config) => before.endpoints.clone(),
            _ => Endpoints::new(Origin::all(config)?),
        };
        let guards = match before {
            Some(before) if Arc::ptr_eq(&before.endpoints, &endpoints) && before.policies == policies => {
                before.guards.clone()
            }
            _ => Guards::new(&policies),
        };
        let limit = match before {
            // Its bounds change when the upstream is adopted.
            Some(before) => before.limit.clone(),
            None => Arc::new(Limit::new(first_limit(config, &guards), config.max_waiting)),
        };
        let alike = before.filter(|before| answers_alike(&before.config, config));
        let alike = alike.map(|before| (before, before.config.named_calls()));
        let operations = config.named_calls().into_iter().map(|(name, operation)| {
            let same = alike.as_ref().and_then(|(before, calls)| {
                let (at, _, old) = calls.get_full(&name)?;
                // A statement's text is no part of the operation that it is.
                let same = *old == operation && before.config.statements.get(&name) == config.statements.get(&name);
                same.then(|| before.operations[at].clone())
            });
            same.unwrap_or_else(|| Arc::new(OperationShared::new(&name, &operation, metrics.operation(&name))))
        });
        let operations = operations.collect();
        let snapshot = config.snapshot.as_ref().map(|snapshot| {
            let same = before.filter(|before| answers_alike(&before.config, config));
            let same = same.and_then(|before| before.snapshot.as_deref());
            Arc::new(Snapshot::new(config, snapshot, metrics.snapshot.clone(), same))
        });
        let terms = AllTerms::new(config, before.map(|before| &before.terms));
        let upstream = Arc::new(Upstream {
            operations,
            snapshot,
            services: services.map(Arc::new),
            id: NEXT.fetch_add(1, Relaxed),
            name: config.name.as_str().into(),
            config: config.clone(),
            endpoints,
            limit,
            policies,
            terms,
            guards,
            metrics,
            retired: AtomicBool::new(false),
        });
        Ok(upstream)
    }

    /// From now on this is the upstream of its name: its bounds hold, its figures are shown.
    pub(crate) fn adopt(self: &Arc<Self>) {
        self.limit.resize(first_limit(&self.config, &self.guards), self.config.max_waiting);
        self.terms.adopt(&self.config);
        let observed: Arc<dyn Observed> = self.clone();
        self.metrics.set_current(Arc::downgrade(&observed));
    }

    pub(crate) fn retire(&self, next: Option<&Arc<Upstream>>) {
        self.retired.store(true, Relaxed);
        if let Some(snapshot) = &self.snapshot {
            snapshot.retire();
        }
        if !next.is_some_and(|next| Arc::ptr_eq(&next.endpoints, &self.endpoints)) {
            self.endpoints.retire();
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// The upstream's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What it was made from.
    pub fn config(&self) -> &fanin_config::Upstream {
        &self.config
    }

    /// What calls of an operation share, by the operation's place in the configuration.
    ///
    /// # Panics
    /// If there is no such operation.
    pub fn operation(&self, at: usize) -> &Arc<OperationShared> {
        &self.operations[at]
    }

    /// The snapshot, if it has one.
    pub fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.snapshot.as_ref()
    }

    /// What is known of its services, if it is a gRPC server.
    pub fn services(&self) -> Option<&Arc<Services>> {
        self.services.as_ref()
    }

    /// Whether the retry budget allows one more request for what has been sent already; takes it.
    pub fn may_send_again(&self) -> bool {
        self.policies.retry.as_ref().is_some_and(|policy| self.guards.budget.take(policy.floor, Instant::now()))
    }

    /// Sends a request and reads the whole answer, within the call's own time and the request's deadline. The future may be
    /// dropped at any point and leaves nothing behind: no place below the limit, no waiting call, no connection in an
    /// unknown state.
    ///
    /// # Errors
    /// Everything but an answer, whatever the answer's status; see [`ErrorKind`].
    pub fn call(
        self: &Arc<Self>,
        worker: &Rc<WorkerClient>,
        request: Request,
        context: CallContext,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let local = worker.local(self);
        // Here and boxed: the future would carry what it is made of along, and be copied with it.
        let request = Prepared::new(request).map(Box::new);
        async move {
            let upstream = &*local.upstream;
            let started = Instant::now();
            let record = Record { metrics: &local.metrics, started, outcome: Cell::new(None) };
            let own = started + context.timeout.unwrap_or(upstream.config.timeout);
            let deadline = own.min(context.deadline);
            let phase = Cell::new(Phase::Waiting);
            let result = match (started < deadline, &request) {
                (false, _) => Err(Failure::new(ErrorKind::Timeout, "the deadline had passed before the call")),
                (true, Err(failure)) => Err(failure.clone()),
                (true, Ok(request)) => {
                    let terms = upstream.terms.of(context.operation);
                    let call = Call { local: &local, context: &context, terms, started, deadline, phase: &phase };
                    let mut bound = Deadline::new(&local.deadlines, deadline);
                    let mut run = pin!(call.run(request));
                    poll_fn(|cx| match run.as_mut().poll(cx) {
                        Poll::Pending => bound.poll(cx).map(|()| Err(timed_out(&phase, own, deadline))),
                        ended => ended,
                    })
                    .await
                }
            };
            let result = match result {
                Ok(received) if received.headers.is_encoded() => {
                    let max_answer = upstream.terms.of(context.operation).max_answer;
                    Box::pin(decode(upstream, received, max_answer, own, deadline)).await
                }
                other => other,
            };
            let result = match result {
                // It came when the time was over already: a gRPC server that knows the deadline answers then.
                Ok(received) if received.at > deadline => Err(timed_out(&phase, own, deadline)),
                other => other,
            };
            match result {
                Ok(received) => {
                    let Received { status, headers, body, at } = received;
                    let elapsed = at.saturating_duration_since(started);
                    record.end(Outcome::answer(status), elapsed);
                    Ok(Answer { status, headers, body, elapsed })
                }
                Err(failure) => {
                    let elapsed = started.elapsed();
                    record.end(Outcome::error(failure.kind), elapsed);
                    Err(failure.into_error(&upstream.name, elapsed))
                }
            }
        }
    }
}

impl Observed for Upstream {
    fn gauges(&self) -> Gauges {
        let (in_flight, waiting) = self.limit.load();
        let (_, endpoints) = self.endpoints.list();
        let mut gauges = Gauges {
            in_flight: in_flight.into(),
            waiting: waiting.into(),
            limit: self.limit.max().into(),
            endpoints: endpoints.len() as u64,
            breaker: self.guards.breaker.mode().into(),
            ..Gauges::default()
        };
        for endpoint in endpoints {
            let (open, connecting) = endpoint.budget.load();
            gauges.connections += open as u64;
            gauges.connecting += connecting as u64;
            gauges.ejected += u64::from(endpoint.health.is_out());
        }
        gauges
    }

    fn operations(&self) -> &[Arc<OperationShared>] {
        &self.operations
    }

    fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.snapshot.as_ref()
    }
}

/// The limit as configured, or as far as an adaptive one has come.
fn first_limit(config: &fanin_config::Upstream, guards: &Guards) -> usize {
    match config.limit {
        fanin_config::Limit::Fixed(calls) => calls,
        fanin_config::Limit::Adaptive { max, .. } => guards.gradient.as_ref().map_or(max, Gradient::limit),
    }
}

/// Decodes an answer that the upstream compressed. What cannot be decoded fails the call, unless its status does so anyway.
async fn decode(
    upstream: &Upstream,
    received: Received,
    max_answer: usize,
    own: Instant,
    deadline: Instant,
) -> Result<Received, Failure> {
    // The other transports make their bodies here; what a gRPC server calls content-encoding is metadata.
    if upstream.config.kind() != UpstreamKind::Http {
        return Ok(received);
    }
    let failed = received.status.as_u16() >= 400;
    let original = failed.then(|| received.clone());
    match timeout_at(deadline, content_encoding::decode(received, max_answer)).await {
        Ok(Ok(decoded)) => Ok(decoded),
        Ok(Err(failure)) => original.ok_or(failure),
        Err(_) => Err(timed_out(&Cell::new(Phase::Decoding), own, deadline)),
    }
}

/// Whether connections made for one configuration serve the other.
fn reached_alike(one: &fanin_config::Upstream, other: &fanin_config::Upstream) -> bool {
    one.keepalive == other.keepalive
        && one.keepalive_timeout == other.keepalive_timeout
        && one.kind() == other.kind()
        && one.endpoints() == other.endpoints()
        && one.password == other.password
        && one.files == other.files
        && one.model == other.model
        && one.keepalive_idle == other.keepalive_idle
        && (!one.kind().is_sql() || one.max_answer == other.max_answer)
        && one.http == other.http
        && one.tls == other.tls
        && one.headers == other.headers
        && one.connect_timeout == other.connect_timeout
        && one.idle_timeout == other.idle_timeout
        && one.max_connections == other.max_connections
        && one.max_connecting == other.max_connecting
}

/// Whether a call gets the same answer from either: they ask the same endpoints for the same.
fn answers_alike(one: &fanin_config::Upstream, other: &fanin_config::Upstream) -> bool {
    reached_alike(one, other) && one.query_lists == other.query_lists
}

#[cold]
fn timed_out(phase: &Cell<Phase>, own: Instant, deadline: Instant) -> Failure {
    let whose = if own <= deadline { "the call's time is over" } else { "the request's deadline has come" };
    Failure::new(ErrorKind::Timeout, format!("{whose}: {}", phase.get().describe()))
}

/// OperationMetrics a call when it ends; one that is dropped counts as cancelled.
struct Record<'a> {
    metrics: &'a Shard,
    started: Instant,
    outcome: Cell<Option<()>>,
}

impl Record<'_> {
    fn end(&self, outcome: Outcome, elapsed: std::time::Duration) {
        self.outcome.set(Some(()));
        self.metrics.record(outcome, elapsed);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.outcome.get().is_none() {
            self.metrics.record(Outcome::error(ErrorKind::Cancelled), self.started.elapsed());
        }
    }
}
