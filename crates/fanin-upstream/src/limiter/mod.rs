//! Limits the calls in flight of an upstream or operation, over the whole process, with a bounded queue of waiting
//! calls.
//!
//! The queue is bounded by *count*, not by time. A queue bounded by time fills with calls whose requests have given up,
//! and then serves nobody. The call of the oldest *request* goes first, whenever the call came: a request's third call
//! must not queue behind the first calls of newcomers. When the queue is full, the call of the youngest request is
//! refused, because the least work is lost with it.
//!
//! Without contention a permit costs one compare-and-swap to acquire and one to release. One atomic word holds both the
//! number in flight and the number waiting. So no newcomer overtakes a waiting call, and a permit released while a call
//! joins the queue is never lost.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

pub use permit_reuse::poll_scope;
pub(crate) use permit_reuse::{ReusablePermit, wake_after_poll};

mod permit_reuse;

/// The limit of one upstream or operation, and its queue. All methods may be called from any thread.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Low half: calls in flight. High half: calls waiting. The high half changes only under the lock.
    word: AtomicU64,
    max: AtomicU32,
    max_waiting: AtomicU32,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// By start of the request. The number keeps calls of one request in their order.
    waiting: BTreeMap<QueuePosition, Option<Waker>>,
    /// Decisions on calls that have left the queue and have not been polled since.
    decided: BTreeMap<QueuePosition, Decision>,
    next: u64,
}

type QueuePosition = (Instant, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Admitted,
    Refused,
}

/// No permit is free, and the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitReached {
    /// Calls in flight when the call was refused.
    pub in_flight: u32,
    /// Calls waiting when the call was refused.
    pub waiting: u32,
}

const ONE_WAITING: u64 = 1 << 32;

fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Limiter {
    pub fn new(max: usize, max_waiting: usize) -> Limiter {
        Limiter {
            word: AtomicU64::new(0),
            max: AtomicU32::new(clamp(max)),
            max_waiting: AtomicU32::new(clamp(max_waiting)),
            queue: Mutex::default(),
        }
    }

    /// Calls in flight and calls waiting.
    pub fn load(&self) -> (u32, u32) {
        split(self.word.load(Relaxed))
    }

    /// The present limit.
    pub fn max(&self) -> u32 {
        self.max.load(Relaxed)
    }

    /// Changes the limit and the length of the queue. A higher limit admits waiting calls at once; a lower one is
    /// reached as calls end.
    pub fn resize(&self, max: usize, max_waiting: usize) {
        self.max_waiting.store(clamp(max_waiting), Relaxed);
        let grown = self.max.swap(clamp(max), AcqRel) < clamp(max);
        if grown && self.load().1 > 0 {
            self.admit_waiting();
        }
    }

    /// A permit, if one is free and no call waits for it.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.take().then(|| Permit { limit: self })
    }

    /// Waits for a permit. `age` is when the request started.
    pub fn acquire(&self, age: Instant) -> WaitForPermit<'_> {
        WaitForPermit { limit: self, age, position: None }
    }

    /// Whether a call waits whose request started before `age`.
    fn has_older_waiter(&self, age: Instant) -> bool {
        self.lock().waiting.first_key_value().is_some_and(|(&(oldest, _), _)| oldest < age)
    }

    fn take(&self) -> bool {
        let max = self.max.load(Relaxed);
        let mut word = self.word.load(Relaxed);
        loop {
            let (in_flight, waiting) = split(word);
            if in_flight >= max || waiting > 0 {
                return false;
            }
            match self.word.compare_exchange_weak(word, word + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    fn release(&self) {
        let mut word = self.word.load(Relaxed);
        loop {
            let (in_flight, waiting) = split(word);
            debug_assert!(in_flight > 0, "a permit was released twice");
            if waiting > 0 {
                // Releases the permit and admits the oldest call under the lock that guards the number of waiting
                // calls.
                let mut queue = self.lock();
                self.word.fetch_sub(1, AcqRel);
                let wakers = self.admit(&mut queue);
                drop(queue);
                wakers.into_iter().for_each(Waker::wake);
                return;
            }
            match self.word.compare_exchange_weak(word, word - 1, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    fn admit_waiting(&self) {
        let mut queue = self.lock();
        let wakers = self.admit(&mut queue);
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Admits the oldest waiting calls to the free permits. The caller wakes the wakers after it has released the lock.
    fn admit(&self, queue: &mut Queue) -> smallvec::SmallVec<[Waker; 2]> {
        let mut wakers = smallvec::SmallVec::new();
        while !queue.waiting.is_empty() && self.load().0 < self.max() {
            let Some((position, waker)) = queue.waiting.pop_first() else { break };
            // The lock keeps others from admitting, and the number waiting keeps newcomers from acquiring: this is one
            // step for both.
            self.word.fetch_add(1, AcqRel);
            self.word.fetch_sub(ONE_WAITING, AcqRel);
            queue.decided.insert(position, Decision::Admitted);
            wakers.extend(waker);
        }
        wakers
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The counts are valid at each point, so a poisoned lock does no harm.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a call, unless a permit is free now, or the queue is full of calls of older requests.
    fn enqueue(&self, age: Instant, waker: &Waker) -> Result<Option<QueuePosition>, LimitReached> {
        let mut queue = self.lock();
        // The call is counted as waiting before it looks for a free permit: a permit released from here on goes to the
        // queue.
        self.word.fetch_add(ONE_WAITING, AcqRel);
        let position = (age, queue.next);
        queue.next += 1;
        queue.waiting.insert(position, Some(waker.clone()));
        let mut wakers = self.admit(&mut queue);
        if queue.decided.remove(&position).is_some() {
            drop(queue);
            wakers.drain(..).for_each(Waker::wake);
            return Ok(None);
        }
        let mut outcome = Ok(Some(position));
        let max_waiting = self.max_waiting.load(Relaxed) as usize;
        while queue.waiting.len() > max_waiting {
            let (in_flight, waiting) = self.load();
            let Some((youngest, waker)) = queue.waiting.pop_last() else { break };
            self.word.fetch_sub(ONE_WAITING, AcqRel);
            if youngest == position {
                outcome = Err(LimitReached { in_flight, waiting: waiting - 1 });
            } else {
                queue.decided.insert(youngest, Decision::Refused);
                wakers.extend(waker);
            }
        }
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
        outcome
    }
}

fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The right to be in flight. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    limit: &'a Limiter,
}

impl Permit<'_> {
    /// The same permit without a lifetime. `limit` must be the limiter that it is of.
    pub fn own(self, limit: &Arc<Limiter>) -> OwnedPermit {
        debug_assert!(std::ptr::eq(self.limit, &**limit), "a permit of another limiter");
        std::mem::forget(self);
        OwnedPermit { limit: Some(limit.clone()) }
    }
}

/// A permit without a lifetime. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct OwnedPermit {
    /// `None` once the permit is released or converted.
    limit: Option<Arc<Limiter>>,
}

impl OwnedPermit {
    /// The same permit with a lifetime. `limit` must be the limiter that it is of.
    fn lend(mut self, limit: &Arc<Limiter>) -> Permit<'_> {
        debug_assert!(self.is_of(limit), "a permit of another limiter");
        self.limit = None;
        Permit { limit }
    }

    fn is_of(&self, limit: &Arc<Limiter>) -> bool {
        self.limit.as_ref().is_some_and(|own| Arc::ptr_eq(own, limit))
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        if let Some(limit) = self.limit.take() {
            limit.release();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.limit.release();
    }
}

/// Waits for a permit. Dropping it leaves the queue, or releases the permit that it has been given.
#[derive(Debug)]
pub(crate) struct WaitForPermit<'a> {
    limit: &'a Limiter,
    age: Instant,
    position: Option<QueuePosition>,
}

impl<'a> Future for WaitForPermit<'a> {
    type Output = Result<Permit<'a>, LimitReached>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(position) = self.position else {
            if self.limit.take() {
                return Poll::Ready(Ok(Permit { limit: self.limit }));
            }
            return match self.limit.enqueue(self.age, cx.waker()) {
                Ok(None) => Poll::Ready(Ok(Permit { limit: self.limit })),
                Ok(position) => {
                    self.position = position;
                    Poll::Pending
                }
                Err(full) => Poll::Ready(Err(full)),
            };
        };
        let mut queue = self.limit.lock();
        if let Some(waker) = queue.waiting.get_mut(&position) {
            match waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let decision = queue.decided.remove(&position);
        drop(queue);
        self.position = None;
        Poll::Ready(match decision {
            Some(Decision::Admitted) => Ok(Permit { limit: self.limit }),
            // A queued call is either waiting or decided. A refusal is the safe reading of neither.
            Some(Decision::Refused) | None => {
                let (in_flight, waiting) = self.limit.load();
                Err(LimitReached { in_flight, waiting })
            }
        })
    }
}

impl Drop for WaitForPermit<'_> {
    fn drop(&mut self) {
        let Some(position) = self.position else { return };
        let mut queue = self.limit.lock();
        if queue.waiting.remove(&position).is_some() {
            self.limit.word.fetch_sub(ONE_WAITING, AcqRel);
            return;
        }
        let decision = queue.decided.remove(&position);
        drop(queue);
        if decision == Some(Decision::Admitted) {
            self.limit.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::task::noop_waker;

    use super::*;

    fn poll<'a>(acquire: &mut Pin<Box<WaitForPermit<'a>>>) -> Poll<Result<Permit<'a>, LimitReached>> {
        acquire.as_mut().poll(&mut Context::from_waker(&noop_waker()))
    }

    fn age(seconds: u64) -> Instant {
        static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BASE.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_permit_is_acquired_and_released() {
        let limit = Limiter::new(2, 0);
        let first = limit.try_acquire().unwrap();
        let second = limit.try_acquire().unwrap();
        assert!(limit.try_acquire().is_none());
        assert_eq!(
            limit.acquire(age(0)).now_or_never().unwrap().unwrap_err(),
            LimitReached { in_flight: 2, waiting: 0 }
        );
        drop(first);
        assert!(limit.try_acquire().is_some());
        drop(second);
        assert_eq!(limit.load(), (0, 0));
    }

    #[test]
    fn the_oldest_request_gets_the_next_permit() {
        let limit = Limiter::new(1, 10);
        let permit = limit.try_acquire().unwrap();
        let mut young = Box::pin(limit.acquire(age(3)));
        let mut oldest = Box::pin(limit.acquire(age(1)));
        let mut middle = Box::pin(limit.acquire(age(2)));
        for acquire in [&mut young, &mut middle, &mut oldest] {
            assert!(poll(acquire).is_pending());
        }
        drop(permit);
        assert!(limit.try_acquire().is_none(), "no newcomer overtakes");
        assert!(poll(&mut young).is_pending());
        let Poll::Ready(Ok(permit)) = poll(&mut oldest) else { panic!("the oldest has the permit") };
        drop(permit);
        assert!(poll(&mut young).is_pending());
        assert!(matches!(poll(&mut middle), Poll::Ready(Ok(_))));
        assert!(matches!(poll(&mut young), Poll::Ready(Ok(_))));
        assert_eq!(limit.load(), (0, 0));
    }

    #[test]
    fn calls_of_one_request_keep_their_order() {
        let limit = Limiter::new(1, 10);
        let permit = limit.try_acquire().unwrap();
        let mut first = Box::pin(limit.acquire(age(1)));
        let mut second = Box::pin(limit.acquire(age(1)));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(permit);
        assert!(poll(&mut second).is_pending());
        assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
    }

    #[test]
    fn a_full_queue_refuses_the_youngest_request_waiting_or_new() {
        let limit = Limiter::new(1, 2);
        let _permit = limit.try_acquire().unwrap();
        let mut old = Box::pin(limit.acquire(age(1)));
        let mut young = Box::pin(limit.acquire(age(3)));
        assert!(poll(&mut old).is_pending() && poll(&mut young).is_pending());
        let mut youngest = Box::pin(limit.acquire(age(4)));
        assert!(matches!(poll(&mut youngest), Poll::Ready(Err(LimitReached { in_flight: 1, waiting: 2 }))));
        let mut older = Box::pin(limit.acquire(age(2)));
        assert!(poll(&mut older).is_pending(), "an older request is let in");
        assert!(matches!(poll(&mut young), Poll::Ready(Err(_))), "in place of the youngest");
        assert!(poll(&mut old).is_pending());
        assert_eq!(limit.load(), (1, 2));
    }

    #[test]
    fn a_dropped_wait_leaves_nothing_behind() {
        let limit = Limiter::new(1, 10);
        let permit = limit.try_acquire().unwrap();
        let mut dropped = Box::pin(limit.acquire(age(1)));
        let mut admitted = Box::pin(limit.acquire(age(2)));
        let mut stays = Box::pin(limit.acquire(age(3)));
        for acquire in [&mut dropped, &mut admitted, &mut stays] {
            assert!(poll(acquire).is_pending());
        }
        drop(dropped);
        assert_eq!(limit.load(), (1, 2));
        drop(permit);
        // `admitted` has a permit and is dropped before it is polled.
        drop(admitted);
        assert!(matches!(poll(&mut stays), Poll::Ready(Ok(_))));
        assert_eq!(limit.load(), (0, 0));
        assert!(limit.lock().decided.is_empty());
    }

    #[test]
    fn a_higher_limit_admits_at_once_and_a_lower_one_later() {
        let limit = Limiter::new(1, 10);
        let first = limit.try_acquire().unwrap();
        let mut second = Box::pin(limit.acquire(age(1)));
        assert!(poll(&mut second).is_pending());
        limit.resize(2, 10);
        let Poll::Ready(Ok(second)) = poll(&mut second) else { panic!("there is room") };
        limit.resize(1, 10);
        let mut third = Box::pin(limit.acquire(age(1)));
        assert!(poll(&mut third).is_pending());
        drop(first);
        assert!(poll(&mut third).is_pending(), "one is in flight still");
        drop(second);
        assert!(matches!(poll(&mut third), Poll::Ready(Ok(_))));
        assert_eq!(limit.load(), (0, 0));
    }

    #[test]
    fn threads_never_exceed_the_limit_or_lose_a_wakeup() {
        use std::sync::atomic::AtomicUsize;
        let limit = Limiter::new(3, 1000);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (limit, inside) = (&limit, &inside);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async {
                        let calls = (0..2000u64).map(|call| async move {
                            let acquire = limit.acquire(age((call * 7 + thread) % 50));
                            if call % 5 == 0 {
                                // Some give up before they are polled again, some with a permit.
                                let mut acquire = Box::pin(acquire);
                                let _ = poll(&mut acquire);
                                return;
                            }
                            if let Ok(permit) = acquire.await {
                                assert!(inside.fetch_add(1, SeqCst) < 3);
                                tokio::task::yield_now().await;
                                inside.fetch_sub(1, SeqCst);
                                drop(permit);
                            }
                        });
                        futures_util::future::join_all(calls).await;
                    });
                });
            }
        });
        assert_eq!(limit.load(), (0, 0));
        assert!(limit.lock().waiting.is_empty() && limit.lock().decided.is_empty());
    }
}
