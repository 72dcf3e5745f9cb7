//! A limit on requests in flight with a bounded admission queue, shared by all workers.
//!
//! While the queue is empty, acquiring and releasing a permit are one atomic operation each. The queue is bounded by *count*: a
//! request that finds it full is refused at once. Higher priority goes first, and within a priority the earlier request. When the
//! queue is full, the latest request of the lowest priority makes room for one of higher priority.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::Priority;

/// One limit with its queue.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: AtomicUsize,
    max_waiting: AtomicUsize,
    in_flight: AtomicUsize,
    /// Length of `queue`. A waiter stores it *before* it reads `in_flight` again, and a release lowers `in_flight` before it reads
    /// this. Both are sequentially consistent, so one of the two sees the other.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    by_priority: [VecDeque<Arc<Waiter>>; Priority::ALL.len()],
    len: usize,
}

/// A waiting request. Its state changes only while the queue is locked.
#[derive(Debug)]
struct Waiter {
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

const WAITING: u8 = 0;
const GRANTED: u8 = 1;
const EVICTED: u8 = 2;
const TAKEN: u8 = 3;

impl Limiter {
    pub(crate) fn new(limit: usize, max_waiting: usize) -> Limiter {
        Limiter {
            limit: AtomicUsize::new(limit),
            max_waiting: AtomicUsize::new(max_waiting),
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    /// Changes the bounds. Permits that are held stay valid; waiting requests stay queued.
    pub(crate) fn set(&self, limit: usize, max_waiting: usize) {
        self.limit.store(limit, SeqCst);
        self.max_waiting.store(max_waiting, SeqCst);
        self.grant_waiting();
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Whether a permit is free and the queue is empty.
    pub(crate) fn has_free_permit(&self) -> bool {
        self.waiting.load(SeqCst) == 0 && self.in_flight.load(SeqCst) < self.limit.load(SeqCst)
    }

    /// Whether a new request would neither get a permit nor room in the queue. Valid at this moment only.
    pub(crate) fn is_full(&self, priority: Priority) -> bool {
        if self.has_free_permit() {
            return false;
        }
        let queue = self.lock();
        let lower = &queue.by_priority[priority as usize + 1..];
        queue.len >= self.max_waiting.load(SeqCst)
            && lower.iter().all(VecDeque::is_empty)
            && self.in_flight.load(SeqCst) >= self.limit.load(SeqCst)
    }

    /// Acquires a permit if one is free and the queue is empty.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        self.waiting.load(SeqCst) == 0 && self.take_free()
    }

    fn take_free(&self) -> bool {
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

    /// Releases a permit.
    #[inline]
    pub(crate) fn release(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.grant_waiting();
        }
    }

    /// Joins the queue. `None`: it is full.
    pub(crate) fn enqueue(self: &Arc<Limiter>, priority: Priority) -> Option<QueuedPermit> {
        let waiter = Arc::new(Waiter { state: AtomicU8::new(WAITING), waker: Mutex::new(None) });
        {
            let mut queue = self.lock();
            if queue.len >= self.max_waiting.load(SeqCst) && !queue.evict_below(priority) {
                // A permit may have been released since the caller tried; with an empty queue no one would grant it to us.
                if !(queue.len == 0 && self.take_free()) {
                    return None;
                }
                waiter.state.store(GRANTED, SeqCst);
            } else {
                queue.by_priority[priority as usize].push_back(waiter.clone());
                queue.len += 1;
            }
            self.waiting.store(queue.len, SeqCst);
        }
        // A permit may have been released between the caller's attempt and the store above.
        self.grant_waiting();
        Some(QueuedPermit { limiter: self.clone(), waiter, priority })
    }

    /// Grants free permits to waiting requests.
    fn grant_waiting(&self) {
        let mut queue = self.lock();
        while queue.len > 0 && self.take_free() {
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
    /// Makes room for `priority`: evicts the latest request of the lowest priority below it, if there is one.
    fn evict_below(&mut self, priority: Priority) -> bool {
        let lower = &mut self.by_priority[priority as usize + 1..];
        let Some(evicted) = lower.iter_mut().rev().find_map(VecDeque::pop_back) else { return false };
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

/// A place in the queue, and the permit once it is granted. Dropping it gives up either.
#[derive(Debug)]
pub(crate) struct QueuedPermit {
    limiter: Arc<Limiter>,
    waiter: Arc<Waiter>,
    priority: Priority,
}

/// A request of higher priority took the place in the queue.
#[derive(Debug, PartialEq)]
pub(crate) struct Evicted;

impl QueuedPermit {
    /// Ready with `Ok` once the permit is granted. The caller must then call [`Limiter::release`] eventually.
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

impl Drop for QueuedPermit {
    fn drop(&mut self) {
        let mut queue = self.limiter.lock();
        match self.waiter.state.load(SeqCst) {
            WAITING => {
                let mine = &mut queue.by_priority[self.priority as usize];
                if let Some(at) = mine.iter().position(|waiter| Arc::ptr_eq(waiter, &self.waiter)) {
                    mine.remove(at);
                    queue.len -= 1;
                    self.limiter.waiting.store(queue.len, SeqCst);
                }
            }
            GRANTED => {
                drop(queue);
                self.limiter.release();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(queued: &mut QueuedPermit) -> Poll<Result<(), Evicted>> {
        queued.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn bounds_hold_and_order_is_kept() {
        let limiter = Arc::new(Limiter::new(2, 2));
        assert!(limiter.try_acquire() && limiter.try_acquire() && !limiter.try_acquire());
        let mut first = limiter.enqueue(Priority::Normal).unwrap();
        let mut second = limiter.enqueue(Priority::Normal).unwrap();
        assert!(limiter.enqueue(Priority::Normal).is_none());
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        limiter.release();
        assert!(poll(&mut second).is_pending());
        assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
        limiter.release();
        assert_eq!(poll(&mut second), Poll::Ready(Ok(())));
        assert!(!limiter.try_acquire());
        limiter.release();
        limiter.release();
        assert_eq!((limiter.in_flight(), limiter.waiting()), (0, 0));
        drop((first, second));
        assert_eq!(limiter.in_flight(), 0);
    }

    #[test]
    fn new_requests_do_not_overtake_waiting_ones() {
        let limiter = Arc::new(Limiter::new(1, 1));
        assert!(limiter.try_acquire());
        let mut queued = limiter.enqueue(Priority::Normal).unwrap();
        limiter.release();
        assert!(!limiter.try_acquire());
        assert_eq!(poll(&mut queued), Poll::Ready(Ok(())));
    }

    #[test]
    fn higher_priority_goes_first_and_evicts_the_lowest() {
        let limiter = Arc::new(Limiter::new(1, 3));
        assert!(limiter.try_acquire());
        let mut low = limiter.enqueue(Priority::Low).unwrap();
        let mut early = limiter.enqueue(Priority::Background).unwrap();
        let mut late = limiter.enqueue(Priority::Background).unwrap();
        assert!(limiter.enqueue(Priority::Background).is_none());
        let mut critical = limiter.enqueue(Priority::Critical).unwrap();
        assert_eq!(poll(&mut late), Poll::Ready(Err(Evicted)));
        assert!(poll(&mut early).is_pending());
        for queued in [&mut critical, &mut low, &mut early] {
            limiter.release();
            assert_eq!(poll(queued), Poll::Ready(Ok(())));
        }
    }

    #[test]
    fn it_is_full_when_a_request_gets_neither_permit_nor_queue_room() {
        let limiter = Arc::new(Limiter::new(1, 1));
        assert!(limiter.has_free_permit() && !limiter.is_full(Priority::Normal));
        assert!(limiter.try_acquire());
        assert!(!limiter.has_free_permit() && !limiter.is_full(Priority::Normal), "one may wait");
        let waits = limiter.enqueue(Priority::Normal).unwrap();
        assert!(limiter.is_full(Priority::Normal) && limiter.is_full(Priority::Low));
        assert!(!limiter.is_full(Priority::Critical), "it evicts the other");
        drop(waits);
        assert!(!limiter.is_full(Priority::Low));
        limiter.release();
        assert!(limiter.has_free_permit());
    }

    #[test]
    fn dropped_waiters_release_what_they_hold() {
        let limiter = Arc::new(Limiter::new(1, 10));
        assert!(limiter.try_acquire());
        let waiting = limiter.enqueue(Priority::Normal).unwrap();
        let granted = limiter.enqueue(Priority::Normal).unwrap();
        drop(waiting);
        assert_eq!(limiter.waiting(), 1);
        limiter.release();
        assert_eq!(limiter.in_flight(), 1);
        drop(granted);
        assert_eq!((limiter.in_flight(), limiter.waiting()), (0, 0));
    }

    #[test]
    fn a_raised_limit_grants_permits_to_waiters() {
        let limiter = Arc::new(Limiter::new(1, 10));
        assert!(limiter.try_acquire());
        let mut queued = limiter.enqueue(Priority::Normal).unwrap();
        limiter.set(2, 10);
        assert_eq!(poll(&mut queued), Poll::Ready(Ok(())));
    }

    #[test]
    fn no_waiter_is_lost_when_threads_race() {
        let limiter = Arc::new(Limiter::new(2, 1000));
        let inside = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async {
                        for _ in 0..2000 {
                            if !limiter.try_acquire() {
                                let mut queued = limiter.enqueue(Priority::Normal).unwrap();
                                std::future::poll_fn(|cx| queued.poll(cx)).await.unwrap();
                            }
                            assert!(inside.fetch_add(1, SeqCst) < 2);
                            inside.fetch_sub(1, SeqCst);
                            limiter.release();
                        }
                    });
                });
            }
        });
        assert_eq!((limiter.in_flight(), limiter.waiting()), (0, 0));
    }
}
