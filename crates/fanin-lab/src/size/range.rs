//! What is certain about the number in progress when stamps are in whole seconds.
//!
//! A request stamped with second `s` began in `[s, s + 1)`. At a moment it is *surely* in progress if it is wherever it
//! began, and *possibly* if it is for some beginning. The true number lies between the two counts at every moment, hence
//! so do its quantiles over time.

use super::occupancy::Occupancy;
use super::options::Options;
use super::record::{Record, SECOND};
use super::sweep::most;

/// The lengths of the windows over which a mean is taken, seconds.
const WINDOWS: [i64; 6] = [2, 4, 8, 16, 32, 64];

/// Bounds of the number in progress: at its median, its 99th percentile over time, and its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) p50: (u64, u64),
    pub(crate) p99: (u64, u64),
    pub(crate) max: (u64, u64),
    /// Of the most in progress on the busiest server, with growth and slow backends.
    pub(crate) peak: (u64, u64),
}

/// Sorts the records by their earliest starts on the way.
pub(crate) fn bounds(records: &mut [Record], median: f64, high: f64, options: &Options) -> Bounds {
    records.sort_unstable_by_key(|record| record.earliest());
    let possible = Occupancy::new(
        records
            .iter()
            .filter(|record| record.length() > 0)
            .map(|record| (record.earliest(), record.latest() + record.length() as i64)),
    );
    let mean = surest_mean(records);
    let grown = |record: &Record| (record.length() as f64 * options.factor()).round() as i64;
    let possible_peak = peak(records, options, |record| (record.earliest(), record.latest() + grown(record)));
    records.sort_unstable_by_key(|record| record.latest());
    let sure =
        Occupancy::new(records.iter().map(|record| (record.latest(), record.earliest() + record.length() as i64)));
    let sure_peak = peak(records, options, |record| (record.latest(), record.earliest() + grown(record)));
    // Both cover different stretches of time, so quantiles are taken over the longer: the shorter is idle in the rest.
    let wall = possible.wall();
    Bounds {
        p50: (sure.quantile_of(wall, median), possible.quantile(median)),
        p99: (sure.quantile_of(wall, high), possible.quantile(high)),
        max: (sure.max().max(mean), possible.max()),
        peak: (sure_peak.min(possible_peak), possible_peak),
    }
}

/// The most in progress on the busiest server; records go to servers round-robin. `interval` must ascend by its start.
fn peak(records: &[Record], options: &Options, interval: impl Fn(&Record) -> (i64, i64)) -> u64 {
    let servers = options.servers as usize;
    let of_server = |server| most(records.iter().skip(server).step_by(servers).map(&interval));
    (0..servers).map(of_server).max().unwrap_or(0)
}

/// The largest mean over a window of the requests that lie within it wherever they began: the number in progress reaches
/// its mean at least once. Takes records in order of their earliest starts.
fn surest_mean(records: &[Record]) -> u64 {
    let mut windows: Vec<Window> = WINDOWS
        .iter()
        .flat_map(|length| {
            [0, length / 2].map(|shift| Window { length: length * SECOND, shift: shift * SECOND, start: 0, sum: 0 })
        })
        .collect();
    let mut best = 0;
    for record in records {
        for window in &mut windows {
            best = best.max(window.add(*record));
        }
    }
    best
}

/// Windows of one length side by side; only one is open at a time.
struct Window {
    length: i64,
    shift: i64,
    start: i64,
    sum: u64,
}

impl Window {
    /// Returns the mean so far, rounded up: what is counted in whole requests reaches no less.
    fn add(&mut self, record: Record) -> u64 {
        let start = (record.earliest() - self.shift).div_euclid(self.length) * self.length + self.shift;
        if start != self.start {
            (self.start, self.sum) = (start, 0);
        }
        if record.latest() + record.length() as i64 <= start + self.length {
            self.sum += record.length();
        }
        self.sum.div_ceil(self.length as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_starts_leave_no_room() {
        let mut records: Vec<Record> = [(0, 3), (1, 3), (2, 2), (9, 1)]
            .map(|(start, length)| Record::exact(start * SECOND, length * 1_000_000))
            .into();
        let options = Options { growth: 1.0, slow: 1.0, ..Options::default() };
        let expected = Bounds { p50: (0, 0), p99: (3, 3), max: (3, 3), peak: (3, 3) };
        assert_eq!(bounds(&mut records, 0.5, 0.99, &options), expected);
    }

    #[test]
    fn a_mean_is_reached() {
        // 40 requests of 400 ms stamped with one second: within two seconds, 8 in progress on average; at most all.
        let mut records: Vec<Record> =
            (0..40).map(|number| Record::within_second(10 * SECOND, 400_000, number)).collect();
        assert_eq!(bounds(&mut records, 0.5, 0.99, &Options::default()).max, (8, 40));
    }

    #[test]
    fn what_may_reach_out_of_a_window_is_not_in_its_mean() {
        // 900 ms, ten stamped with each of two seconds: the second ten may end as late as 2.9 s, so no window of two
        // seconds surely holds both.
        let mut records: Vec<Record> =
            (0..20).map(|number| Record::within_second(number as i64 / 10 * SECOND, 900_000, number)).collect();
        assert_eq!(bounds(&mut records, 0.5, 0.99, &Options::default()).max, (5, 20));
    }

    #[test]
    fn long_requests_are_sure() {
        let mut records: Vec<Record> = (0..5).map(|number| Record::within_second(0, 10_000_000, number)).collect();
        let bounds = bounds(&mut records, 0.5, 0.99, &Options::default());
        assert_eq!((bounds.max, bounds.p50), ((5, 5), (5, 5)));
    }
}
