//! Rates and latencies from two readings.

use std::collections::BTreeMap;

use crate::data::{Cache, Latency, Model, Objective, Point, Route, Server, Upstream};
use crate::histogram::Histogram;
use crate::problems::is_failure;
use crate::sample::{ModelRow, OperationRow, RouteRow, Sample, UpstreamRow};

/// The time between two readings, for rates.
#[derive(Debug, Clone, Copy)]
struct Over(f64);

impl Over {
    /// A count that became smaller began anew.
    fn rate(self, now: u64, before: u64) -> f64 {
        self.of(grown(now, before) as f64)
    }

    fn of(self, amount: f64) -> f64 {
        if self.0 > 0.0 { rounded(amount / self.0) } else { 0.0 }
    }
}

fn grown(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Four digits are enough to look at, and short to send.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

fn part(amount: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| rounded(amount / whole))
}

fn latency(histogram: &Histogram, bounds: &[f64]) -> Latency {
    let ms = |quantile| histogram.quantile(bounds, quantile).map(|seconds| rounded(seconds * 1e3));
    Latency { p50_ms: ms(0.5), p95_ms: ms(0.95), p99_ms: ms(0.99) }
}

fn named_rates(now: &[(String, u64)], before: &[(String, u64)], over: Over) -> BTreeMap<String, f64> {
    let rate = |(name, count): &(String, u64)| {
        let old = before.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
        (name.clone(), over.rate(*count, old))
    };
    now.iter().map(rate).filter(|(_, rate)| *rate > 0.0).collect()
}

/// Two readings, the later one first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared<'a> {
    now: &'a Sample,
    before: &'a Sample,
    over: Over,
}

impl<'a> Compared<'a> {
    pub(crate) fn new(now: &'a Sample, before: &'a Sample) -> Compared<'a> {
        Compared { now, before, over: Over((now.at.saturating_sub(before.at)).as_secs_f64()) }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.over.0
    }

    /// One point of the whole server.
    pub(crate) fn point(&self) -> Point {
        let mut point = Point {
            in_flight: self.now.server.in_flight,
            waiting: self.now.server.waiting + self.now.server.queued,
            ..Point::default()
        };
        let mut all = Histogram::default();
        for (name, row) in &self.now.routes {
            let route = self.route(name, row);
            point.good_per_s += route.good_per_s;
            point.client_errors_per_s += route.client_errors_per_s;
            point.failed_per_s += route.failed_per_s;
            for (reason, rate) in route.refused_per_s {
                *point.refused_per_s.entry(reason).or_default() += rate;
            }
            all.add(&row.durations.since(self.before.routes.get(name).map(|row| &row.durations)));
        }
        for rate in [&mut point.good_per_s, &mut point.client_errors_per_s, &mut point.failed_per_s]
            .into_iter()
            .chain(point.refused_per_s.values_mut())
        {
            *rate = rounded(*rate);
        }
        point.request_seconds_per_s = self.over.of(all.sum);
        point.latency = latency(&all, &self.now.route_bounds);
        point
    }

    pub(crate) fn server(&self) -> Server {
        let row = &self.now.server;
        Server {
            in_flight: row.in_flight,
            waiting: row.waiting,
            queued: row.queued,
            connections: row.connections,
            workers: row.workers,
            stalls: grown(row.stalls, self.before.server.stalls),
            models_waiting: row.models_waiting,
            memory_used_bytes: 0,
            memory_budget_bytes: 0,
        }
    }

    pub(crate) fn routes(&self) -> Vec<Route> {
        // Requests without a route are a row only once there are some.
        let shown = |name: &(String, String), row: &RouteRow| !name.1.is_empty() || row.durations.count() > 0;
        self.now.routes.iter().filter(|(name, row)| shown(name, row)).map(|(name, row)| self.route(name, row)).collect()
    }

    fn route(&self, name: &(String, String), now: &RouteRow) -> Route {
        let none = RouteRow::default();
        let (over, before) = (self.over, self.before.routes.get(name).unwrap_or(&none));
        let class = |at: usize| over.rate(now.classes[at], before.classes[at]);
        let refused_per_s = named_rates(&now.refused, &before.refused, over);
        let refused: f64 = refused_per_s.values().sum();
        Route {
            method: name.0.clone(),
            route: name.1.clone(),
            per_s: rounded((0..4).map(class).sum()),
            good_per_s: rounded(class(0) + class(1)),
            client_errors_per_s: class(2),
            // A refusal is answered with 503.
            failed_per_s: rounded((class(3) - refused).max(0.0)),
            refused_per_s,
            partial_per_s: over.rate(now.partial, before.partial),
            left_per_s: over.rate(now.left, before.left),
            in_flight: now.in_flight,
            waiting: now.waiting,
            latency: latency(&now.durations.since(Some(&before.durations)), &self.now.route_bounds),
            objective: now.objective.as_ref().map(|objective| {
                let old = before.objective.clone().unwrap_or_default();
                let counted = grown(objective.counted, old.counted) as f64;
                let good_ratio = part(grown(objective.good, old.good) as f64, counted);
                let bad = (counted - grown(objective.good, old.good) as f64).max(0.0);
                Objective {
                    ratio: objective.ratio,
                    within_ms: rounded(objective.seconds * 1e3),
                    good_ratio: good_ratio.map(|ratio| ratio.min(1.0)),
                    burn_rate: part(bad, counted * (1.0 - objective.ratio)),
                }
            }),
        }
    }

    pub(crate) fn upstreams(&self) -> Vec<Upstream> {
        self.now.upstreams.iter().map(|(name, row)| self.upstream(name, row)).collect()
    }

    fn upstream(&self, name: &str, now: &UpstreamRow) -> Upstream {
        let none = UpstreamRow::default();
        let (over, before) = (self.over, self.before.upstreams.get(name).unwrap_or(&none));
        let outcomes_per_s = named_rates(&now.outcomes, &before.outcomes, over);
        let sum = |of: &dyn Fn(&str) -> bool| {
            rounded(outcomes_per_s.iter().filter(|(name, _)| of(name)).map(|(_, rate)| rate).sum())
        };
        Upstream {
            name: name.to_owned(),
            per_s: sum(&|_| true),
            failed_per_s: sum(&|name| is_failure(name)),
            in_flight: now.in_flight,
            waiting: now.waiting,
            limit: now.limit,
            breaker: ["closed", "open", "half-open"].get(now.breaker as usize).copied().unwrap_or("closed").to_owned(),
            endpoints: now.endpoints,
            ejected: now.ejected,
            connections: now.connections,
            latency: latency(&now.durations.since(Some(&before.durations)), &self.now.upstream_bounds),
            sent_per_s: over.rate(now.sent, before.sent),
            retries_per_s: over.rate(now.retries, before.retries),
            retries_denied_per_s: over.rate(now.retries_denied, before.retries_denied),
            hedges_per_s: over.rate(now.hedges, before.hedges),
            hedges_won_per_s: over.rate(now.hedges_won, before.hedges_won),
            outcomes_per_s,
        }
    }

    pub(crate) fn caches(&self) -> Vec<Cache> {
        self.now.operations.iter().map(|(name, row)| self.cache(name, row)).collect()
    }

    fn cache(&self, name: &(String, String), now: &OperationRow) -> Cache {
        let none = OperationRow::default();
        let (over, before) = (self.over, self.before.operations.get(name).unwrap_or(&none));
        let hits = grown(now.hits, before.hits);
        let stale = grown(now.stale, before.stale) + grown(now.saved, before.saved);
        let misses = grown(now.misses, before.misses);
        let lookups = (hits + stale + misses) as f64;
        let batches = grown(now.batches, before.batches) as f64;
        Cache {
            upstream: name.0.clone(),
            operation: name.1.clone(),
            calls_per_s: over.rate(now.calls, before.calls),
            joined_per_s: over.rate(now.joined, before.joined),
            lookups_per_s: over.of(lookups),
            hit_ratio: part((hits + stale) as f64, lookups),
            stale_per_s: over.of(stale as f64),
            bytes: now.bytes,
            entries: now.entries,
            keys_per_batch: part((now.batch_keys - before.batch_keys).max(0.0), batches),
        }
    }

    pub(crate) fn models(&self) -> Vec<Model> {
        self.now.models.iter().map(|(name, row)| self.model(name, row)).collect()
    }

    fn model(&self, name: &(String, String), now: &ModelRow) -> Model {
        let none = ModelRow::default();
        let (over, before) = (self.over, self.before.models.get(name).unwrap_or(&none));
        let answers = grown(now.answers, before.answers) as f64;
        let executions = grown(now.executions, before.executions) as f64;
        let compute = (now.compute_seconds - before.compute_seconds).max(0.0);
        let queue = (now.queue_seconds - before.queue_seconds).max(0.0);
        Model {
            model: name.0.clone(),
            version: name.1.clone(),
            answers_per_s: over.of(answers),
            failures_per_s: over.rate(now.failures, before.failures),
            rows_per_s: over.rate(now.rows, before.rows),
            rows_per_execution: part(grown(now.rows, before.rows) as f64, executions),
            busy_threads: over.of(compute),
            queue_ms: part(queue * 1e3, answers),
            compute_ms: part(compute * 1e3, executions),
            memory_bytes: now.memory_bytes,
        }
    }
}
