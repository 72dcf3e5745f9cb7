//! The watchdog: notices a worker that one piece of work stalls.
//!
//! A worker's heartbeat counts pieces of work. A worker that is awake and whose heartbeat does not change is stalled. The watchdog is a
//! thread of its own, since a stalled worker may never yield.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::heartbeat::Heartbeat;
use crate::metrics::WorkerStats;

/// The other periodic work of this thread needs a call at least this often.
const MAX_INTERVAL: Duration = Duration::from_millis(100);

/// A worker under watch.
pub(crate) struct Watched {
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) stats: Arc<WorkerStats>,
}

/// Watches until the sender of `end` is dropped. `tick` is called in each interval for other periodic work, and returns `[server] stall`,
/// which a reload may change. `describe` turns an activity into text. `stalled` is told of each stall: worker, how long, activity.
pub(crate) fn run(
    workers: &[Watched],
    end: &Receiver<()>,
    mut tick: impl FnMut(Instant) -> Duration,
    describe: impl Fn(u64) -> String,
    stalled: impl Fn(usize, Duration, u64),
) {
    let mut observed = workers.iter().map(|_| Observed::default()).collect::<Vec<_>>();
    loop {
        let bound = tick(Instant::now());
        let pause = (bound / 2).clamp(Duration::from_millis(1), MAX_INTERVAL);
        match end.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        let now = Instant::now();
        for (index, (worker, observed)) in workers.iter().zip(&mut observed).enumerate() {
            match observed.observe(worker.heartbeat.awake_beat(), now, bound) {
                Observation::Fine => {}
                Observation::Stalled(since) => {
                    worker.stats.stalls.add(1);
                    let stalled_ms = since.as_millis() as u64;
                    match worker.heartbeat.activity() {
                        0 => tracing::warn!(worker = index, stalled_ms, "a worker is stalled"),
                        activity => {
                            tracing::warn!(worker = index, stalled_ms, by = %describe(activity), "a worker is stalled");
                        }
                    }
                    stalled(index, since, worker.heartbeat.activity());
                }
                Observation::Released(after) => {
                    worker.stats.stalled_micros.add(after.as_micros() as u64);
                    tracing::warn!(worker = index, stalled_ms = after.as_millis() as u64, "the worker runs again");
                }
            }
        }
    }
}

/// What was last observed of a worker.
#[derive(Debug, Default)]
struct Observed {
    /// The heartbeat, and when it was first observed.
    beat: Option<(u64, Instant)>,
    stalled: bool,
}

#[derive(Debug, PartialEq)]
enum Observation {
    Fine,
    /// The bound has just been exceeded; for how long it is stalled at least.
    Stalled(Duration),
    /// A stalled worker runs again; for how long it was stalled, plus or minus one interval.
    Released(Duration),
}

impl Observed {
    fn observe(&mut self, beat: Option<u64>, now: Instant, bound: Duration) -> Observation {
        if let (Some(beat), Some((same, since))) = (beat, self.beat)
            && beat == same
        {
            let stalled = now - since;
            if stalled < bound || self.stalled {
                return Observation::Fine;
            }
            self.stalled = true;
            return Observation::Stalled(stalled);
        }
        let before = self.beat.replace((beat.unwrap_or(0), now)).filter(|_| std::mem::take(&mut self.stalled));
        if beat.is_none() {
            self.beat = None;
        }
        before.map_or(Observation::Fine, |(_, since)| Observation::Released(now - since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_reported_once_and_ends_once() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut observed = Observed::default();
        let mut observe = |beat, at: u32| observed.observe(beat, start + at * ms, 20 * ms);
        assert_eq!(observe(Some(1), 0), Observation::Fine);
        assert_eq!(observe(Some(1), 19), Observation::Fine);
        assert_eq!(observe(Some(1), 21), Observation::Stalled(21 * ms));
        assert_eq!(observe(Some(1), 31), Observation::Fine);
        assert_eq!(observe(Some(2), 41), Observation::Released(41 * ms));
        assert_eq!(observe(Some(3), 70), Observation::Fine);
        assert_eq!(observe(Some(3), 90), Observation::Stalled(20 * ms));
        assert_eq!(observe(None, 100), Observation::Released(30 * ms));
        assert_eq!(observe(None, 200), Observation::Fine);
        assert_eq!(observe(Some(3), 210), Observation::Fine, "asleep in between");
        assert_eq!(observe(Some(3), 229), Observation::Fine);
    }
}
