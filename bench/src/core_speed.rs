//! Speed of a core over time: a thread runs the same small program every few milliseconds and records its CPU time.
//!
//! Threads that share the core through the OS scheduler do not count in CPU time. What shares the hardware beneath does: the
//! sibling of a physical core, a neighbour on the host, the clock. The program is a flow, because the effect of such a neighbour
//! depends on the work. Wake-up delays count as well: a thread that hardly runs is scheduled next, unless nothing runs at all.

use std::io;
use std::time::{Duration, Instant};

use crate::sampler::Sampler;
use crate::{Failure, eval};

const INTERVAL: Duration = Duration::from_millis(5);
/// Some turns of the OS scheduler on a busy core are no disturbance.
const MIN_DELAY: Duration = Duration::from_millis(10);

/// One sample: when it was due, when it began, and the CPU nanoseconds that the program took.
#[derive(Clone, Copy, Debug)]
struct Sample {
    due: Instant,
    now: Instant,
    took: f64,
}

/// Watches one core.
#[derive(Debug)]
pub struct CoreSpeed(Sampler<Sample>);

impl CoreSpeed {
    pub fn start(core: usize) -> io::Result<CoreSpeed> {
        let prepare = || {
            let mut piece = eval::piece().ok()?;
            Some(move |due: Instant| {
                let now = Instant::now();
                // The first run warms the caches; of the others one may be interrupted.
                let [_, a, b] = run_three_times(&mut piece).map_err(drop)?;
                Ok(Some(Sample { due, now, took: a.min(b).max(1.0) }))
            })
        };
        Ok(CoreSpeed(Sampler::start(core, INTERVAL, prepare)?))
    }

    /// The share of the core's speed that was missing in the worst `window` between `from` and `to`.
    ///
    /// The full speed is that of the fastest quarter of all samples. Slower ones are not all disturbed: a cold cache costs a few
    /// percent.
    pub fn missing(&self, from: Instant, to: Instant, window: Duration) -> f64 {
        let samples = self.0.samples();
        let usual = usual(&samples);
        let samples: Vec<Sample> =
            samples.iter().filter(|sample| sample.now >= from && sample.due <= to).copied().collect();
        worst(&samples, usual, window)
    }
}

/// Time of an undisturbed run: a quarter of all samples took less.
fn usual(samples: &[Sample]) -> f64 {
    let mut all: Vec<f64> = samples.iter().map(|sample| sample.took).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 4).copied().unwrap_or(f64::NAN)
}

fn worst(samples: &[Sample], usual: f64, window: Duration) -> f64 {
    let lost: Vec<f64> = samples
        .iter()
        .map(|sample| {
            let lasted = (sample.now - sample.due + INTERVAL).as_secs_f64();
            let late = sample.now - sample.due;
            let late = if late > MIN_DELAY { late.as_secs_f64() } else { 0.0 };
            late + (lasted - late) * (1.0 - usual / sample.took).max(0.0)
        })
        .collect();
    let (mut first, mut sum, mut most) = (0, 0.0, 0.0_f64);
    for (at, sample) in samples.iter().enumerate() {
        sum += lost[at];
        while samples[first].now + window < sample.now {
            sum -= lost[first];
            first += 1;
        }
        most = most.max(sum / window.as_secs_f64());
    }
    most.min(1.0)
}

fn run_three_times(piece: &mut impl FnMut() -> Result<f64, Failure>) -> Result<[f64; 3], Failure> {
    Ok([piece()?, piece()?, piece()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn slow_and_late_samples_are_found() {
        let begun = Instant::now();
        // Time and delay of each of 250 samples, one every 5 ms.
        let missing = |what: &dyn Fn(u32) -> (f64, u32)| {
            let samples: Vec<Sample> = (0..250)
                .map(|at| {
                    let (took, late) = what(at);
                    let due = begun + at * INTERVAL;
                    Sample { due, now: due + late * MS, took }
                })
                .collect();
            (worst(&samples, usual(&samples), 100 * MS) * 100.0).round()
        };
        assert_eq!(missing(&|_| (40.0, 0)), 0.0);
        assert_eq!(missing(&|at| (40.0, at % 3)), 0.0, "turns of the OS scheduler");
        let half = missing(&|at| (if (100..200).contains(&at) { 80.0 } else { 40.0 }, 0));
        assert!((45.0..=55.0).contains(&half), "{half}");
        let late = missing(&|at| (40.0, if at == 100 { 30 } else { 0 }));
        assert!((25.0..=35.0).contains(&late), "{late}");
    }
}
