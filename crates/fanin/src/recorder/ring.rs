//! The last requests of one worker, and some of them in full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Recorded;

/// Full records kept by a worker at most.
const MAX_FULL: usize = 200;
/// Calls of its requests that a worker keeps at most for each request that it may keep.
const CALLS_PER_REQUEST: usize = 32;

/// The requests, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Ring {
    recent: VecDeque<Arc<Recorded>>,
    /// Calls of those.
    calls: usize,
    full: VecDeque<Arc<Recorded>>,
    /// When the last request was chosen to be recorded in full.
    last_full: Option<Instant>,
}

impl Ring {
    /// Whether a request is to be recorded in full: at most so many a second.
    pub(super) fn takes_full(&mut self, rate: u32) -> bool {
        if rate == 0 {
            return false;
        }
        let now = Instant::now();
        let is_due = self.last_full.is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1) / rate);
        if is_due {
            self.last_full = Some(now);
        }
        is_due
    }

    /// Adds a request, and forgets the oldest ones. `workers` share the bounds.
    pub(super) fn add(&mut self, request: Arc<Recorded>, config: &fanin_config::Recorder, workers: usize) {
        let calls = |request: &Recorded| request.flow.as_ref().map_or(0, |flow| flow.len());
        if request.is_full() || request.name.is_some() {
            self.full.push_back(request.clone());
            let bytes = |ring: &Ring| {
                ring.full.iter().map(|one| one.flow.as_ref().map_or(0, |flow| flow.bytes())).sum::<usize>()
            };
            while self.full.len() > MAX_FULL || self.full.len() > 1 && bytes(self) > config.full_size / workers {
                self.full.pop_front();
            }
        }
        let most = config.requests.div_ceil(workers);
        if most == 0 || request.is_full() {
            return;
        }
        self.calls += calls(&request);
        self.recent.push_back(request);
        while self.recent.len() > most || self.recent.len() > 1 && self.calls > most * CALLS_PER_REQUEST {
            if let Some(oldest) = self.recent.pop_front() {
                self.calls -= calls(&oldest);
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<Recorded>> {
        self.recent.iter().chain(&self.full).cloned()
    }
}
