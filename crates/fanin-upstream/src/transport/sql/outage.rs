//! Backoff for a server that cannot be reached, so that not every call tries to connect.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::error::Failure;

/// The pause after the first failed attempt. It doubles with each further one.
const FIRST: Duration = Duration::from_millis(25);
/// Short enough to find a server soon after it is back, and long enough to protect it from thousands of attempts.
const LONGEST: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<State>>);

#[derive(Debug)]
struct State {
    until: Instant,
    pause: Duration,
    why: Failure,
}

impl Outage {
    /// Whether to connect now. After a pause one caller tries; others only if that takes longer than the pause.
    pub fn check(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        let mut state = self.lock();
        let Some(known) = &mut *state else { return Ok(()) };
        let now = Instant::now();
        if now >= known.until {
            known.until = now + known.pause;
            return Ok(());
        }
        tracing::trace!(endpoint = %endpoint.address, "no attempt to connect during the backoff");
        Err(known.why.clone())
    }

    /// The result of an attempt that started at `begun`.
    pub fn settle(&self, begun: Instant, failure: Option<&Failure>) {
        let mut state = self.lock();
        let Some(failure) = failure else {
            *state = None;
            return;
        };
        let pause = match &*state {
            // Concurrent attempts count as one failure.
            Some(known) if begun + known.pause < known.until => known.pause,
            Some(known) => (known.pause * 2).min(LONGEST),
            None => FIRST,
        };
        *state = Some(State { until: Instant::now() + pause, pause, why: failure.clone() });
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
