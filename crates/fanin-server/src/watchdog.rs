//! Notices a worker that one piece of work holds too long.
//!
//! A worker counts its turns; one that is awake and does not turn is held. The watchdog is a thread of its own, since what it
//! watches may never give control back.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::heartbeat::Heartbeat;
use crate::metrics::WorkerStats;

/// What else is looked at cannot wait longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A worker under watch.
pub(crate) struct Watched {
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) stats: Arc<WorkerStats>,
}

/// Watches until the sender of `end` is gone. `look` is called each time, for what else is to be looked at, and gives the
/// bound, which a reload may change; `describe` the words for an activity.
pub(crate) fn run(
    workers: &[Watched],
    end: &Receiver<()>,
    mut look: impl FnMut(Instant) -> Duration,
    describe: impl Fn(u64) -> String,
) {
    let mut seen = workers.iter().map(|_| Seen::default()).collect::<Vec<_>>();
    loop {
        let bound = look(Instant::now());
        let pause = (bound / 2).clamp(Duration::from_millis(1), LONGEST_PAUSE);
        match end.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        let now = Instant::now();
        for (index, (worker, seen)) in workers.iter().zip(&mut seen).enumerate() {
            match seen.look(worker.heartbeat.awake_beat(), now, bound) {
                Look::Fine => {}
                Look::Held(since) => {
                    worker.stats.stalls.add(1);
                    let held_ms = since.as_millis() as u64;
                    match worker.heartbeat.activity() {
                        0 => tracing::warn!(worker = index, held_ms, "a worker is held"),
                        activity => {
                            tracing::warn!(worker = index, held_ms, by = %describe(activity), "a worker is held");
                        }
                    }
                }
                Look::Released(after) => {
                    worker.stats.stalled_micros.add(after.as_micros() as u64);
                    tracing::warn!(worker = index, held_ms = after.as_millis() as u64, "the worker goes on");
                }
            }
        }
    }
}

/// What was last seen of a worker.
#[derive(Debug, Default)]
struct Seen {
    /// The turn, and when it was first seen.
    turn: Option<(u64, Instant)>,
    held: bool,
}

#[derive(Debug, PartialEq)]
enum Look {
    Fine,
    /// The first look at which the bound is passed; for how long it is held at least.
    Held(Duration),
    /// A held worker turns again; for how long it was held, give or take a look.
    Released(Duration),
}

impl Seen {
    fn look(&mut self, turn: Option<u64>, now: Instant, bound: Duration) -> Look {
        if let (Some(turn), Some((same, since))) = (turn, self.turn)
            && turn == same
        {
            let held = now - since;
            if held < bound || self.held {
                return Look::Fine;
            }
            self.held = true;
            return Look::Held(held);
        }
        let before = self.turn.replace((turn.unwrap_or(0), now)).filter(|_| std::mem::take(&mut self.held));
        if turn.is_none() {
            self.turn = None;
        }
        before.map_or(Look::Fine, |(_, since)| Look::Released(now - since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_told_once_and_ends_once() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut seen = Seen::default();
        let mut look = |turn, at: u32| seen.look(turn, start + at * ms, 20 * ms);
        assert_eq!(look(Some(1), 0), Look::Fine);
        assert_eq!(look(Some(1), 19), Look::Fine);
        assert_eq!(look(Some(1), 21), Look::Held(21 * ms));
        assert_eq!(look(Some(1), 31), Look::Fine);
        assert_eq!(look(Some(2), 41), Look::Released(41 * ms));
        assert_eq!(look(Some(3), 70), Look::Fine);
        assert_eq!(look(Some(3), 90), Look::Held(20 * ms));
        assert_eq!(look(None, 100), Look::Released(30 * ms));
        assert_eq!(look(None, 200), Look::Fine);
        assert_eq!(look(Some(3), 210), Look::Fine, "asleep in between");
        assert_eq!(look(Some(3), 229), Look::Fine);
    }
}
