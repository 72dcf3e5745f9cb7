//! Counting: every request belongs to the interval in which it was scheduled, whenever its answer comes.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::attempt::AttemptResult;
use crate::outcome::{Interval, Latency, Outcome, Progress, Slow};
use crate::plan::Plan;

/// Intervals of a run at most; each has a histogram of some 30 KB.
const MOST_INTERVALS: u32 = 600;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// How many of the slowest requests are told one by one.
const SLOWEST: usize = 10;
/// Longest latency that a histogram tells, microseconds: an hour.
const LONGEST: u64 = 3_600_000_000;

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was sent, and this came of it.
    Sent(AttemptResult),
    /// No answer in time.
    Timeout,
    /// The generator's bound was reached.
    Unsent,
}

/// One request, ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// When it was due, from the start.
    pub(crate) due: Duration,
    /// From that moment to the end of its answer.
    pub(crate) latency: Duration,
    /// The part of it after which it began to be sent.
    pub(crate) lag: Duration,
    /// Tries after the first.
    pub(crate) retried: u32,
    /// How it ended.
    pub(crate) end: End,
}

#[derive(Debug)]
struct Bucket {
    offered: u64,
    good: u64,
    refused: u64,
    failed: u64,
    latency: Histogram<u64>,
}

/// The counters of a run.
#[derive(Debug)]
pub(crate) struct Record {
    good_within: Duration,
    length: Duration,
    buckets: Vec<Bucket>,
    good: Histogram<u64>,
    refused: Histogram<u64>,
    failures: Histogram<u64>,
    lag: Histogram<u64>,
    recent: Histogram<u64>,
    status: BTreeMap<u16, u64>,
    offered: u64,
    retried: u64,
    failed: u64,
    late: u64,
    connect_errors: u64,
    broken: u64,
    timeouts: u64,
    unsent: u64,
    bytes: u64,
    slowest: Vec<Slow>,
    pub(crate) most_in_flight: usize,
}

impl Record {
    /// Nothing counted yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        let length = (plan.shape.duration() / MOST_INTERVALS).max(SHORTEST_INTERVAL);
        // A second a point reads well, unless the run is very long or very short.
        let second = Duration::from_secs(1);
        let length = if plan.shape.duration() >= 10 * second { length.max(second) } else { length };
        Self {
            good_within: plan.good_within.unwrap_or(Duration::MAX),
            length,
            buckets: Vec::new(),
            good: histogram(3),
            refused: histogram(3),
            failures: histogram(3),
            lag: histogram(2),
            recent: histogram(2),
            status: BTreeMap::new(),
            offered: 0,
            retried: 0,
            failed: 0,
            late: 0,
            connect_errors: 0,
            broken: 0,
            timeouts: 0,
            unsent: 0,
            bytes: 0,
            slowest: Vec::new(),
            most_in_flight: 0,
        }
    }

    /// A request was due at `due`, and the generator came to it `lag` later.
    pub(crate) fn offered(&mut self, due: Duration, lag: Duration) {
        self.offered += 1;
        self.lag.saturating_record(micros(lag));
        self.bucket(due).offered += 1;
    }

    /// A request ended.
    pub(crate) fn done(&mut self, done: Done) {
        let latency = micros(done.latency);
        self.retried += u64::from(done.retried);
        self.note_if_slowest(&done);
        match done.end {
            End::Sent(AttemptResult::Answer { status, bytes }) => {
                *self.status.entry(status).or_default() += 1;
                self.bytes += bytes;
                if (200..300).contains(&status) && done.latency <= self.good_within {
                    self.good.saturating_record(latency);
                    self.recent.saturating_record(latency);
                    let bucket = self.bucket(done.due);
                    bucket.good += 1;
                    bucket.latency.saturating_record(latency);
                    return;
                }
                if matches!(status, 429 | 503) {
                    self.refused.saturating_record(latency);
                    self.bucket(done.due).refused += 1;
                    return;
                }
                self.failures.saturating_record(latency);
                self.late += u64::from((200..300).contains(&status));
            }
            End::Sent(AttemptResult::Connect) => self.connect_errors += 1,
            End::Sent(AttemptResult::Broken) => self.broken += 1,
            End::Timeout => self.timeouts += 1,
            End::Unsent => self.unsent += 1,
        }
        self.failed += 1;
        self.bucket(done.due).failed += 1;
    }

    fn note_if_slowest(&mut self, done: &Done) {
        let latency = done.latency.as_secs_f64() * 1e3;
        let status = match done.end {
            End::Unsent => return,
            End::Sent(AttemptResult::Answer { status, .. }) => Some(status),
            End::Sent(_) | End::Timeout => None,
        };
        if self.slowest.len() == SLOWEST && self.slowest.last().is_some_and(|last| last.latency >= latency) {
            return;
        }
        let slow = Slow { at: done.due.as_secs_f64(), latency, lag: done.lag.as_secs_f64() * 1e3, status };
        let place = self.slowest.partition_point(|other| other.latency >= latency);
        self.slowest.insert(place, slow);
        self.slowest.truncate(SLOWEST);
    }

    /// Where the run stands; its latency starts anew.
    pub(crate) fn progress(&mut self, elapsed: Duration, duration: Duration, in_flight: usize) -> Progress {
        let latency = Latency::of(&self.recent);
        self.recent.reset();
        Progress {
            elapsed,
            duration,
            offered: self.offered,
            good: self.good.len(),
            refused: self.refused.len(),
            failed: self.failed,
            in_flight,
            latency,
        }
    }

    /// What the run showed.
    pub(crate) fn outcome(self, plan: &Plan) -> Outcome {
        let seconds = plan.shape.duration().as_secs_f64();
        let length = self.length.as_secs_f64();
        let interval = |(index, bucket): (usize, Bucket)| Interval {
            at: index as f64 * length,
            length: length.min(seconds - index as f64 * length),
            offered: bucket.offered,
            good: bucket.good,
            refused: bucket.refused,
            failed: bucket.failed,
            latency: Latency::of(&bucket.latency),
        };
        Outcome {
            url: plan.request.url(),
            protocol: plan.protocol,
            arrivals: plan.arrivals,
            seconds,
            offered: self.offered,
            rate: self.offered as f64 / seconds,
            good: self.good.len(),
            goodput: self.good.len() as f64 / seconds,
            status: self.status,
            late: self.late,
            connect_errors: self.connect_errors,
            broken: self.broken,
            timeouts: self.timeouts,
            unsent: self.unsent,
            retried: self.retried,
            bytes: self.bytes,
            most_in_flight: self.most_in_flight,
            latency: Latency::of(&self.good),
            refused: Latency::of(&self.refused),
            failures: Latency::of(&self.failures),
            lag: Latency::of(&self.lag),
            slowest: self.slowest,
            intervals: self.buckets.into_iter().enumerate().map(interval).collect(),
        }
    }

    fn bucket(&mut self, due: Duration) -> &mut Bucket {
        let index = (due.as_nanos() / self.length.as_nanos()) as usize;
        while self.buckets.len() <= index {
            self.buckets.push(Bucket { offered: 0, good: 0, refused: 0, failed: 0, latency: histogram(2) });
        }
        &mut self.buckets[index]
    }
}

/// Microseconds up to an hour, to so many digits.
fn histogram(digits: u8) -> Histogram<u64> {
    // hdrhistogram takes a low bound from 1, a high one of at least twice that, and up to five digits.
    Histogram::new_with_bounds(1, LONGEST, digits).expect("the bounds are constants that hdrhistogram takes")
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::shape::Shape;

    fn plan() -> Plan {
        Plan::new(Request::get("http://127.0.0.1/").unwrap(), Shape::constant(10.0, Duration::from_secs(20)))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_end_is_counted_once_and_where_it_was_due() {
        let mut plan = plan();
        plan.good_within = Some(ms(100));
        let mut record = Record::new(&plan);
        let answer = |status| End::Sent(AttemptResult::Answer { status, bytes: 10 });
        let ends = [
            (500, 20, answer(200)),
            (600, 101, answer(204)),
            (1500, 5, answer(503)),
            (1600, 5, answer(404)),
            (1700, 5, End::Timeout),
            (1800, 5, End::Unsent),
            (19_900, 5, End::Sent(AttemptResult::Broken)),
            (19_950, 5, End::Sent(AttemptResult::Connect)),
        ];
        for (due, latency, end) in ends {
            record.offered(ms(due), ms(1));
            record.done(Done { due: ms(due), latency: ms(latency), lag: ms(1), retried: 0, end });
        }
        let progress = record.progress(ms(20_000), ms(20_000), 0);
        assert_eq!((progress.offered, progress.good, progress.refused, progress.failed), (8, 1, 1, 6));
        assert_eq!(progress.latency.count, 1);
        assert_eq!(record.progress(ms(20_000), ms(20_000), 0).latency.count, 0, "latency of progress starts anew");
        let outcome = record.outcome(&plan);
        assert_eq!(
            (outcome.late, outcome.timeouts, outcome.unsent, outcome.broken, outcome.connect_errors),
            (1, 1, 1, 1, 1)
        );
        assert_eq!(outcome.status, BTreeMap::from([(200, 1), (204, 1), (404, 1), (503, 1)]));
        assert_eq!((outcome.bytes, outcome.rate, outcome.good_share()), (40, 0.4, 0.125));
        let seen: Vec<_> = outcome.intervals.iter().map(|i| (i.offered, i.good, i.refused, i.failed)).collect();
        assert_eq!(
            (seen.len(), seen[0], seen[1], seen[10], seen[19]),
            (20, (2, 1, 0, 1), (4, 0, 1, 3), (0, 0, 0, 0), (2, 0, 0, 2))
        );
        // All that were sent, the slowest first.
        let slowest: Vec<_> =
            outcome.slowest.iter().map(|slow| (slow.at, slow.latency, slow.lag, slow.status)).collect();
        assert_eq!(
            (slowest.len(), slowest[0], slowest[1]),
            (7, (0.6, 101.0, 1.0, Some(204)), (0.5, 20.0, 1.0, Some(200)))
        );
        assert_eq!(outcome.goodput_between(ms(0), ms(2000)), 0.5);
        assert!((outcome.latency.p99 - 20.0).abs() < 0.1 && (outcome.refused.max - 5.0).abs() < 0.1);
    }

    #[test]
    fn only_the_slowest_are_told_one_by_one() {
        let plan = plan();
        let mut record = Record::new(&plan);
        // 7 has no common divisor with 100: each latency once, in a mixed order.
        for number in 0..100 {
            let latency = ms(number * 7 % 100);
            record.done(Done { due: ms(number), latency, lag: ms(0), retried: 0, end: End::Timeout });
        }
        let slowest: Vec<_> = record.outcome(&plan).slowest.iter().map(|slow| slow.latency as u64).collect();
        assert_eq!(slowest, (90..100).rev().collect::<Vec<_>>());
    }
}
