//! The log's own requests through a given number of threads: who would have waited, and how long.
//!
//! A first-come-first-served queue before `threads` servers (G/G/c), driven by the arrivals and lengths of the log.
//! Requests go to the servers of a tier in turn. Growth g is taken as the same arrivals in 1/g of the time, slowness s as
//! lengths times s: on a clock that runs g times as slow that is the log's own arrivals with lengths times g·s, so the
//! simulation runs on that clock and waits are divided by g.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hdrhistogram::Histogram;

use super::occupancy::{histogram, record};
use super::record::Record;

/// What goes through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    /// In order of their starts.
    pub(crate) records: &'a [Record],
    /// So many times the requests.
    pub(crate) growth: f64,
    /// So many times the length.
    pub(crate) slow: f64,
    pub(crate) servers: u32,
}

impl<'a> Load<'a> {
    /// Arrivals and lengths (on the slowed clock) of one server of the tier.
    pub(crate) fn of_server(self, server: u32) -> impl Iterator<Item = (i64, i64)> + 'a {
        let factor = self.growth * self.slow;
        self.records
            .iter()
            .skip(server as usize)
            .step_by(self.servers as usize)
            .map(move |one| (one.start(), (one.length() as f64 * factor).round() as i64))
    }
}

/// What became of the requests.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    /// Found no free thread and waited.
    pub(crate) waited: u64,
    /// Found no free thread and no place to wait.
    pub(crate) refused: u64,
    /// Waits of all that were served, microseconds; those who did not wait with zero.
    waits: Histogram<u64>,
    total: f64,
    longest: i64,
    /// The most that waited at once on a server.
    pub(crate) queue: u64,
    growth: f64,
}

impl Outcome {
    fn seconds(&self, micros: f64) -> f64 {
        micros / self.growth / 1e6
    }

    /// Mean wait of all served requests, seconds.
    pub(crate) fn mean(&self) -> f64 {
        let served = self.requests - self.refused;
        if served == 0 { 0.0 } else { self.seconds(self.total / served as f64) }
    }

    /// The wait that this share of served requests does not exceed, seconds, to three digits.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        self.seconds(self.waits.value_at_quantile(share) as f64).min(self.longest())
    }

    /// The longest wait, seconds.
    pub(crate) fn longest(&self) -> f64 {
        self.seconds(self.longest as f64)
    }
}

/// Runs the load through `threads` on each server, with at most `waiting` requests in a server's queue.
pub(crate) fn run(load: Load<'_>, threads: u32, waiting: Option<u32>) -> Outcome {
    let mut outcome = Outcome {
        requests: load.records.len() as u64,
        waited: 0,
        refused: 0,
        waits: histogram(),
        total: 0.0,
        longest: 0,
        queue: 0,
        growth: load.growth,
    };
    for server in 0..load.servers {
        serve(load.of_server(server), threads, waiting, &mut outcome);
    }
    let at_once = outcome.requests - outcome.waited - outcome.refused;
    // Zero is always within the histogram.
    outcome.waits.saturating_record_n(0, at_once);
    outcome
}

fn serve(requests: impl Iterator<Item = (i64, i64)>, threads: u32, waiting: Option<u32>, outcome: &mut Outcome) {
    let mut busy: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
    // When those who wait begin. First come, first served: in order.
    let mut begins: VecDeque<i64> = VecDeque::new();
    for (arrival, length) in requests {
        if busy.len() < threads as usize {
            busy.push(Reverse(arrival + length));
            continue;
        }
        // The heap is full, and `threads` is at least 1, so there is a first.
        let Some(mut first) = busy.peek_mut() else { return };
        if first.0 <= arrival {
            *first = Reverse(arrival + length);
            continue;
        }
        while begins.front().is_some_and(|begin| *begin <= arrival) {
            begins.pop_front();
        }
        if waiting.is_some_and(|waiting| begins.len() >= waiting as usize) {
            outcome.refused += 1;
            continue;
        }
        let begin = first.0;
        *first = Reverse(begin.saturating_add(length));
        begins.push_back(begin);
        let wait = begin - arrival;
        outcome.waited += 1;
        record(&mut outcome.waits, wait as u64);
        outcome.total += wait as f64;
        outcome.longest = outcome.longest.max(wait);
        outcome.queue = outcome.queue.max(begins.len() as u64);
    }
}

/// Whether more than `allowed` requests wait; stops as soon as it is known.
fn more_wait(load: Load<'_>, threads: u32, allowed: u64) -> bool {
    let mut waited = 0;
    for server in 0..load.servers {
        let mut busy: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
        for (arrival, length) in load.of_server(server) {
            if busy.len() < threads as usize {
                busy.push(Reverse(arrival + length));
                continue;
            }
            let Some(mut first) = busy.peek_mut() else { break };
            let begin = first.0.max(arrival);
            *first = Reverse(begin.saturating_add(length));
            if begin > arrival {
                waited += 1;
                if waited > allowed {
                    return true;
                }
            }
        }
    }
    false
}

/// The least number of threads a server with which at most this share of requests waits, `most` being enough for none to.
///
/// One thread more lets no request of a first-come-first-served queue wait longer (Kiefer and Wolfowitz 1955), so halving
/// finds it.
pub(crate) fn least(load: Load<'_>, most: u32, share: f64) -> u32 {
    let allowed = (load.records.len() as f64 * share).floor() as u64;
    let (mut low, mut high) = (1, most.max(1));
    while low < high {
        let middle = low + (high - low) / 2;
        if more_wait(load, middle, allowed) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::mgc;
    use crate::size::sweep::most;

    const MS: i64 = 1000;

    fn load(records: &[Record]) -> Load<'_> {
        Load { records, growth: 1.0, slow: 1.0, servers: 1 }
    }

    fn requests(of: &[(i64, i64)]) -> Vec<Record> {
        of.iter().map(|(start, length)| Record::exact(start * MS, (length * MS) as u64)).collect()
    }

    #[test]
    fn waits_are_those_of_hand() {
        let records = requests(&[(0, 100), (10, 100), (20, 100), (250, 10)]);
        let one = run(load(&records), 1, None);
        assert_eq!((one.requests, one.waited, one.refused, one.queue), (4, 3, 0, 2));
        // Waits: 0, 90, 180, 50.
        assert!((one.mean() - 0.080).abs() < 1e-9 && (one.longest() - 0.180).abs() < 1e-9);
        assert!((one.quantile(0.5) - 0.050).abs() < 1e-4);
        let bounded = run(load(&records), 1, Some(1));
        assert_eq!((bounded.waited, bounded.refused, bounded.queue), (1, 1, 1));
        assert_eq!(run(load(&records), 1, Some(0)).refused, 2);
        assert_eq!(run(load(&records), 3, None).waited, 0);
        // One that comes as another ends finds its thread free.
        assert_eq!(run(load(&requests(&[(0, 100), (100, 100)])), 1, None).waited, 0);
    }

    #[test]
    fn growth_and_slowness_scale_waits() {
        let records = requests(&[(0, 100), (10, 100), (20, 100)]);
        // Twice the rate: arrivals at 0, 5, 10; one thread: waits 0, 95, 190.
        let grown = run(Load { growth: 2.0, ..load(&records) }, 1, None);
        assert!((grown.mean() - 0.095).abs() < 1e-9);
        // Twice the length: waits 0, 190, 380.
        let slowed = run(Load { slow: 2.0, ..load(&records) }, 1, None);
        assert!((slowed.mean() - 0.190).abs() < 1e-9);
        // Two servers: the third waits for the first only.
        let two = run(Load { servers: 2, ..load(&records) }, 1, None);
        assert_eq!((two.waited, two.longest()), (1, 0.080));
    }

    #[test]
    fn the_least_size_is_exact() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut records: Vec<Record> =
            (0..3000).map(|_| Record::exact(next(100_000_000) as i64, next(1_000_000))).collect();
        records.sort_unstable_by_key(|record| record.start());
        let all = load(&records);
        let peak = most(records.iter().map(|record| (record.start(), record.end()))) as u32;
        assert_eq!(run(all, peak, None).waited, 0);
        assert!(run(all, peak - 1, None).waited > 0);
        assert_eq!(least(all, peak, 0.0), peak);
        let size = least(all, peak, 0.01);
        assert!(run(all, size, None).waited <= 30 && run(all, size - 1, None).waited > 30);
    }

    #[test]
    fn chance_agrees_with_theory_where_theory_holds() {
        // Poisson arrivals at 8 a second, exponential lengths of 1 s, 10 threads: Erlang's C is 0.409, the mean wait 0.2046 s.
        let mut random = 0x1234_5678_9abc_def1u64;
        let mut exponential = |mean: f64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            -mean * (((random >> 11) as f64 + 0.5) / (1u64 << 53) as f64).ln()
        };
        let mut now = 0.0;
        let records: Vec<Record> = (0..400_000)
            .map(|_| {
                now += exponential(125_000.0);
                Record::exact(now as i64, exponential(1e6) as u64)
            })
            .collect();
        let simulated = run(load(&records), 10, None);
        let theory = mgc::wait(10, 8.0, 1.0, 1.0).unwrap();
        let share = simulated.waited as f64 / simulated.requests as f64;
        assert!((share / theory.chance - 1.0).abs() < 0.05, "{share} {}", theory.chance);
        assert!((simulated.mean() / theory.mean - 1.0).abs() < 0.08, "{} {}", simulated.mean(), theory.mean);
    }
}
