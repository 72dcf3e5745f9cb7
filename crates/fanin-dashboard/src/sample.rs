//! One reading of the metrics: what the dashboard needs of them, by route, upstream, operation and model.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use crate::exposition::{Line, lines};
use crate::histogram::Histogram;

/// Rows of a kind that are kept. It bounds the memory of a history; what is above is counted in `left_out`.
pub(crate) const MOST_ROWS: usize = 250;

/// A gauge above this means "no limit".
const UNLIMITED: f64 = 1e15;

/// Two labels: method and path, upstream and operation, model and version.
pub(crate) type Pair = (String, String);

/// What the metrics said at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Since the history began.
    pub(crate) at: Duration,
    /// Upper bounds of the routes' histograms, in seconds.
    pub(crate) route_bounds: Vec<f64>,
    /// Upper bounds of the upstreams' histograms, in seconds.
    pub(crate) upstream_bounds: Vec<f64>,
    pub(crate) server: ServerRow,
    pub(crate) routes: BTreeMap<Pair, RouteRow>,
    pub(crate) upstreams: BTreeMap<String, UpstreamRow>,
    pub(crate) operations: BTreeMap<Pair, OperationRow>,
    pub(crate) models: BTreeMap<Pair, ModelRow>,
    /// Series that belong to rows above [`MOST_ROWS`].
    pub(crate) left_out: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ServerRow {
    pub(crate) in_flight: u64,
    pub(crate) waiting: u64,
    pub(crate) queued: u64,
    pub(crate) connections: u64,
    pub(crate) workers: u64,
    pub(crate) stalls: u64,
    pub(crate) models_waiting: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RouteRow {
    /// 2xx to 5xx.
    pub(crate) classes: [u64; 4],
    pub(crate) durations: Histogram,
    pub(crate) in_flight: u64,
    pub(crate) waiting: u64,
    pub(crate) refused: Vec<(String, u64)>,
    pub(crate) partial: u64,
    pub(crate) left: u64,
    pub(crate) objective: Option<ObjectiveRow>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectiveRow {
    pub(crate) ratio: f64,
    pub(crate) seconds: f64,
    pub(crate) good: u64,
    pub(crate) counted: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct UpstreamRow {
    pub(crate) outcomes: Vec<(String, u64)>,
    pub(crate) durations: Histogram,
    pub(crate) in_flight: u64,
    pub(crate) waiting: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) breaker: u64,
    pub(crate) endpoints: u64,
    pub(crate) ejected: u64,
    pub(crate) connections: u64,
    pub(crate) sent: u64,
    pub(crate) retries: u64,
    pub(crate) retries_denied: u64,
    pub(crate) hedges: u64,
    pub(crate) hedges_won: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct OperationRow {
    pub(crate) calls: u64,
    pub(crate) joined: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) stale: u64,
    pub(crate) saved: u64,
    pub(crate) bytes: Option<u64>,
    pub(crate) entries: Option<u64>,
    pub(crate) batches: u64,
    pub(crate) batch_keys: f64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ModelRow {
    pub(crate) answers: u64,
    pub(crate) failures: u64,
    pub(crate) rows: u64,
    pub(crate) executions: u64,
    pub(crate) compute_seconds: f64,
    pub(crate) queue_seconds: f64,
    pub(crate) memory_bytes: u64,
}

impl Sample {
    /// Reads the text of `/metrics`, or of a part of it.
    pub(crate) fn read(at: Duration, text: &str) -> Sample {
        let mut sample = Sample { at, ..Sample::default() };
        for line in lines(text) {
            let whole = line.value as u64;
            match line.name {
                "fanin_server_in_flight" => sample.server.in_flight = whole,
                "fanin_server_waiting" => sample.server.waiting = whole,
                "fanin_requests_queued" => sample.server.queued += whole,
                "fanin_connections" => {
                    sample.server.connections += whole;
                    sample.server.workers += 1;
                }
                "fanin_worker_stalls_total" => sample.server.stalls += whole,
                "fanin_models_waiting" => sample.server.models_waiting = whole,
                _ if sample.route(&line) || sample.upstream(&line) => {}
                _ if sample.operation(&line) || sample.model(&line) => {}
                _ => {}
            }
        }
        sample
    }

    /// Whether the line is about routes.
    fn route(&mut self, line: &Line<'_>) -> bool {
        let part = match line.name {
            "fanin_requests_in_flight" | "fanin_requests_waiting" => "",
            name => match name.strip_prefix("fanin_request") {
                Some(part) => part,
                None if name.starts_with("fanin_objective_") => "",
                None => return false,
            },
        };
        if !(part.is_empty()
            || part.starts_with("_duration_seconds_")
            || matches!(part, "s_total" | "s_refused_total" | "s_partial_total" | "s_left_total"))
        {
            return false;
        }
        if line.name == "fanin_request_duration_seconds_bucket" {
            note_bound(&mut self.route_bounds, line);
        }
        let Some(row) = row(&mut self.routes, pair(line, "method", "route"), &mut self.left_out) else { return true };
        let whole = line.value as u64;
        match line.name {
            "fanin_requests_total" => {
                let class = line.text("status").bytes().next().unwrap_or(b'5');
                row.classes[usize::from(class.clamp(b'2', b'5') - b'2')] += whole;
            }
            "fanin_request_duration_seconds_bucket" => row.durations.cumulative.push(whole),
            "fanin_request_duration_seconds_sum" => row.durations.sum = line.value,
            "fanin_requests_in_flight" => row.in_flight = whole,
            "fanin_requests_waiting" => row.waiting = whole,
            "fanin_requests_refused_total" => row.refused.push((line.text("reason"), whole)),
            "fanin_requests_partial_total" => row.partial = whole,
            "fanin_requests_left_total" => row.left = whole,
            "fanin_objective_ratio" => row.objective.get_or_insert_default().ratio = line.value,
            "fanin_objective_seconds" => row.objective.get_or_insert_default().seconds = line.value,
            "fanin_objective_good_total" => row.objective.get_or_insert_default().good = whole,
            "fanin_objective_requests_total" => row.objective.get_or_insert_default().counted = whole,
            _ => {}
        }
        true
    }

    /// Whether the line is about upstreams.
    fn upstream(&mut self, line: &Line<'_>) -> bool {
        if !line.name.starts_with("fanin_upstream_") {
            return false;
        }
        if line.name == "fanin_upstream_seconds_bucket" {
            note_bound(&mut self.upstream_bounds, line);
        }
        let Some(row) = row(&mut self.upstreams, line.text("upstream"), &mut self.left_out) else { return true };
        let whole = line.value as u64;
        match line.name {
            "fanin_upstream_calls_total" => row.outcomes.push((line.text("outcome"), whole)),
            "fanin_upstream_seconds_bucket" => row.durations.cumulative.push(whole),
            "fanin_upstream_seconds_sum" => row.durations.sum = line.value,
            "fanin_upstream_in_flight" => row.in_flight = whole,
            "fanin_upstream_waiting" => row.waiting = whole,
            "fanin_upstream_limit" => row.limit = (line.value < UNLIMITED).then_some(whole),
            "fanin_upstream_breaker" => row.breaker = whole,
            "fanin_upstream_endpoints" => row.endpoints = whole,
            "fanin_upstream_endpoints_ejected" => row.ejected = whole,
            "fanin_upstream_connections" => row.connections = whole,
            "fanin_upstream_sent_total" => row.sent = whole,
            "fanin_upstream_retries_total" => row.retries = whole,
            "fanin_upstream_retries_denied_total" => row.retries_denied = whole,
            "fanin_upstream_hedges_total" => row.hedges = whole,
            "fanin_upstream_hedges_won_total" => row.hedges_won = whole,
            _ => {}
        }
        true
    }

    /// Whether the line is about operations that merge, share or cache.
    fn operation(&mut self, line: &Line<'_>) -> bool {
        let known = matches!(
            line.name,
            "fanin_operation_calls_total"
                | "fanin_flight_joined_total"
                | "fanin_cache_hits_total"
                | "fanin_cache_misses_total"
                | "fanin_cache_stale_total"
                | "fanin_cache_saved_total"
                | "fanin_cache_bytes"
                | "fanin_cache_entries"
                | "fanin_batch_keys_count"
                | "fanin_batch_keys_sum"
        );
        if !known {
            return false;
        }
        let key = pair(line, "upstream", "operation");
        let Some(row) = row(&mut self.operations, key, &mut self.left_out) else { return true };
        let whole = line.value as u64;
        match line.name {
            "fanin_operation_calls_total" => row.calls = whole,
            "fanin_flight_joined_total" => row.joined = whole,
            "fanin_cache_hits_total" => row.hits = whole,
            "fanin_cache_misses_total" => row.misses = whole,
            "fanin_cache_stale_total" => row.stale = whole,
            "fanin_cache_saved_total" => row.saved = whole,
            "fanin_cache_bytes" => row.bytes = Some(whole),
            "fanin_cache_entries" => row.entries = Some(whole),
            "fanin_batch_keys_count" => row.batches = whole,
            _ => row.batch_keys = line.value,
        }
        true
    }

    /// Whether the line is about a model.
    fn model(&mut self, line: &Line<'_>) -> bool {
        if !line.name.starts_with("fanin_model_") || line.label("model").is_none() {
            return false;
        }
        let Some(row) = row(&mut self.models, pair(line, "model", "version"), &mut self.left_out) else { return true };
        let whole = line.value as u64;
        match line.name {
            "fanin_model_answers_total" => row.answers = whole,
            "fanin_model_failures_total" => row.failures = whole,
            "fanin_model_rows_total" => row.rows = whole,
            "fanin_model_executions_total" => row.executions = whole,
            "fanin_model_compute_seconds_total" => row.compute_seconds = line.value,
            "fanin_model_queue_seconds_total" => row.queue_seconds = line.value,
            "fanin_model_memory_bytes" => row.memory_bytes = whole,
            _ => {}
        }
        true
    }
}

/// Adds a bound. Each histogram of the metric repeats them, in the same order.
fn note_bound(bounds: &mut Vec<f64>, line: &Line<'_>) {
    if bounds.last().is_some_and(|last| last.is_infinite()) {
        return;
    }
    let bound = line.text("le").parse().unwrap_or(f64::INFINITY);
    bounds.push(bound);
}

fn pair(line: &Line<'_>, first: &str, second: &str) -> Pair {
    (line.text(first), line.text(second))
}

fn row<'a, K: Ord, V: Default>(rows: &'a mut BTreeMap<K, V>, key: K, left_out: &mut usize) -> Option<&'a mut V> {
    let full = rows.len() >= MOST_ROWS;
    match rows.entry(key) {
        Entry::Occupied(row) => Some(row.into_mut()),
        Entry::Vacant(_) if full => {
            *left_out += 1;
            None
        }
        Entry::Vacant(place) => Some(place.insert(V::default())),
    }
}
