//! The text of the page `/metrics`.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use fanin_config::Objective;
use fanin_tracecontext::{Annotations, Exemplars};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::process::Process;
use super::single_writer::{Count, Merged};
use super::stats::{Closed, RouteStats, WorkerStats};
use super::{Label, Metrics};
use crate::admission::Refusal;
use crate::cache::{Outcome, RouteCache};
use crate::client::Bound;
use crate::report::LIMITS;

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The histogram of requests.
const DURATIONS: &str = "fanin_request_duration_seconds";

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counts of a route at the time of the page.
struct Row {
    label: Label,
    workers: Vec<Arc<RouteStats>>,
    in_flight: usize,
    waiting: usize,
    objective: Option<Objective>,
    cache: Option<Arc<RouteCache>>,
}

impl Row {
    fn labels(&self) -> Labels<'_> {
        vec![("method", &self.label.method), ("route", &self.label.path)]
    }

    fn with(&self, key: &'static str, value: &'static str) -> Labels<'_> {
        let mut labels = self.labels();
        labels.push((key, value));
        labels
    }

    fn sum(&self, of: impl Fn(&RouteStats) -> &Count) -> u64 {
        self.workers.iter().map(|stats| of(stats).get()).sum()
    }
}

impl Collector for Metrics {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        self.encode_routes(&mut to)?;
        self.encode_objectives(&mut to)?;
        self.encode_caches(&mut to)?;
        self.encode_workers(&mut to)?;
        self.encode_process(&mut to)
    }
}

/// The metrics that the dashboard reads each second: without those of the process, which take longer with many open files.
#[derive(Debug)]
pub(crate) struct Frequent(pub(crate) Arc<Metrics>);

impl Collector for Frequent {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        self.0.encode_routes(&mut to)?;
        self.0.encode_objectives(&mut to)?;
        self.0.encode_caches(&mut to)?;
        self.0.encode_workers(&mut to)
    }
}

impl Metrics {
    /// Traces of requests that the buckets of [`DURATIONS`] have counted.
    pub(super) fn exemplars(&self, to: &mut Annotations) {
        for row in self.rows() {
            let newest = Exemplars::newest(row.workers.iter().map(|stats| stats.durations.exemplars()));
            to.add(DURATIONS, &row.labels(), newest);
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        // Drop routes that no generation has any more, including generations whose last requests still run.
        routes.retain(|_, stats| stats.workers.iter().any(|stats| Arc::strong_count(stats) > 1));
        let row = |(label, stats): (&Label, &super::PerWorkerStats)| Row {
            label: label.clone(),
            workers: stats.workers.clone(),
            in_flight: stats.limiter.as_ref().map_or(0, |limiter| limiter.in_flight()),
            waiting: stats.limiter.as_ref().map_or(0, |limiter| limiter.waiting()),
            objective: stats.objective,
            cache: self.caches.of(&format!("{} {}", label.method, label.path)),
        };
        routes.iter().map(row).collect()
    }

    fn encode_routes(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let rows = self.rows();
        family(to, "fanin_requests", "Responses by route and status class.", MetricType::Counter, |metric| {
            for row in &rows {
                for (at, class) in CLASSES.iter().enumerate().skip(1) {
                    count(metric, &row.with("status", class), row.sum(|stats| &stats.classes[at]))?;
                }
            }
            Ok(())
        })?;
        let help = "Seconds from the request's head to its response.";
        family(to, DURATIONS, help, MetricType::Histogram, |metric| {
            rows.iter().try_for_each(|row| {
                histogram(metric, &row.labels(), &Merged::of(row.workers.iter().map(|stats| &stats.durations)))
            })
        })?;
        family(to, "fanin_requests_in_flight", "Requests in flight.", MetricType::Gauge, |metric| {
            rows.iter().try_for_each(|row| gauge(metric, &row.labels(), row.in_flight as f64))
        })?;
        family(
            to,
            "fanin_requests_waiting",
            "Requests that wait for a permit of their route or of the server.",
            MetricType::Gauge,
            |metric| rows.iter().try_for_each(|row| gauge(metric, &row.labels(), row.waiting as f64)),
        )?;
        family(
            to,
            "fanin_requests_refused",
            "Requests refused by admission, by reason.",
            MetricType::Counter,
            |metric| {
                for row in &rows {
                    for refusal in Refusal::ALL {
                        let refused = row.sum(|stats| &stats.refused[refusal as usize]);
                        count(metric, &row.with("reason", refusal.reason()), refused)?;
                    }
                }
                Ok(())
            },
        )?;
        family(to, "fanin_flow_limits", "Flows ended by a limit.", MetricType::Counter, |metric| {
            for row in &rows {
                for (at, limit) in LIMITS.iter().enumerate() {
                    count(metric, &row.with("limit", limit), row.sum(|stats| &stats.limits[at]))?;
                }
            }
            Ok(())
        })?;
        type Of = fn(&RouteStats) -> &Count;
        let most: [(&str, &str, Of); 2] = [
            ("fanin_flow_steps_most", "Most steps of one request's flow.", |stats| &stats.most_steps),
            ("fanin_flow_memory_most_bytes", "Most memory of one request's flow, in bytes.", |stats| {
                &stats.most_memory
            }),
        ];
        for (name, help, of) in most {
            family(to, name, help, MetricType::Gauge, |metric| {
                rows.iter().try_for_each(|row| {
                    let most = row.workers.iter().map(|stats| of(stats).get()).max().unwrap_or(0);
                    gauge(metric, &row.labels(), most as f64)
                })
            })?;
        }
        let counters: [(&str, &str, Of); 4] = [
            ("fanin_requests_partial", "Partial responses.", |stats| &stats.partial),
            ("fanin_requests_left", "Requests whose client disconnected before the response.", |stats| &stats.left),
            ("fanin_request_panics", "Requests ended by a panic.", |stats| &stats.panics),
            ("fanin_request_calls", "Calls made for answered requests.", |stats| &stats.calls),
        ];
        for (name, help, of) in counters {
            family(to, name, help, MetricType::Counter, |metric| {
                rows.iter().try_for_each(|row| count(metric, &row.labels(), row.sum(of)))
            })?;
        }
        let help = "Seconds of requests in which at least one call was in flight.";
        family(to, "fanin_request_upstream_seconds", help, MetricType::Counter, |metric| {
            rows.iter().try_for_each(|row| {
                let seconds = row.sum(|stats| &stats.upstream_micros) as f64 / 1e6;
                metric.encode_family(&row.labels())?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)
            })
        })?;
        family(to, "fanin_server_in_flight", "Requests in flight in the whole server.", MetricType::Gauge, |metric| {
            metric.encode_gauge(&(self.limiters.server.in_flight() as f64))
        })?;
        family(
            to,
            "fanin_server_waiting",
            "Requests that wait for a permit of the server.",
            MetricType::Gauge,
            |metric| metric.encode_gauge(&(self.limiters.server.waiting() as f64)),
        )
    }

    fn encode_objectives(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let mut rows = self.rows();
        rows.retain(|row| row.objective.is_some());
        type Value = fn(&Objective) -> f64;
        let gauges: [(&str, &str, Value); 2] = [
            ("fanin_objective_ratio", "The part of requests that the route's objective wants good.", Objective::ratio),
            (
                "fanin_objective_seconds",
                "How soon a good response is there, as the route's objective says.",
                |objective| objective.within.as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            family(to, name, help, MetricType::Gauge, |metric| {
                rows.iter().try_for_each(|row| gauge(metric, &row.labels(), row.objective.as_ref().map_or(0.0, value)))
            })?;
        }
        type Of = fn(&RouteStats) -> &Count;
        let counters: [(&str, &str, Of); 2] = [
            ("fanin_objective_requests", "Responses that count for the route's objective.", |stats| {
                &stats.objective_counted
            }),
            ("fanin_objective_good", "Responses without 5xx within the time of the route's objective.", |stats| {
                &stats.objective_good
            }),
        ];
        for (name, help, of) in counters {
            family(to, name, help, MetricType::Counter, |metric| {
                rows.iter().try_for_each(|row| count(metric, &row.labels(), row.sum(of)))
            })?;
        }
        Ok(())
    }

    fn encode_caches(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let mut rows = self.rows();
        rows.retain(|row| row.cache.is_some());
        let help = "Requests to routes with a cache, by what it did.";
        family(to, "fanin_response_cache_requests", help, MetricType::Counter, |metric| {
            for row in &rows {
                for outcome in Outcome::ALL {
                    let counted = row.sum(|stats| &stats.cache[outcome as usize]);
                    count(metric, &row.with("outcome", outcome.label()), counted)?;
                }
            }
            Ok(())
        })?;
        type Value = fn(&RouteCache) -> u64;
        let gauges: [(&str, &str, Value); 2] = [
            ("fanin_response_cache_bytes", "Bytes in caches of responses.", RouteCache::bytes),
            ("fanin_response_cache_entries", "Entries in caches of responses.", |cache| cache.len() as u64),
        ];
        for (name, help, value) in gauges {
            family(to, name, help, MetricType::Gauge, |metric| {
                rows.iter()
                    .try_for_each(|row| gauge(metric, &row.labels(), row.cache.as_deref().map_or(0, value) as f64))
            })?;
        }
        Ok(())
    }

    fn encode_workers(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let names = (0..self.workers.len()).map(|index| index.to_string()).collect::<Vec<_>>();
        let each = || self.workers.iter().zip(&names).map(|(stats, name)| (stats, vec![("worker", name.as_str())]));
        let help = "Queueing delay: seconds that ready work waits for its worker.";
        family(to, "fanin_worker_queueing_seconds", help, MetricType::Histogram, |metric| {
            each().try_for_each(|(stats, labels)| histogram(metric, &labels, &Merged::of([&stats.queueing])))
        })?;
        let help = "Requests in the run queue of a worker that cannot keep up.";
        family(to, "fanin_requests_queued", help, MetricType::Gauge, |metric| {
            each().try_for_each(|(stats, labels)| gauge(metric, &labels, stats.queued.get() as f64))
        })?;
        family(to, "fanin_connections", "Open client connections.", MetricType::Gauge, |metric| {
            each().try_for_each(|(stats, labels)| {
                // The counts are read one after the other: a connection may close in between.
                let closed = stats.closed.get();
                gauge(metric, &labels, stats.accepted.get().saturating_sub(closed) as f64)
            })
        })?;
        type Of = fn(&WorkerStats) -> &Count;
        let counters: [(&str, &str, Of); 9] = [
            ("fanin_connections_accepted", "Client connections accepted.", |stats| &stats.accepted),
            ("fanin_connections_refused", "Client connections refused because of max_connections.", |stats| {
                &stats.refused
            }),
            ("fanin_accept_errors", "Failed attempts to accept a connection.", |stats| &stats.accept_errors),
            ("fanin_tls_failures", "TLS handshakes that failed.", |stats| &stats.tls_failures),
            (
                "fanin_proxy_protocol_errors",
                "Connections closed because they did not begin with a valid PROXY header.",
                |stats| &stats.proxy_protocol_errors,
            ),
            ("fanin_protocol_errors", "Requests that are not valid HTTP or did not arrive in time.", |stats| {
                &stats.protocol_errors
            }),
            (
                "fanin_requests_shed",
                "Requests refused by fast rejection. They also count in fanin_requests_refused.",
                |stats| &stats.shed,
            ),
            ("fanin_access_log_dropped", "Access log lines dropped because writing them was too slow.", |stats| {
                &stats.log_lines_dropped
            }),
            ("fanin_worker_stalls", "Times that one piece of work stalled a worker.", |stats| &stats.stalls),
        ];
        for (name, help, of) in counters {
            family(to, name, help, MetricType::Counter, |metric| {
                each().try_for_each(|(stats, labels)| count(metric, &labels, of(stats).get()))
            })?;
        }
        let help = "Seconds for which workers were stalled.";
        family(to, "fanin_worker_stalled_seconds", help, MetricType::Counter, |metric| {
            each().try_for_each(|(stats, labels)| {
                let seconds = stats.stalled_micros.get() as f64 / 1e6;
                metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)
            })
        })?;
        let help = "Refusals and closed connections because of a bound of one client.";
        family(to, "fanin_client_limits", help, MetricType::Counter, |metric| {
            Bound::ALL.iter().try_for_each(|bound| {
                let sum = self.workers.iter().map(|stats| stats.client_limits[*bound as usize].get()).sum();
                count(metric, &vec![("bound", bound.label())], sum)
            })
        })?;
        self.handshakes.encode("fanin_tls_handshakes", to)?;
        let help = "Client connections closed by a timeout.";
        family(to, "fanin_connection_timeouts", help, MetricType::Counter, |metric| {
            Closed::ALL.iter().try_for_each(|closed| {
                let sum = self.workers.iter().map(|stats| stats.timeouts[*closed as usize].get()).sum();
                count(metric, &vec![("kind", closed.label())], sum)
            })
        })
    }

    fn encode_process(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let process = Process::read();
        let gauges = [
            ("fanin_workers", "Worker threads.", self.workers.len() as f64),
            ("fanin_threads", "Threads of the process.", process.threads as f64),
            ("fanin_clients", "Clients with something open that counts for their bounds.", self.clients.len() as f64),
            ("fanin_resident_memory_bytes", "Resident memory of the process.", process.resident_bytes as f64),
            ("fanin_memory_budget_bytes", "The memory budget; 0: no bound.", self.memory.budget() as f64),
            ("fanin_memory_used_bytes", "Memory that counts towards the budget.", self.memory.used() as f64),
            (
                "fanin_memory_shedding",
                "How many priorities are refused because of the memory budget.",
                f64::from(self.memory.shedding()),
            ),
            ("fanin_open_files", "Open files and sockets.", process.open_files as f64),
            ("fanin_uptime_seconds", "Seconds since the start.", self.started.elapsed().as_secs_f64()),
            (
                "fanin_last_reload_timestamp_seconds",
                "Time of the last successful reload.",
                self.last_reload.load(Relaxed) as f64,
            ),
        ];
        for (name, help, value) in gauges {
            family(to, name, help, MetricType::Gauge, |metric| metric.encode_gauge(&value))?;
        }
        family(to, "fanin_reloads", "Reloads by result.", MetricType::Counter, |metric| {
            count(metric, &vec![("result", "ok")], self.reloads_ok.load(Relaxed))?;
            count(metric, &vec![("result", "failed")], self.reloads_failed.load(Relaxed))
        })?;
        family(to, "fanin_build", "The version of the program.", MetricType::Info, |metric| {
            metric.encode_info(&[("version", self.build.version)])
        })
    }
}

fn family(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    kind: MetricType,
    fill: impl FnOnce(&mut MetricEncoder) -> fmt::Result,
) -> fmt::Result {
    fill(&mut to.encode_descriptor(name, help, None, kind)?)
}

fn count(metric: &mut MetricEncoder, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
    metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
}

fn gauge(metric: &mut MetricEncoder, labels: &impl EncodeLabelSet, value: f64) -> fmt::Result {
    metric.encode_family(labels)?.encode_gauge(&value)
}

fn histogram(metric: &mut MetricEncoder, labels: &impl EncodeLabelSet, merged: &Merged) -> fmt::Result {
    let buckets = merged.buckets();
    metric.encode_family(labels)?.encode_histogram::<NoLabelSet>(merged.seconds(), merged.count(), &buckets, None)
}
