//! What the dashboard shows: the JSON of `/dashboard/data`. Units are in the names: `_s` seconds, `_ms` milliseconds, `_per_s` a second.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything that the dashboard shows at one moment.
///
/// Its maker sets what the metrics do not contain (version, configuration, memory), and then calls [`Data::find_problems`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// The version of Fanin.
    pub version: String,
    /// The number of the loaded configuration, from 1.
    pub generation: u64,
    /// Whether the server drains.
    pub draining: bool,
    /// Milliseconds since the epoch.
    pub now_unix_ms: u64,
    /// Seconds since the history began, with the process.
    pub uptime_s: f64,
    /// The requested window, in seconds.
    pub window_s: u64,
    /// How much of it there is.
    pub covers_s: f64,
    /// Seconds between two readings.
    pub interval_s: f64,
    /// Whether the server records requests: then its page `/requests` has the slowest.
    pub records_requests: bool,
    /// The number of the newest point.
    pub newest: u64,
    /// The points after the requested one, the oldest first.
    pub points: Vec<Point>,
    /// What deserves attention, the worst first.
    pub problems: Vec<Problem>,
    /// The whole server.
    pub server: Server,
    /// The routes, in the order of their names.
    pub routes: Vec<Route>,
    /// The upstreams, in the order of their names.
    pub upstreams: Vec<Upstream>,
    /// The operations that merge, share or cache.
    pub caches: Vec<Cache>,
    /// The models.
    pub models: Vec<Model>,
    /// The past of each route, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_series: Option<Vec<RouteSeries>>,
    /// The past of each upstream, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_series: Option<Vec<UpstreamSeries>>,
    /// Rows that are not shown because there are too many.
    pub left_out: usize,
}

/// Something that deserves attention.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// `alarm` or `warning`.
    pub severity: String,
    /// What it is about: `server`, `route`, `upstream` or `model`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub text: String,
}

/// About one second of the whole server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The point's number.
    pub number: u64,
    /// Milliseconds since the epoch.
    pub unix_ms: u64,
    /// Seconds of requests that ended, a second: how many are in progress on average.
    pub request_seconds_per_s: f64,
    /// Requests in flight at this moment.
    pub in_flight: u64,
    /// Requests that wait for a permit or for a worker at this moment.
    pub waiting: u64,
    /// Goodput: responses with 2xx or 3xx, a second.
    pub good_per_s: f64,
    /// Responses with 4xx, a second.
    pub client_errors_per_s: f64,
    /// Responses with 5xx that are no refusals, a second.
    pub failed_per_s: f64,
    /// Requests that admission refused, a second, by reason. Reasons without any are left out.
    pub refused_per_s: BTreeMap<String, f64>,
    /// Of all requests.
    pub latency: Latency,
}

/// Times of requests or calls; `null` without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_ms: Option<f64>,
    /// 95 % are at most as slow.
    pub p95_ms: Option<f64>,
    /// 99 % are at most as slow.
    pub p99_ms: Option<f64>,
}

/// The whole server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that wait for a permit.
    pub waiting: u64,
    /// Requests in the run queues of workers.
    pub queued: u64,
    /// Open client connections.
    pub connections: u64,
    /// Worker threads.
    pub workers: u64,
    /// Times that a worker was stalled in the window.
    pub stalls: u64,
    /// Requests that wait for a thread of the compute pool.
    pub models_waiting: u64,
    /// Memory that counts against the budget.
    pub memory_used_bytes: u64,
    /// The memory budget; 0 for none.
    pub memory_budget_bytes: u64,
}

/// A route in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The methods; empty for requests without a route.
    pub method: String,
    /// The path; empty for requests without a route.
    pub route: String,
    /// Responses a second.
    pub per_s: f64,
    /// Of them, those with 2xx or 3xx.
    pub good_per_s: f64,
    /// Of them, those with 4xx.
    pub client_errors_per_s: f64,
    /// Of them, those with 5xx that are no refusals.
    pub failed_per_s: f64,
    /// Requests that admission refused, a second, by reason.
    pub refused_per_s: BTreeMap<String, f64>,
    /// Partial responses a second.
    pub partial_per_s: f64,
    /// Requests a second whose client left.
    pub left_per_s: f64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that wait for a permit.
    pub waiting: u64,
    /// Times of requests.
    pub latency: Latency,
    /// The route's objective, if it has one.
    pub objective: Option<Objective>,
}

/// How a route keeps its objective.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The part of requests that must be good.
    pub ratio: f64,
    /// How soon a good response is there.
    pub within_ms: f64,
    /// The part that was good in the window; `null` without requests.
    pub good_ratio: Option<f64>,
    /// How fast the error budget is used: 1 uses it up exactly at the end of its period; `null` without requests.
    pub burn_rate: Option<f64>,
}

/// An upstream in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// Calls a second.
    pub per_s: f64,
    /// Of them, those that failed: 5xx, and all kinds of errors but `cancelled`.
    pub failed_per_s: f64,
    /// Calls a second by outcome. Outcomes without any are left out.
    pub outcomes_per_s: BTreeMap<String, f64>,
    /// Calls in flight.
    pub in_flight: u64,
    /// Calls that wait for a permit.
    pub waiting: u64,
    /// The limit; `null` for none.
    pub limit: Option<u64>,
    /// `closed`, `open` or `half-open`.
    pub breaker: String,
    /// Known endpoints.
    pub endpoints: u64,
    /// Of them, those ejected.
    pub ejected: u64,
    /// Open connections.
    pub connections: u64,
    /// Times of calls.
    pub latency: Latency,
    /// Requests sent a second: more than calls with retries and hedges, fewer with batches.
    pub sent_per_s: f64,
    /// Retries a second.
    pub retries_per_s: f64,
    /// Retries a second that the retry budget did not allow.
    pub retries_denied_per_s: f64,
    /// Hedges a second.
    pub hedges_per_s: f64,
    /// Hedges a second that answered first.
    pub hedges_won_per_s: f64,
}

/// An operation that merges, shares or caches, in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// The upstream.
    pub upstream: String,
    /// The operation.
    pub operation: String,
    /// Calls a second.
    pub calls_per_s: f64,
    /// Calls a second that joined an identical one.
    pub joined_per_s: f64,
    /// Lookups in the cache a second.
    pub lookups_per_s: f64,
    /// The part of lookups that the cache answered, stale answers included; `null` without lookups.
    pub hit_ratio: Option<f64>,
    /// Stale answers a second, because of a refresh or a failed upstream.
    pub stale_per_s: f64,
    /// Size of the cache; `null` without one.
    pub bytes: Option<u64>,
    /// Entries of the cache; `null` without one.
    pub entries: Option<u64>,
    /// Keys in a request of the batch on average; `null` without any.
    pub keys_per_batch: Option<f64>,
}

/// A version of a model in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The model.
    pub model: String,
    /// Its version.
    pub version: String,
    /// Requests answered a second.
    pub answers_per_s: f64,
    /// Requests failed a second.
    pub failures_per_s: f64,
    /// Rows computed a second.
    pub rows_per_s: f64,
    /// Rows in an execution on average; `null` without any.
    pub rows_per_execution: Option<f64>,
    /// Threads that compute it, on average.
    pub busy_threads: f64,
    /// How long a request waited for a thread on average; `null` without any.
    pub queue_ms: Option<f64>,
    /// How long an execution took on average; `null` without any.
    pub compute_ms: Option<f64>,
    /// Its memory.
    pub memory_bytes: u64,
}

/// The past of a route, the oldest first: one entry for about ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteSeries {
    /// The methods.
    pub method: String,
    /// The path.
    pub route: String,
    /// Responses a second.
    pub per_s: Vec<f64>,
    /// The 99th percentile.
    pub p99_ms: Vec<Option<f64>>,
}

/// The past of an upstream, the oldest first: one entry for about ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UpstreamSeries {
    /// Its name.
    pub name: String,
    /// Calls in flight.
    pub in_flight: Vec<u64>,
    /// The 99th percentile.
    pub p99_ms: Vec<Option<f64>>,
}
