//! An upstream: what a configuration makes of it, and what a reload keeps.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

use crate::call_options::CallOptionsTable;
use crate::error::{BuildError, CallError};
use crate::grpc::Services;
use crate::limiter::Limiter;
use crate::metrics::{Gauges, Observed, UpstreamMetrics};
use crate::policy::Policies;
use crate::policy::adaptive::Gradient;
use crate::policy::breaker::Breaker;
use crate::policy::hedge::Latencies;
use crate::policy::retry_budget::RetryBudget;
use crate::request::Answer;
use crate::resolve::Endpoints;
use crate::shared::{OperationShared, Snapshot};
use crate::transport::{TlsFiles, origins};

/// A named backend service: its endpoints, its limit, its policies. Shared by all workers.
pub struct Upstream {
    /// Unique in the process: never used again.
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) config: fanin_config::Upstream,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) limit: Arc<Limiter>,
    pub(crate) policies: Policies,
    pub(crate) options: CallOptionsTable,
    pub(crate) policy_state: Arc<PolicyState>,
    pub(crate) metrics: Arc<UpstreamMetrics>,
    /// What calls of each operation share, in the order of the configuration.
    operations: Vec<Arc<OperationShared>>,
    snapshot: Option<Arc<Snapshot>>,
    services: Option<Arc<Services>>,
    tls_files: TlsFiles,
    retired: AtomicBool,
}

/// The policies' state, over all workers.
pub(crate) struct PolicyState {
    pub breaker: Breaker,
    pub retry_budget: RetryBudget,
    pub latencies: Latencies,
    pub gradient: Option<Gradient>,
}

impl PolicyState {
    fn new(policies: &Policies) -> Arc<PolicyState> {
        Arc::new(PolicyState {
            breaker: Breaker::new(),
            retry_budget: RetryBudget::new(),
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
    /// Takes over from `before` what the change of configuration allows. Endpoints and connections stay if they are
    /// reached in the same way, and the policies' state stays if the policies did not change either. Calls in flight
    /// and waiting always stay counted.
    pub(crate) fn build(
        config: &fanin_config::Upstream,
        services: Option<Arc<Services>>,
        metrics: Arc<UpstreamMetrics>,
        before: Option<&Arc<Upstream>>,
    ) -> Result<Arc<Upstream>, Vec<BuildError>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let policies = Policies::from(config);
        let tls_files = TlsFiles::of(config.tls.as_ref());
        let endpoints = match before {
            Some(before) if same_connections(&before.config, config) && before.tls_files == tls_files => {
                before.endpoints.clone()
            }
            _ => Endpoints::new(origins(config)?),
        };
        let policy_state = match before {
            Some(before) if Arc::ptr_eq(&before.endpoints, &endpoints) && before.policies == policies => {
                before.policy_state.clone()
            }
            _ => PolicyState::new(&policies),
        };
        let limit = match before {
            // Its bounds change on activation.
            Some(before) => before.limit.clone(),
            None => Arc::new(Limiter::new(first_limit(config, &policy_state), config.max_waiting)),
        };
        let alike = before.filter(|before| same_answers(&before.config, config));
        let alike = alike.map(|before| (before, before.config.named_calls()));
        let operations = config.named_calls().into_iter().map(|(name, operation)| {
            let same = alike.as_ref().and_then(|(before, calls)| {
                let (at, _, old) = calls.get_full(&name)?;
                // A statement's text is kept apart from its operation.
                let same = *old == operation && before.config.statements.get(&name) == config.statements.get(&name);
                same.then(|| before.operations[at].clone())
            });
            same.unwrap_or_else(|| Arc::new(OperationShared::new(&name, &operation, metrics.operation(&name))))
        });
        let operations = operations.collect();
        let snapshot = config.snapshot.as_ref().map(|snapshot| {
            let same = before.filter(|before| same_answers(&before.config, config));
            let same = same.and_then(|before| before.snapshot.as_deref());
            Arc::new(Snapshot::new(config, snapshot, metrics.snapshot.clone(), same))
        });
        let options = CallOptionsTable::new(config, before.map(|before| &before.options));
        let upstream = Arc::new(Upstream {
            operations,
            snapshot,
            services,
            id: NEXT.fetch_add(1, Relaxed),
            name: config.name.as_str().into(),
            config: config.clone(),
            endpoints,
            limit,
            policies,
            options,
            policy_state,
            metrics,
            tls_files,
            retired: AtomicBool::new(false),
        });
        Ok(upstream)
    }

    /// The same upstream before any call.
    pub(crate) fn anew(&self, metrics: Arc<UpstreamMetrics>) -> Result<Arc<Upstream>, Vec<BuildError>> {
        let services = match &self.services {
            // What a server describes is found out by calls.
            Some(services) if !services.are_known() => {
                Services::load(&self.config).map_err(|error| vec![error])?.map(Arc::new)
            }
            services => services.clone(),
        };
        Upstream::build(&self.config, services, metrics, None)
    }

    /// Makes this the current upstream of its name: its limits apply, and the gauges show it.
    pub(crate) fn activate(self: &Arc<Self>) {
        self.limit.resize(first_limit(&self.config, &self.policy_state), self.config.max_waiting);
        self.options.activate(&self.config);
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

    /// Whether the files of its TLS settings are as they were when it was built.
    pub(crate) fn has_same_tls_files(&self) -> bool {
        self.tls_files == TlsFiles::of(self.config.tls.as_ref())
    }

    /// The upstream's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The configuration that it was built from.
    pub fn config(&self) -> &fanin_config::Upstream {
        &self.config
    }

    /// The name of an operation, by its index in the configuration.
    pub fn operation_name(&self, at: u32) -> Option<&Arc<str>> {
        self.operations.get(at as usize).map(|operation| &operation.name)
    }

    /// The error of an answer that arrived and cannot be used: it is no JSON, or does not have the declared shape. Counts it.
    #[cold]
    pub fn unusable(&self, answer: &Answer, problem: impl Into<Cow<'static, str>>) -> CallError {
        self.metrics.invalid_answers.fetch_add(1, Relaxed);
        CallError::decode(&self.name, answer, problem)
    }

    /// What calls of an operation share, by the operation's index in the configuration.
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

    /// The known services of a gRPC upstream.
    pub fn services(&self) -> Option<&Arc<Services>> {
        self.services.as_ref()
    }

    /// Takes one further request from the retry budget. Whether the budget allowed it.
    pub fn may_send_again(&self) -> bool {
        self.policies
            .retry
            .as_ref()
            .is_some_and(|policy| self.policy_state.retry_budget.take(policy.floor, Instant::now()))
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
            breaker: self.policy_state.breaker.mode().into(),
            ..Gauges::default()
        };
        for endpoint in endpoints {
            let (open, connecting) = endpoint.budget.load();
            gauges.connections += open as u64;
            gauges.connecting += connecting as u64;
            gauges.ejected += u64::from(endpoint.health.is_ejected());
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

/// The configured limit, or the present one of an adaptive limit.
fn first_limit(config: &fanin_config::Upstream, policy_state: &PolicyState) -> usize {
    match config.limit {
        fanin_config::Limit::Fixed(calls) => calls,
        fanin_config::Limit::Adaptive { max, .. } => policy_state.gradient.as_ref().map_or(max, Gradient::limit),
    }
}

/// Whether connections that were made for one configuration serve the other.
fn same_connections(one: &fanin_config::Upstream, other: &fanin_config::Upstream) -> bool {
    one.keepalive == other.keepalive
        && one.keepalive_timeout == other.keepalive_timeout
        && one.kind() == other.kind()
        && one.endpoints() == other.endpoints()
        && one.password == other.password
        && one.auth == other.auth
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

/// Whether a call gets the same answer under either configuration.
fn same_answers(one: &fanin_config::Upstream, other: &fanin_config::Upstream) -> bool {
    same_connections(one, other) && one.query_lists == other.query_lists
}
