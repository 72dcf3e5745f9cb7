//! What a run showed, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::protocol::Protocol;
use crate::shape::Arrivals;

/// Percentiles of latency from the scheduled moment, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many answers these are.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// 50th percentile.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Highest.
    pub max: f64,
}

impl Latency {
    /// Of a histogram of microseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// The requests that were scheduled within one stretch of time, whenever their answers came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its beginning, seconds from the start.
    pub at: f64,
    /// Its length, seconds.
    pub length: f64,
    /// Requests scheduled.
    pub offered: u64,
    /// Good answers.
    pub good: u64,
    /// Answers of status 429 and 503: the server refused.
    pub refused: u64,
    /// Everything else: other statuses, good statuses that came too late, broken connections, no answer in time, unsent.
    pub failed: u64,
    /// Latency of good answers.
    pub latency: Latency,
}

/// One of the requests that took longest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slow {
    /// When it was scheduled, seconds from the start.
    pub at: f64,
    /// From that moment to its end, milliseconds.
    pub latency: f64,
    /// The part of it after which the generator began to send it, milliseconds.
    pub lag: f64,
    /// The answer's status; `None` without an answer.
    pub status: Option<u16>,
}

/// What a run showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The URL.
    pub url: String,
    /// The protocol.
    pub protocol: Protocol,
    /// How requests were spread.
    pub arrivals: Arrivals,
    /// How long requests were scheduled, seconds.
    pub seconds: f64,
    /// Requests scheduled.
    pub offered: u64,
    /// Offered requests a second.
    pub rate: f64,
    /// Answers of status 2xx that came within `good_within`.
    pub good: u64,
    /// Good answers a second.
    pub goodput: f64,
    /// Answers by status.
    pub status: BTreeMap<u16, u64>,
    /// Answers of status 2xx that came too late to be good.
    pub late: u64,
    /// No connection.
    pub connect_errors: u64,
    /// Connections that broke while a request was on them.
    pub broken: u64,
    /// No answer in time.
    pub timeouts: u64,
    /// Not sent, because the generator's own bound on requests in flight was reached.
    pub unsent: u64,
    /// Retries.
    pub retried: u64,
    /// Bytes of bodies received.
    pub bytes: u64,
    /// Most requests in flight at once.
    pub most_in_flight: usize,
    /// Latency of good answers.
    pub latency: Latency,
    /// Latency of answers of status 429 and 503.
    pub refused: Latency,
    /// Latency of other answers that are not good.
    pub failures: Latency,
    /// How late the generator itself began requests: large values say that the generator, not the server, was measured.
    pub lag: Latency,
    /// The requests that took longest, the slowest first; those without an answer among them, those that were not sent not.
    pub slowest: Vec<Slow>,
    /// The run over time.
    pub intervals: Vec<Interval>,
}

impl Outcome {
    /// A summary for people.
    pub fn text(&self) -> String {
        let status: Vec<String> = self.status.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        let row = |name: &str, l: &Latency| {
            format!(
                "{name:<10} {:>9} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2}\n",
                l.count, l.p50, l.p90, l.p99, l.p999, l.max
            )
        };
        let mut text = format!("{} for {:.1} s over {}\n", self.url, self.seconds, self.name());
        text += &format!(
            "offered    {:>9} {:>9.1}/s, at most {} in flight\n",
            self.offered, self.rate, self.most_in_flight
        );
        text += &format!("good       {:>9} {:>9.1}/s, {:.2} %\n", self.good, self.goodput, self.good_share() * 100.0);
        text += &format!("status     {}\n", if status.is_empty() { "no answers".into() } else { status.join(", ") });
        let faults = [
            (self.late, "late"),
            (self.timeouts, "without an answer in time"),
            (self.connect_errors, "without a connection"),
            (self.broken, "on a broken connection"),
            (self.unsent, "not sent"),
        ];
        let faults: Vec<String> =
            faults.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        if !faults.is_empty() {
            text += &format!("failed     {}\n", faults.join(", "));
        }
        text += &format!(
            "\n{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
            "ms", "count", "p50", "p90", "p99", "p99.9", "max"
        );
        text += &row("good", &self.latency);
        if self.refused.count > 0 {
            text += &row("refused", &self.refused);
        }
        if self.failures.count > 0 {
            text += &row("failed", &self.failures);
        }
        if self.lag.p99 > 1.0 {
            text += &row("own lag", &self.lag);
            text += "The generator itself was late: run it on a core of its own, or offer less.\n";
        }
        text
    }

    /// Everything, with the intervals.
    pub fn json(&self) -> serde_json::Value {
        // Serializing plain numbers, strings and lists cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Good answers among the offered requests, 0 to 1; 1 if none was offered.
    pub fn good_share(&self) -> f64 {
        if self.offered == 0 { 1.0 } else { self.good as f64 / self.offered as f64 }
    }

    /// Good answers a second of the requests scheduled from `from` to `to`, in whole intervals.
    pub fn goodput_between(&self, from: Duration, to: Duration) -> f64 {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        let within = self.intervals.iter().filter(|i| i.at >= from && i.at + i.length <= to + 1e-9);
        let (good, length) = within.fold((0, 0.0), |(good, length), i| (good + i.good, length + i.length));
        if length > 0.0 { good as f64 / length } else { 0.0 }
    }

    fn name(&self) -> &'static str {
        match self.protocol {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
            Protocol::Grpc => "gRPC",
        }
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// How long requests are scheduled in all.
    pub duration: Duration,
    /// Requests scheduled so far.
    pub offered: u64,
    /// Good answers so far.
    pub good: u64,
    /// Answers that refused so far.
    pub refused: u64,
    /// Requests without a good answer so far, but for the refused ones.
    pub failed: u64,
    /// Requests in flight.
    pub in_flight: usize,
    /// Latency of the good answers since the last progress.
    pub latency: Latency,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, duration, offered, good, refused, failed, in_flight, latency } = self;
        let (elapsed, duration) = (elapsed.as_secs_f64(), duration.as_secs_f64());
        write!(
            f,
            "{elapsed:.0} of {duration:.0} s: {offered} offered, {good} good, {refused} refused, {failed} failed, {in_flight} in flight, p50 {:.1} ms, p99 {:.1} ms",
            latency.p50, latency.p99
        )
    }
}
