//! Distribution of the number in progress over time.

use hdrhistogram::Histogram;

use super::record::SECOND;
use super::sweep::sweep;

/// Time with nothing in progress that is longer than this is left out: logs of two days do not make one of a month.
pub(crate) const QUIET: i64 = 3600 * SECOND;

/// Points of the plot at most; twice as many are held while it grows.
const POINTS: usize = 600;

/// One stretch of time in the plot.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Point {
    /// When it begins: seconds since 1970 UTC, or since midnight for logs without dates.
    pub at: i64,
    /// Requests in progress at once, at most.
    pub max: u64,
    /// Requests in progress on average over its seconds (request-seconds per second).
    pub mean: f64,
}

/// The number in progress over time.
#[derive(Debug)]
pub(crate) struct Occupancy {
    /// Microseconds during which so many were in progress.
    levels: Vec<u64>,
    pub(crate) max_at: i64,
    /// Microseconds left out as quiet.
    pub(crate) quiet: u64,
    pub(crate) quiets: u64,
    /// Request-milliseconds of whole wall seconds.
    pub(crate) seconds: Histogram<u64>,
    /// The busiest second: request-microseconds, and which.
    pub(crate) busiest: (u64, i64),
    second: i64,
    in_second: u64,
    max_in_second: u64,
    series: Series,
}

impl Occupancy {
    /// From intervals in order of their starts.
    pub(crate) fn new(intervals: impl Iterator<Item = (i64, i64)>) -> Occupancy {
        let mut this = Occupancy {
            levels: Vec::new(),
            max_at: 0,
            quiet: 0,
            quiets: 0,
            seconds: histogram(),
            busiest: (0, 0),
            second: i64::MIN,
            in_second: 0,
            max_in_second: 0,
            series: Series { width: 1, held: 0, points: Vec::new() },
        };
        sweep(intervals, |from, to, count| this.span(from, to, count));
        this.end_second();
        this
    }

    fn span(&mut self, from: i64, to: i64, count: u64) {
        if count == 0 && to - from > QUIET {
            self.quiet += (to - from) as u64;
            self.quiets += 1;
            self.end_second();
            return;
        }
        if count as usize >= self.levels.len() {
            self.levels.resize(count as usize + 1, 0);
            self.max_at = from;
        }
        self.levels[count as usize] += (to - from) as u64;
        let mut from = from;
        while from < to {
            let second = from.div_euclid(SECOND);
            if second != self.second {
                self.end_second();
                self.second = second;
            }
            let until = to.min((second + 1) * SECOND);
            self.in_second += count * (until - from) as u64;
            self.max_in_second = self.max_in_second.max(count);
            from = until;
        }
    }

    fn end_second(&mut self) {
        if self.second == i64::MIN {
            return;
        }
        record(&mut self.seconds, self.in_second / 1000);
        if self.in_second > self.busiest.0 {
            self.busiest = (self.in_second, self.second * SECOND);
        }
        self.series.push(self.second, self.max_in_second, self.in_second as f64 / SECOND as f64);
        (self.second, self.in_second, self.max_in_second) = (i64::MIN, 0, 0);
    }

    /// The most in progress at once.
    pub(crate) fn max(&self) -> u64 {
        self.levels.len().saturating_sub(1) as u64
    }

    /// Share of the time with the most in progress.
    pub(crate) fn share_at_max(&self) -> f64 {
        let wall = self.wall();
        if wall == 0 { 0.0 } else { self.levels.last().copied().unwrap_or(0) as f64 / wall as f64 }
    }

    /// Microseconds from the first start to the last end, less what is left out.
    pub(crate) fn wall(&self) -> u64 {
        self.levels.iter().sum()
    }

    /// Request-microseconds.
    pub(crate) fn busy(&self) -> u128 {
        self.levels.iter().zip(0u128..).map(|(time, count)| u128::from(*time) * count).sum()
    }

    /// The number that was not exceeded during this share of the time.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        self.quantile_of(self.wall(), share)
    }

    /// The same over `wall` microseconds: nothing was in progress in those that are not known here.
    pub(crate) fn quantile_of(&self, wall: u64, share: f64) -> u64 {
        let target = (wall as f64 * share).ceil() as u64;
        let mut time = wall.saturating_sub(self.wall());
        for (count, at) in self.levels.iter().zip(0..) {
            time += count;
            if time >= target {
                return at;
            }
        }
        self.max()
    }

    pub(crate) fn points(&self) -> Vec<Point> {
        self.series.points.clone()
    }
}

/// A histogram of three significant digits that grows with its values. Record by [`record`]: `saturating_record` would clamp
/// values to the initial maximum instead.
pub(crate) fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_max(1 << 20, 3).unwrap_or_else(|_| {
        // Only a wrong number of digits or a maximum below 2 fails, and both are constants.
        unreachable!("3 digits up to 2^20 are within the histogram's bounds")
    });
    histogram.auto(true);
    histogram
}

/// Records a value, growing the histogram if necessary.
pub(crate) fn record(histogram: &mut Histogram<u64>, value: u64) {
    // Fails only if the counts for a value cannot be indexed; with three digits all of `u64` can.
    let recorded = histogram.record(value);
    debug_assert!(recorded.is_ok());
}

/// Points of growing width: when there are too many, two become one.
#[derive(Debug)]
struct Series {
    /// Seconds of a point.
    width: u64,
    /// Seconds in the last point.
    held: u64,
    points: Vec<Point>,
}

impl Series {
    fn push(&mut self, second: i64, max: u64, mean: f64) {
        match self.points.last_mut() {
            Some(last) if self.held < self.width => {
                last.max = last.max.max(max);
                last.mean += (mean - last.mean) / (self.held + 1) as f64;
                self.held += 1;
            }
            _ => {
                if self.points.len() == 2 * POINTS {
                    self.points = self
                        .points
                        .chunks(2)
                        .map(|two| Point {
                            at: two[0].at,
                            max: two.iter().map(|point| point.max).max().unwrap_or(0),
                            mean: two.iter().map(|point| point.mean).sum::<f64>() / two.len() as f64,
                        })
                        .collect();
                    self.width *= 2;
                }
                self.points.push(Point { at: second, max, mean });
                self.held = 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_weighed() {
        // One in progress for 9 s, two for 1 s.
        let all = Occupancy::new([(0, 10 * SECOND), (3 * SECOND, 4 * SECOND)].into_iter());
        assert_eq!((all.max(), all.max_at, all.wall(), all.busy()), (2, 3 * SECOND, 10_000_000, 11_000_000));
        assert_eq!((all.quantile(0.5), all.quantile(0.9), all.quantile(0.91)), (1, 1, 2));
        assert_eq!(all.busiest, (2_000_000, 3 * SECOND));
        assert_eq!(all.seconds.len(), 10);
    }

    #[test]
    fn short_pauses_count_and_long_ones_do_not() {
        let all = Occupancy::new(
            [(0, SECOND), (3 * SECOND, 4 * SECOND), (4 * SECOND + QUIET + 1, 5 * SECOND + QUIET + 1)].into_iter(),
        );
        assert_eq!((all.wall(), all.quiets, all.quiet), (5_000_000, 1, QUIET as u64 + 1));
        assert_eq!(all.quantile(0.4), 0);
    }

    #[test]
    fn the_series_keeps_sums_and_peaks() {
        let seconds = 10 * POINTS as i64 + 7;
        let all = Occupancy::new(
            (0..seconds).map(|at| (at * SECOND, at * SECOND + if at == 77 { 3 * SECOND } else { SECOND })),
        );
        let points = all.points();
        assert!(points.len() <= 2 * POINTS);
        assert_eq!(points.iter().map(|point| point.max).max(), Some(2));
        assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert!(points.iter().all(|point| (1.0..=2.0).contains(&point.mean)));
    }

    #[test]
    fn nothing_is_nothing() {
        let none = Occupancy::new([(5, 5)].into_iter());
        assert_eq!((none.max(), none.wall(), none.quantile(0.99)), (0, 0, 0));
    }
}
