//! One limit of requests in flight with a bounded number waiting, shared by all workers.
//!
//! While nobody waits, entering and leaving are one atomic operation each. Waiting is by *count*: who would be one too many
//! is refused at once, rather than made to wait for a time that is spent already. The more important goes first, the
//! earlier of equals first; when the queue is full, the latest of the least important makes room for a more important one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::Priority;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    limit: AtomicUsize,
    max_waiting: AtomicUsize,
    in_flight: AtomicUsize,
    /// Length of `queue`. Whoever queues stores it *before* looking at `in_flight` again, and whoever leaves lowers
    /// `in_flight` before looking at it (both sequentially consistent): one of the two sees the other.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    by_priority: [VecDeque<Arc<Waiter>>; Priority::ALL.len()],
    len: usize,
}

/// Its state changes only while the queue is locked.
#[derive(Debug)]
struct Waiter {
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

const WAITING: u8 = 0;
const GRANTED: u8 = 1;
const EVICTED: u8 = 2;
const TAKEN: u8 = 3;

impl Gate {
    pub(crate) fn new(limit: usize, max_waiting: usize) -> Gate {
        Gate {
            limit: AtomicUsize::new(limit),
            max_waiting: AtomicUsize::new(max_waiting),
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    /// Changes the bounds; who is in stays in, who waits stays in the queue.
    pub(crate) fn set(&self, limit: usize, max_waiting: usize) {
        self.limit.store(limit, SeqCst);
        self.max_waiting.store(max_waiting, SeqCst);
        self.hand_over();
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Whether there is a place, and nobody waits for it.
    pub(crate) fn has_place(&self) -> bool {
        self.waiting.load(SeqCst) == 0 && self.in_flight.load(SeqCst) < self.limit.load(SeqCst)
    }

    /// Whether who comes now neither gets a place nor may wait for one. Places come and go meanwhile: it is true of a moment only.
    pub(crate) fn is_full(&self, priority: Priority) -> bool {
        if self.has_place() {
            return false;
        }
        let queue = self.lock();
        let less_important = &queue.by_priority[priority as usize + 1..];
        queue.len >= self.max_waiting.load(SeqCst)
            && less_important.iter().all(VecDeque::is_empty)
            && self.in_flight.load(SeqCst) >= self.limit.load(SeqCst)
    }

    /// Takes a place if there is one and nobody waits for it.
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        self.waiting.load(SeqCst) == 0 && self.take()
    }

    fn take(&self) -> bool {
        let limit = self.limit.load(SeqCst);
        let mut now = self.in_flight.load(SeqCst);
        while now < limit {
            match self.in_flight.compare_exchange_weak(now, now + 1, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(actual) => now = actual,
            }
        }
        false
    }

    /// Gives a place back.
    #[inline]
    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.hand_over();
        }
    }

    /// Queues for a place. `None`: the queue is full.
    pub(crate) fn enqueue(self: &Arc<Gate>, priority: Priority) -> Option<Ticket> {
        let waiter = Arc::new(Waiter { state: AtomicU8::new(WAITING), waker: Mutex::new(None) });
        {
            let mut queue = self.lock();
            if queue.len >= self.max_waiting.load(SeqCst) && !queue.evict_below(priority) {
                // The place may have become free since the caller looked; nobody would be handed it for us.
                if !(queue.len == 0 && self.take()) {
                    return None;
                }
                waiter.state.store(GRANTED, SeqCst);
            } else {
                queue.by_priority[priority as usize].push_back(waiter.clone());
                queue.len += 1;
            }
            self.waiting.store(queue.len, SeqCst);
        }
        // Someone may have left between the caller's look and the store above.
        self.hand_over();
        Some(Ticket { gate: self.clone(), waiter, priority })
    }

    /// Gives free places to those who wait.
    fn hand_over(&self) {
        let mut queue = self.lock();
        while queue.len > 0 && self.take() {
            // `len` is the number of waiters, so there is one.
            let Some(waiter) = queue.by_priority.iter_mut().find_map(VecDeque::pop_front) else { break };
            queue.len -= 1;
            waiter.settle(GRANTED);
        }
        self.waiting.store(queue.len, SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Makes room for `priority` by sending away the latest of the least important, if that is less important.
    fn evict_below(&mut self, priority: Priority) -> bool {
        let less_important = &mut self.by_priority[priority as usize + 1..];
        let Some(evicted) = less_important.iter_mut().rev().find_map(VecDeque::pop_back) else { return false };
        self.len -= 1;
        evicted.settle(EVICTED);
        true
    }
}

impl Waiter {
    fn settle(&self, state: u8) {
        self.state.store(state, SeqCst);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }
}

/// A place in the queue, later perhaps a place in flight. Dropping it gives up either.
#[derive(Debug)]
pub(crate) struct Ticket {
    gate: Arc<Gate>,
    waiter: Arc<Waiter>,
    priority: Priority,
}

/// A more important request took the place in the queue.
#[derive(Debug, PartialEq)]
pub(crate) struct Evicted;

impl Ticket {
    /// Ready with `Ok` once the place is the caller's, who must then call [`Gate::leave`] some time.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Evicted>> {
        // The waker is stored before the state is read: a state settled in between finds it.
        *self.waiter.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        match self.waiter.state.load(SeqCst) {
            GRANTED => {
                self.waiter.state.store(TAKEN, SeqCst);
                Poll::Ready(Ok(()))
            }
            EVICTED => Poll::Ready(Err(Evicted)),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queue = self.gate.lock();
        match self.waiter.state.load(SeqCst) {
            WAITING => {
                let mine = &mut queue.by_priority[self.priority as usize];
                if let Some(at) = mine.iter().position(|waiter| Arc::ptr_eq(waiter, &self.waiter)) {
                    mine.remove(at);
                    queue.len -= 1;
                    self.gate.waiting.store(queue.len, SeqCst);
                }
            }
            GRANTED => {
                drop(queue);
                self.gate.leave();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(ticket: &mut Ticket) -> Poll<Result<(), Evicted>> {
        ticket.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn bounds_hold_and_order_is_kept() {
        let gate = Arc::new(Gate::new(2, 2));
        assert!(gate.try_enter() && gate.try_enter() && !gate.try_enter());
        let mut first = gate.enqueue(Priority::Normal).unwrap();
        let mut second = gate.enqueue(Priority::Normal).unwrap();
        assert!(gate.enqueue(Priority::Normal).is_none());
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        gate.leave();
        assert!(poll(&mut second).is_pending());
        assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
        gate.leave();
        assert_eq!(poll(&mut second), Poll::Ready(Ok(())));
        assert!(!gate.try_enter());
        gate.leave();
        gate.leave();
        assert_eq!((gate.in_flight(), gate.waiting()), (0, 0));
        drop((first, second));
        assert_eq!(gate.in_flight(), 0);
    }

    #[test]
    fn newcomers_do_not_overtake() {
        let gate = Arc::new(Gate::new(1, 1));
        assert!(gate.try_enter());
        let mut ticket = gate.enqueue(Priority::Normal).unwrap();
        gate.leave();
        assert!(!gate.try_enter());
        assert_eq!(poll(&mut ticket), Poll::Ready(Ok(())));
    }

    #[test]
    fn important_goes_first_and_takes_the_place_of_the_least_important() {
        let gate = Arc::new(Gate::new(1, 3));
        assert!(gate.try_enter());
        let mut low = gate.enqueue(Priority::Low).unwrap();
        let mut early = gate.enqueue(Priority::Background).unwrap();
        let mut late = gate.enqueue(Priority::Background).unwrap();
        assert!(gate.enqueue(Priority::Background).is_none());
        let mut critical = gate.enqueue(Priority::Critical).unwrap();
        assert_eq!(poll(&mut late), Poll::Ready(Err(Evicted)));
        assert!(poll(&mut early).is_pending());
        for ticket in [&mut critical, &mut low, &mut early] {
            gate.leave();
            assert_eq!(poll(ticket), Poll::Ready(Ok(())));
        }
    }

    #[test]
    fn it_is_full_for_those_who_could_neither_enter_nor_wait() {
        let gate = Arc::new(Gate::new(1, 1));
        assert!(gate.has_place() && !gate.is_full(Priority::Normal));
        assert!(gate.try_enter());
        assert!(!gate.has_place() && !gate.is_full(Priority::Normal), "one may wait");
        let waits = gate.enqueue(Priority::Normal).unwrap();
        assert!(gate.is_full(Priority::Normal) && gate.is_full(Priority::Low));
        assert!(!gate.is_full(Priority::Critical), "it takes the other's place");
        drop(waits);
        assert!(!gate.is_full(Priority::Low));
        gate.leave();
        assert!(gate.has_place());
    }

    #[test]
    fn dropped_tickets_leave_nothing_behind() {
        let gate = Arc::new(Gate::new(1, 10));
        assert!(gate.try_enter());
        let waiting = gate.enqueue(Priority::Normal).unwrap();
        let granted = gate.enqueue(Priority::Normal).unwrap();
        drop(waiting);
        assert_eq!(gate.waiting(), 1);
        gate.leave();
        assert_eq!(gate.in_flight(), 1);
        drop(granted);
        assert_eq!((gate.in_flight(), gate.waiting()), (0, 0));
    }

    #[test]
    fn a_raised_limit_lets_waiters_in() {
        let gate = Arc::new(Gate::new(1, 10));
        assert!(gate.try_enter());
        let mut ticket = gate.enqueue(Priority::Normal).unwrap();
        gate.set(2, 10);
        assert_eq!(poll(&mut ticket), Poll::Ready(Ok(())));
    }

    #[test]
    fn nobody_is_forgotten_when_threads_race() {
        let gate = Arc::new(Gate::new(2, 1000));
        let inside = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async {
                        for _ in 0..2000 {
                            if !gate.try_enter() {
                                let mut ticket = gate.enqueue(Priority::Normal).unwrap();
                                std::future::poll_fn(|cx| ticket.poll(cx)).await.unwrap();
                            }
                            assert!(inside.fetch_add(1, SeqCst) < 2);
                            inside.fetch_sub(1, SeqCst);
                            gate.leave();
                        }
                    });
                });
            }
        });
        assert_eq!((gate.in_flight(), gate.waiting()), (0, 0));
    }
}
