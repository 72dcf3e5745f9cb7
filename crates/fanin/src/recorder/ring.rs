//! The last requests of one worker, and some of them in full.
//!
//! What nearly every request has is kept by value, and its calls in a [`CallRing`]: a worker writes to the same memory again and again, in
//! order. Whoever looks at the requests takes a copy.

use std::collections::VecDeque;
use std::sync::Arc;

use fanin_flow::{CallRing, RingEntry};

use super::Recorded;

/// Full records kept by a worker at most.
const MAX_FULL: usize = 200;
/// Calls of its requests that a worker keeps at most for each request that it may keep.
const CALLS_PER_REQUEST: usize = 32;

/// The requests, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    recent: VecDeque<Kept>,
    /// Number of calls of those.
    calls: usize,
    ring: CallRing,
    full: VecDeque<Arc<Recorded>>,
}

/// A request.
#[derive(Clone, Debug)]
struct Kept {
    /// Without a record of its calls, if they are in the ring.
    request: Recorded,
    in_ring: Option<RingEntry>,
}

impl Kept {
    fn calls(&self) -> usize {
        match &self.in_ring {
            Some(entry) => entry.len(),
            None => self.request.flow.as_ref().map_or(0, |flow| flow.len()),
        }
    }

    fn whole(&self, ring: &CallRing) -> Arc<Recorded> {
        let mut request = self.request.clone();
        if let Some(record) = self.in_ring.as_ref().and_then(|entry| ring.record(entry)) {
            request.flow = Some(Arc::new(record));
        }
        Arc::new(request)
    }
}

impl Ring {
    /// Adds a request, and forgets the oldest ones. `workers` share the bounds.
    pub(super) fn add(&mut self, mut request: Recorded, config: &fanin_config::Recorder, workers: usize) {
        if request.is_full() || request.name.is_some() {
            return self.add_full(request, config, workers);
        }
        let most = config.requests.div_ceil(workers);
        if most == 0 {
            return;
        }
        let mut in_ring = None;
        if let Some(record) = request.flow.take() {
            match self.ring.add(record) {
                Ok(entry) => in_ring = Some(entry),
                Err(record) => request.flow = Some(record),
            }
        }
        let kept = Kept { request, in_ring };
        self.calls += kept.calls();
        self.recent.push_back(kept);
        while self.recent.len() > most || self.recent.len() > 1 && self.calls > most * CALLS_PER_REQUEST {
            self.forget_oldest();
        }
    }

    #[cold]
    fn add_full(&mut self, request: Recorded, config: &fanin_config::Recorder, workers: usize) {
        self.full.push_back(Arc::new(request));
        let bytes =
            |ring: &Ring| ring.full.iter().map(|one| one.flow.as_ref().map_or(0, |flow| flow.bytes())).sum::<usize>();
        while self.full.len() > MAX_FULL || self.full.len() > 1 && bytes(self) > config.full_size / workers {
            self.full.pop_front();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.recent.pop_front() else { return };
        self.calls -= oldest.calls();
        if let Some(entry) = &oldest.in_ring {
            self.ring.remove(entry);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<Recorded>> {
        self.recent.iter().map(|kept| kept.whole(&self.ring)).chain(self.full.iter().cloned())
    }

    /// The first that is wanted.
    pub(super) fn find(&self, is_wanted: impl Fn(&Recorded) -> bool) -> Option<Arc<Recorded>> {
        let full = self.full.iter().find(|one| is_wanted(one)).cloned();
        full.or_else(|| Some(self.recent.iter().find(|kept| is_wanted(&kept.request))?.whole(&self.ring)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fanin_flow::Detail;
    use fanin_server::RequestId;
    use http::{Method, StatusCode};

    use super::super::{Recorder, Running};
    use super::*;

    fn request(number: u64, name: Option<&str>) -> Recorded {
        Recorded {
            id: RequestId::new(number),
            name: name.map(Into::into),
            route: "GET /".into(),
            method: Method::GET,
            path: smallvec::SmallVec::new(),
            start: tokio::time::Instant::now(),
            duration: Duration::ZERO,
            queued: Duration::ZERO,
            status: StatusCode::OK,
            partial: false,
            flow: None,
        }
    }

    #[test]
    fn the_oldest_are_forgotten_and_named_ones_are_kept_apart() {
        let config = fanin_config::Recorder { requests: 3, ..fanin_config::Recorder::default() };
        let mut ring = Ring::default();
        ring.add(request(0, Some("mine")), &config, 1);
        for number in 1..=5 {
            ring.add(request(number, None), &config, 1);
        }
        let ids: Vec<String> = ring.all().map(|one| one.id.to_string()).collect();
        let expected: Vec<String> = [3, 4, 5, 0].map(|number| RequestId::new(number).to_string()).into();
        assert_eq!(ids, expected);
        assert!(ring.find(|one| one.name.as_deref() == Some("mine")).is_some());
        assert!(ring.find(|one| one.id == RequestId::new(1)).is_none());
    }

    #[test]
    fn a_worker_does_not_wait_for_somebody_who_looks() {
        let recorder = Recorder::new(&fanin_config::Config::default());
        let end = |number, name| {
            let running = Running(Box::new(request(number, name)), Detail::Calls);
            recorder.end(running, StatusCode::OK, false, None);
        };
        end(1, None);
        let rings = recorder.rings();
        let looking = rings[0].lock().expect("nobody has panicked");
        end(2, None);
        drop(looking);
        assert_eq!(recorder.requests().len(), 1, "the second one is late");
        end(3, Some("mine"));
        assert_eq!(recorder.requests().len(), 3);
    }
}
