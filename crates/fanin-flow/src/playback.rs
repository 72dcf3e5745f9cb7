//! A flow that runs again: its calls are answered as they were, after as long, in virtual time.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fanin_trace::Sharing;
use fanin_upstream::shared::SharedResult;
use fanin_upstream::{CallError, ErrorKind, Fault};
use tokio::time::Instant;

use crate::call_record::CallRecord;
use crate::flow_record::FlowRecord;
use crate::full_record::Identity;

/// Time that advances only when everything waits. Exact to the nanosecond, which timers of the runtime are not.
pub(crate) struct VirtualClock {
    start: Instant,
    now: Cell<Duration>,
    sleepers: RefCell<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    /// When to wake which, the first on top. Equal times wake in the order in which they were registered.
    times: BinaryHeap<Reverse<(Duration, u64)>>,
    wakers: HashMap<u64, Waker>,
    next: u64,
}

impl VirtualClock {
    pub(crate) fn new(start: Instant) -> Rc<VirtualClock> {
        Rc::new(VirtualClock { start, now: Cell::new(Duration::ZERO), sleepers: RefCell::default() })
    }

    pub(crate) fn now(&self) -> Instant {
        self.start + self.now.get()
    }

    /// Since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now.get()
    }

    /// Wakes at a time since the start.
    fn wake_at(&self, time: Duration, waker: &Waker) {
        let mut sleepers = self.sleepers.borrow_mut();
        let id = sleepers.next;
        sleepers.next += 1;
        sleepers.times.push(Reverse((time, id)));
        sleepers.wakers.insert(id, waker.clone());
    }

    /// The same for an instant.
    pub(crate) fn wake_at_instant(&self, time: Instant, waker: &Waker) {
        self.wake_at(time.saturating_duration_since(self.start), waker);
    }

    /// Advances to the next time at which something wakes, and wakes it. `false` if nothing ever does.
    pub(crate) fn advance(&self) -> bool {
        let mut woken = Vec::new();
        {
            let mut sleepers = self.sleepers.borrow_mut();
            let Some(Reverse((time, _))) = sleepers.times.peek().copied() else { return false };
            self.now.set(time.max(self.now.get()));
            while let Some(Reverse((at, id))) = sleepers.times.peek().copied()
                && at <= time
            {
                sleepers.times.pop();
                woken.extend(sleepers.wakers.remove(&id));
            }
        }
        woken.into_iter().for_each(Waker::wake);
        true
    }
}

/// By how much one call differs from what it was. Calls of its batch were answered by the same request, so they differ with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) call: usize,
    pub(crate) by: By,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum By {
    Longer(Duration),
    Shorter(Duration),
}

/// What a flow that runs again is answered.
pub(crate) struct Playback {
    pub(crate) clock: Rc<VirtualClock>,
    recorded: Rc<Recorded>,
    change: Option<Change>,
    /// Of each identity how many calls have been sent, and for each call of this run the recorded one.
    sent: RefCell<HashMap<Identity, usize>>,
    assigned: RefCell<HashMap<usize, usize>>,
    /// Whether it made a call that the record does not have.
    pub(crate) has_diverged: Cell<bool>,
}

/// A flow's calls, found by their identity.
pub(crate) struct Recorded {
    pub(crate) record: Arc<FlowRecord>,
    by_identity: HashMap<Identity, Vec<usize>>,
}

impl Recorded {
    /// `None` if the record is not a full one.
    pub(crate) fn new(record: Arc<FlowRecord>) -> Option<Rc<Recorded>> {
        let full = record.record.full.as_ref()?;
        let mut by_identity: HashMap<Identity, Vec<usize>> = HashMap::new();
        for (index, call) in full.calls.iter().enumerate() {
            if let Some(identity) = &call.identity {
                by_identity.entry(identity.clone()).or_default().push(index);
            }
        }
        Some(Rc::new(Recorded { record, by_identity }))
    }

    fn call(&self, index: usize) -> Option<&CallRecord> {
        self.record.record.calls.get(index)
    }
}

impl Playback {
    pub(crate) fn new(clock: Rc<VirtualClock>, recorded: Rc<Recorded>, change: Option<Change>) -> Playback {
        Playback {
            clock,
            recorded,
            change,
            sent: RefCell::default(),
            assigned: RefCell::default(),
            has_diverged: Cell::new(false),
        }
    }

    /// Call `index` of this run has this identity. If none is recorded, the flow takes another way.
    pub(crate) fn assign(&self, index: usize, identity: Identity) {
        let same = self.recorded.by_identity.get(&identity);
        let mut sent = self.sent.borrow_mut();
        let before = sent.entry(identity).or_insert(0);
        match same.and_then(|same| same.get(*before)) {
            Some(recorded) => drop(self.assigned.borrow_mut().insert(index, *recorded)),
            None => self.has_diverged.set(true),
        }
        *before += 1;
    }

    /// The recorded call that call `index` of this run is.
    pub(crate) fn find(&self, index: usize) -> Option<usize> {
        self.assigned.borrow().get(&index).copied()
    }

    /// What the recorded call shared with others.
    pub(crate) fn sharing(&self, index: usize) -> Sharing {
        self.recorded.call(index).map_or(Sharing::Alone, |call| call.sharing)
    }

    /// The answer of the recorded call, as long after now as it took. It fails at `deadline` if it has become longer.
    pub(crate) fn answer(&self, index: usize, upstream: &Arc<str>, deadline: Instant) -> Answered {
        let call = self.recorded.call(index);
        let full = self.recorded.record.record.full.as_ref();
        let result = full.and_then(|full| full.calls.get(index)).and_then(|call| call.result.clone());
        let now = self.clock.elapsed();
        let latency = call.and_then(CallRecord::latency);
        let (Some(latency), Some(result)) = (latency, result) else {
            // It was cancelled: however long it takes, it takes longer than the flow.
            return Answered { clock: self.clock.clone(), until: None, result: None };
        };
        let (mut until, mut result) = (now + latency, result);
        // How long a call would have taken that timed out is not known, only that it was longer.
        let timed_out = matches!(&result, Err(error) if error.kind == ErrorKind::Timeout);
        let change = self.change.filter(|change| !timed_out && self.concerns(change, index));
        match change.map(|change| change.by) {
            Some(By::Shorter(by)) => until = now + latency.saturating_sub(by),
            Some(By::Longer(by)) => {
                until += by;
                let deadline = deadline.saturating_duration_since(self.clock.start);
                if until > deadline && now + latency < deadline {
                    until = deadline;
                    result = Err(CallError {
                        upstream: upstream.clone(),
                        kind: ErrorKind::Timeout,
                        fault: Fault::Upstream,
                        retry: true,
                        elapsed: deadline.saturating_sub(now),
                        detail: "longer than its timeout".into(),
                    });
                }
            }
            None => {}
        }
        Answered { clock: self.clock.clone(), until: Some(until), result: Some(result) }
    }

    fn concerns(&self, change: &Change, index: usize) -> bool {
        match (self.sharing(change.call), self.sharing(index)) {
            (Sharing::Batch { batch, .. }, Sharing::Batch { batch: other, .. }) => batch == other,
            _ => change.call == index,
        }
    }
}

/// The answer of a recorded call.
pub(crate) struct Answered {
    clock: Rc<VirtualClock>,
    /// `None`: never.
    until: Option<Duration>,
    result: Option<SharedResult>,
}

impl Future for Answered {
    type Output = SharedResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<SharedResult> {
        let Some(until) = self.until else { return Poll::Pending };
        if self.clock.elapsed() < until {
            self.clock.wake_at(until, context.waker());
            return Poll::Pending;
        }
        match self.result.take() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances_to_what_wakes_first() {
        let clock = VirtualClock::new(Instant::now());
        for micros in [30, 10, 20, 10] {
            clock.wake_at(Duration::from_micros(micros), Waker::noop());
        }
        let mut times = Vec::new();
        while clock.advance() {
            times.push(clock.elapsed().as_micros());
        }
        assert_eq!(times, [10, 20, 30]);
    }
}
