//! Recognizing the log of a saturated tier, in which waiting looks like need.
//!
//! Two signs, by what the log holds:
//!
//! - *Latency with waiting*: a full pool completes requests at its own rate, so latency is the number in progress divided by that
//!   rate (Little's law). So latency correlates with the number that each request found in progress, also among those that
//!   found many. With a slow backend it does not: many are in progress then, but a request's latency does not depend on how
//!   many.
//! - *Service time only*: the number in progress stands at its maximum for a long time. Random arrivals reach their maximum for
//!   moments only.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::occupancy::{Occupancy, histogram, record};
use super::record::Record;

/// Fewer requests prove nothing.
const MIN_REQUESTS: usize = 200;
/// Least correlation of latency with the number in progress.
const MIN_CORRELATION: f64 = 0.7;
/// Latency at the maximum in progress is at least this many times the fast requests' (their 10th percentile).
const MIN_GROWTH: f64 = 5.0;
/// A smaller maximum may be reached for long by chance.
const MIN_PLATEAU: u64 = 16;
/// Least share of time at the maximum.
const MIN_PLATEAU_SHARE: f64 = 0.1;

/// The warning, if the log is that of a saturated tier. Takes records in order of their starts.
pub(crate) fn warning(records: &[Record], occupancy: &Occupancy) -> Option<String> {
    if records.len() < MIN_REQUESTS {
        return None;
    }
    if let Some(fit) = Fit::of(records, occupancy.max()).filter(|fit| fit.correlation >= MIN_CORRELATION) {
        let (fast, full) = (fit.fast, fit.at_max);
        if full >= MIN_GROWTH * fast {
            return Some(format!(
                "the tier looks saturated: latency grows with the number in progress (from {:.0} ms to {:.1} s, correlation \
                 {:.2}), about {:.0} requests/s are completed however many wait. Waiting counts as need here, so all sizes \
                 below are too large. Size from a time without a queue (--from, --to), or from a log of service times",
                fast / 1e3,
                full / 1e6,
                fit.correlation,
                fit.per_second,
            ));
        }
    }
    let share = occupancy.share_at_max();
    if occupancy.max() >= MIN_PLATEAU && share >= MIN_PLATEAU_SHARE {
        return Some(format!(
            "the tier looks saturated: {} requests were in progress for {:.0} % of the time, and never more. If that is the \
             size of a pool, requests waited in front of it and are missing here, so all sizes below are too small",
            occupancy.max(),
            share * 100.0,
        ));
    }
    None
}

/// Least-squares line of latency over the number in progress at a request's start, of the requests that found at least half of
/// the most.
struct Fit {
    correlation: f64,
    /// 10th percentile of latency, microseconds.
    fast: f64,
    /// Latency at the most in progress by the line, microseconds.
    at_max: f64,
    /// Completions a second by the line's slope.
    per_second: f64,
}

impl Fit {
    fn of(records: &[Record], max: u64) -> Option<Fit> {
        let mut running: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
        let mut lengths = histogram();
        let (mut count, mut mean_n, mut mean_l, mut var_n, mut var_l, mut cov) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for one in records.iter().filter(|one| one.length() > 0) {
            while running.peek().is_some_and(|end| end.0 <= one.start()) {
                running.pop();
            }
            let (n, l) = (running.len() as f64, one.length() as f64);
            running.push(Reverse(one.end()));
            record(&mut lengths, one.length());
            if n * 2.0 < max as f64 {
                continue;
            }
            // Welford's update: sums of squares of such numbers would lose digits.
            count += 1.0;
            let (before_n, before_l) = (n - mean_n, l - mean_l);
            mean_n += before_n / count;
            mean_l += before_l / count;
            var_n += before_n * (n - mean_n);
            var_l += before_l * (l - mean_l);
            cov += before_n * (l - mean_l);
        }
        if count < MIN_REQUESTS as f64 / 2.0 || var_n <= 0.0 || var_l <= 0.0 || cov <= 0.0 {
            return None;
        }
        let slope = cov / var_n;
        Some(Fit {
            correlation: cov / (var_n * var_l).sqrt(),
            fast: lengths.value_at_quantile(0.1) as f64,
            at_max: mean_l + slope * (max as f64 - mean_n),
            per_second: 1e6 / slope,
        })
    }
}
