//! Stalls of a core: when a thread that wants to run for a moment every millisecond could not.
//!
//! On a shared machine this tells a server's delay from the machine's.

use std::io;
use std::time::{Duration, Instant};

use crate::sampler::Sampler;

const INTERVAL: Duration = Duration::from_millis(1);
/// Some turns of the OS scheduler on a busy core are no stall.
const MIN_STALL: Duration = Duration::from_millis(5);

/// Watches one core.
#[derive(Debug)]
pub struct StallMonitor(Sampler<(Instant, Instant)>);

impl StallMonitor {
    pub fn start(core: usize) -> io::Result<StallMonitor> {
        let sample = |due: Instant| {
            let now = Instant::now();
            Ok((now.saturating_duration_since(due) > MIN_STALL).then_some((due, now)))
        };
        Ok(StallMonitor(Sampler::start(core, INTERVAL, move || Some(sample))?))
    }

    /// Time between `from` and `to` in which the core was stalled.
    pub fn stalled(&self, from: Instant, to: Instant) -> Duration {
        let stalls = self.0.samples();
        stalls.iter().map(|(begun, ended)| (*ended).min(to).saturating_duration_since((*begun).max(from))).sum()
    }
}
