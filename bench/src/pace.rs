//! How fast a core is from moment to moment: a thread that runs the same small program every few milliseconds and notes what it took
//! of the thread's own CPU time. Whoever shares the core through the scheduler does not count in that; who shares what is beneath it
//! (the other thread of a physical core, a neighbour on the host, its clock) does. It is a program of a flow, since what such a
//! neighbour takes depends on the work: of a chain of multiplications hardly anything, of what evaluates flows half. Lateness counts as well: a thread that
//! hardly ever runs is next when it wants to, unless nothing runs at all.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Failure, eval, process};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(5);
/// A turn of the scheduler on a busy core, three milliseconds, is no disturbance, nor are a few of them.
const NOTED: Duration = Duration::from_millis(10);

/// One look: when it was to begin, when it did, CPU nanoseconds that the work took.
#[derive(Clone, Copy, Debug)]
struct Look {
    due: Instant,
    now: Instant,
    took: f64,
}

/// A thread on a core.
#[derive(Debug)]
pub struct Pace {
    looks: Arc<Mutex<Vec<Look>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pace {
    /// Begins to look.
    pub fn start(core: usize) -> io::Result<Pace> {
        let (looks, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (noted, end) = (looks.clone(), ends.clone());
        let look = move || {
            // Where it can't look it sees nothing, and excuses nothing.
            let (Ok(()), Ok(mut piece)) = (process::pin(core), eval::piece()) else { return };
            while !end.load(Relaxed) {
                let due = Instant::now() + EVERY;
                process::pause(EVERY);
                let now = Instant::now();
                // The first brings it into the caches; of the others one may be interrupted.
                let Ok([_, a, b]) = try_three(&mut piece) else { return };
                let look = Look { due, now, took: a.min(b).max(1.0) };
                // Pushing leaves the list whole.
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(look);
            }
        };
        let thread = std::thread::Builder::new().name("pace".into()).spawn(look)?;
        Ok(Pace { looks, ends, thread: Some(thread) })
    }

    /// The part of the core's speed that was missing in the worst `window` of this time.
    ///
    /// Its speed is that of the fastest quarter of all looks since it began. Slower ones are not all disturbed: what the thread
    /// needs may have left the caches, which is a few hundredths.
    pub fn missing(&self, from: Instant, to: Instant, window: Duration) -> f64 {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = usual(&looks);
        let looks: Vec<Look> = looks.iter().filter(|look| look.now >= from && look.due <= to).copied().collect();
        worst(&looks, usual, window)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the work takes when nothing disturbs it: a quarter of all looks took less.
fn usual(looks: &[Look]) -> f64 {
    let mut all: Vec<f64> = looks.iter().map(|look| look.took).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 4).copied().unwrap_or(f64::NAN)
}

fn worst(looks: &[Look], usual: f64, window: Duration) -> f64 {
    let lost: Vec<f64> = looks
        .iter()
        .map(|look| {
            let lasted = (look.now - look.due + EVERY).as_secs_f64();
            let late = look.now - look.due;
            let late = if late > NOTED { late.as_secs_f64() } else { 0.0 };
            late + (lasted - late) * (1.0 - usual / look.took).max(0.0)
        })
        .collect();
    let (mut first, mut sum, mut most) = (0, 0.0, 0.0_f64);
    for (at, look) in looks.iter().enumerate() {
        sum += lost[at];
        while looks[first].now + window < look.now {
            sum -= lost[first];
            first += 1;
        }
        most = most.max(sum / window.as_secs_f64());
    }
    most.min(1.0)
}

fn try_three(piece: &mut impl FnMut() -> Result<f64, Failure>) -> Result<[f64; 3], Failure> {
    Ok([piece()?, piece()?, piece()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slow_moment_and_a_late_one_are_seen() {
        let begun = Instant::now();
        // What each of 250 looks took, one every 5 ms, and how late it was.
        let missing = |what: &dyn Fn(u32) -> (f64, u32)| {
            let looks: Vec<Look> = (0..250)
                .map(|at| {
                    let (took, late) = what(at);
                    let due = begun + at * EVERY;
                    Look { due, now: due + late * MS, took }
                })
                .collect();
            (worst(&looks, usual(&looks), 100 * MS) * 100.0).round()
        };
        assert_eq!(missing(&|_| (40.0, 0)), 0.0);
        assert_eq!(missing(&|at| (40.0, at % 3)), 0.0, "turns of the scheduler");
        let half = missing(&|at| (if (100..200).contains(&at) { 80.0 } else { 40.0 }, 0));
        assert!((45.0..=55.0).contains(&half), "{half}");
        let late = missing(&|at| (40.0, if at == 100 { 30 } else { 0 }));
        assert!((25.0..=35.0).contains(&late), "{late}");
    }
}
