//! The cross-check by theory: M/G/c, each stretch of the log as a queue of its own.
//!
//! Chance of waiting: Erlang's C formula (1917). Mean wait: that of M/M/c times (1 + cv²)/2 (Lee and Longton 1959), exact
//! for c = 1 and for exponential lengths. Waits of those who wait are taken as exponential. A log's load changes over the
//! day, so each minute is taken as if its load lasted for ever and the results are weighed by requests (Green and Kolesar's
//! pointwise stationary approximation, 1991). It assumes that requests come independently of each other: where the
//! simulation shows much more waiting, they come in bursts shorter than a minute.

use super::record::{Record, SECOND};

/// Windows at most; twice as many are held while the log is read.
const WINDOWS: usize = 1000;
/// Seconds of a window at first.
const WIDTH: i64 = 60;

/// What theory says of one queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Wait {
    /// That a request waits.
    pub(crate) chance: f64,
    /// Mean wait of all requests, seconds.
    pub(crate) mean: f64,
}

/// Of `threads` at `rate` requests a second of `length` seconds with a squared coefficient of variation `cv2`. `None` if
/// the load is as much as the threads can do, or more: the queue grows without end.
pub(crate) fn wait(threads: u32, rate: f64, length: f64, cv2: f64) -> Option<Wait> {
    let (load, threads_f) = (rate * length, f64::from(threads));
    if load >= threads_f {
        return None;
    }
    // Erlang's B by its recurrence, in the inverse, which does not underflow before it is nothing at all.
    let mut inverse = 1.0;
    for used in 1..=threads {
        inverse = 1.0 + inverse * f64::from(used) / load;
        if inverse > 1e300 {
            return Some(Wait { chance: 0.0, mean: 0.0 });
        }
    }
    let blocked = 1.0 / inverse;
    let chance = blocked / (1.0 - load / threads_f * (1.0 - blocked));
    Some(Wait { chance, mean: chance * length / (threads_f - load) * (1.0 + cv2) / 2.0 })
}

/// Arrivals and lengths of each stretch of the log.
#[derive(Debug)]
pub(crate) struct Windows {
    /// With the seconds that the log covers of each.
    windows: Vec<(f64, Window)>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    index: i64,
    /// First and last start in it, microseconds.
    first: i64,
    last: i64,
    count: f64,
    /// Sums of lengths and of their squares, seconds.
    sum: f64,
    squares: f64,
}

impl Windows {
    /// From records in order of their starts.
    pub(crate) fn new(records: &[Record]) -> Windows {
        let mut width = WIDTH * SECOND;
        let mut windows: Vec<Window> = Vec::new();
        for record in records {
            let (at, length) = (record.start(), record.length() as f64 / 1e6);
            let mut index = at.div_euclid(width);
            if windows.last().is_none_or(|last| last.index != index) {
                if windows.len() == 2 * WINDOWS {
                    (width, index) = (width * 2, index.div_euclid(2));
                    windows =
                        windows.chunk_by(|a, b| a.index.div_euclid(2) == b.index.div_euclid(2)).map(merge).collect();
                }
                if windows.last().is_none_or(|last| last.index != index) {
                    windows.push(Window { index, first: at, last: at, count: 0.0, sum: 0.0, squares: 0.0 });
                }
            }
            if let Some(last) = windows.last_mut() {
                last.last = at;
                last.count += 1.0;
                last.sum += length;
                last.squares += length * length;
            }
        }
        // The log may begin and end amid a window: the rate there is that of the part that it covers.
        let ends = [0, windows.len().saturating_sub(1)];
        let covered = |(at, window): (usize, Window)| {
            let from = if at == ends[0] { window.first } else { window.index * width };
            let to = if at == ends[1] { window.last } else { (window.index + 1) * width };
            ((to - from).max(SECOND) as f64 / 1e6, window)
        };
        Windows { windows: windows.into_iter().enumerate().map(covered).collect() }
    }

    /// The waits with `threads` on each of the servers.
    pub(crate) fn mix(&self, threads: u32, growth: f64, slow: f64, servers: u32) -> Mix {
        let mut mix = Mix { total: 0.0, overloaded: 0.0, parts: Vec::with_capacity(self.windows.len()) };
        for (seconds, window) in &self.windows {
            let rate = window.count / seconds * growth / f64::from(servers);
            let mean = window.sum / window.count;
            mix.total += window.count;
            // Requests of no length keep no thread busy.
            if mean == 0.0 {
                mix.parts.push((window.count, Wait { chance: 0.0, mean: 0.0 }));
                continue;
            }
            let cv2 = (window.squares / window.count / (mean * mean) - 1.0).max(0.0);
            match wait(threads, rate, mean * slow, cv2) {
                Some(wait) => mix.parts.push((window.count, wait)),
                None => mix.overloaded += window.count,
            }
        }
        mix
    }
}

fn merge(two: &[Window]) -> Window {
    let mut merged = Window { index: two[0].index.div_euclid(2), ..two[0] };
    for window in &two[1..] {
        merged.last = window.last;
        merged.count += window.count;
        merged.sum += window.sum;
        merged.squares += window.squares;
    }
    merged
}

/// The windows' queues together.
#[derive(Debug)]
pub(crate) struct Mix {
    total: f64,
    /// Requests in windows with more load than the threads can do.
    overloaded: f64,
    /// Requests and waits of the others.
    parts: Vec<(f64, Wait)>,
}

impl Mix {
    /// Share of requests in windows with more load than the threads can do.
    pub(crate) fn overloaded(&self) -> f64 {
        self.overloaded / self.total
    }

    /// Chance that a request waits; it does in overloaded windows.
    pub(crate) fn chance(&self) -> f64 {
        (self.overloaded + self.parts.iter().map(|(count, wait)| count * wait.chance).sum::<f64>()) / self.total
    }

    /// Mean wait, seconds; none if it is without end.
    pub(crate) fn mean(&self) -> Option<f64> {
        let total: f64 = self.parts.iter().map(|(count, wait)| count * wait.mean).sum();
        (self.overloaded == 0.0).then_some(total / self.total)
    }

    /// The wait that this share of requests does not exceed, seconds; none if it is without end.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let longer = |than: f64| {
            let sum: f64 = self
                .parts
                .iter()
                .filter(|(_, wait)| wait.mean > 0.0)
                .map(|(count, wait)| count * wait.chance * (-than * wait.chance / wait.mean).exp())
                .sum();
            (sum + self.overloaded) / self.total
        };
        let target = 1.0 - share;
        if self.overloaded() > target {
            return None;
        }
        if longer(0.0) <= target {
            return Some(0.0);
        }
        let (mut low, mut high) = (0.0, 1e-6);
        while longer(high) > target {
            // Only exponentials are left to fall, so this ends; the bound is for rounding.
            if high > 1e9 {
                return None;
            }
            high *= 2.0;
        }
        for _ in 0..50 {
            let middle = (low + high) / 2.0;
            if longer(middle) > target { low = middle } else { high = middle }
        }
        Some(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-4 * b.abs()
    }

    #[test]
    fn known_queues() {
        // M/M/1: the chance is the load, the mean wait load/(1 - load) lengths.
        let one = wait(1, 0.5, 1.0, 1.0).unwrap();
        assert!(near(one.chance, 0.5) && near(one.mean, 1.0));
        // M/D/1: half of it (Pollaczek and Khinchine).
        assert!(near(wait(1, 0.5, 1.0, 0.0).unwrap().mean, 0.5));
        // Tables of Erlang's C.
        assert!(near(wait(2, 1.0, 1.0, 1.0).unwrap().chance, 1.0 / 3.0));
        assert!(near(wait(10, 8.0, 1.0, 1.0).unwrap().chance, 0.409_180));
        assert_eq!(wait(8, 8.0, 1.0, 1.0), None);
        assert_eq!(wait(100_000, 8.0, 1.0, 1.0).unwrap().chance, 0.0);
        assert!(wait(5000, 4900.0, 1.0, 1.0).unwrap().chance > 0.05);
    }

    #[test]
    fn minutes_are_weighed_by_requests() {
        // A minute of one request a second, then one of nine: 1 s each.
        let at = |micros| Record::exact(micros, 1_000_000);
        let mut records: Vec<Record> = (0..60).map(|second| at(second * SECOND)).collect();
        records.extend((0..541).map(|number| at(60 * SECOND + number * SECOND / 9)));
        let windows = Windows::new(&records);
        let mix = windows.mix(10, 1.0, 1.0, 1);
        assert_eq!(mix.parts.len(), 3);
        let (calm, busy) = (wait(10, 1.0, 1.0, 0.0).unwrap(), wait(10, 9.0, 1.0, 0.0).unwrap());
        let expected = (60.0 * calm.chance + 540.0 * busy.chance) / 601.0;
        assert!((mix.chance() - expected).abs() < 1e-3, "{} {expected}", mix.chance());
        assert!(mix.mean().unwrap() < mix.quantile(0.99).unwrap());
        let over = windows.mix(9, 1.0, 1.0, 1);
        assert!(near(over.overloaded(), 540.0 / 601.0) && over.mean().is_none() && over.quantile(0.99).is_none());
        assert_eq!(windows.mix(9, 1.0, 1.0, 2).overloaded(), 0.0);
    }

    #[test]
    fn long_logs_keep_few_windows() {
        let records: Vec<Record> = (0..10_000).map(|minute| Record::exact(minute * 60 * SECOND, 1000)).collect();
        let windows = Windows::new(&records);
        assert!(windows.windows.len() <= 2 * WINDOWS);
        assert_eq!(windows.windows.iter().map(|(_, window)| window.count).sum::<f64>(), 10_000.0);
    }
}
