//! The last requests of one worker, and some of them in full.

use std::collections::VecDeque;
use std::sync::Arc;

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
}

impl Ring {
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
