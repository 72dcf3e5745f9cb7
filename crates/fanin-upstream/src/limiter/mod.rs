//! Calls in flight, bounded for the whole process, and a bounded number of calls waiting for a place.
//!
//! Waiting is bounded by *count*, not by time: a queue bounded by time fills with calls whose requests have given up, and
//! then serves nobody (story B). The oldest *request* goes first, whatever the order its calls came in: its third call must not
//! queue behind the first calls of newcomers. When the queue is full, the call of the youngest request is refused, be it the
//! one that comes or one that waits already, because the least work is lost with it.
//!
//! Without contention a place costs one compare-and-swap to take and one to give back. The number in flight and the number
//! waiting share one atomic word, so that nobody takes a place past those who wait, and a place given back is never lost
//! between looking for a waiting call and finding none.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

pub use permit_reuse::poll_scope;
pub(crate) use permit_reuse::{ReusablePermit, wake_behind};

mod permit_reuse;

/// In-flight limit and waiting calls of one upstream. Cheap to share; all methods may be called from any thread.
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
    /// By age of the request; the number keeps calls of one request, and of requests of one instant, in order of arrival.
    waiting: BTreeMap<QueuePosition, Option<Waker>>,
    /// What became of places that left the queue and whose owner has not looked yet.
    decided: BTreeMap<QueuePosition, Decision>,
    next: u64,
}

type QueuePosition = (Instant, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Admitted,
    Refused,
}

/// There was no place, and no place to wait for one.
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

    /// The limit as it is now.
    pub fn max(&self) -> u32 {
        self.max.load(Relaxed)
    }

    /// Changes the bounds. More room admits waiting calls at once; less is reached as calls end.
    pub fn resize(&self, max: usize, max_waiting: usize) {
        self.max_waiting.store(clamp(max_waiting), Relaxed);
        let grown = self.max.swap(clamp(max), AcqRel) < clamp(max);
        if grown && self.load().1 > 0 {
            self.admit_waiting();
        }
    }

    /// Takes a place if one is free and nobody waits for it.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.take().then(|| Permit { limit: self })
    }

    /// Waits for a place; `age` is when the request started.
    pub fn acquire(&self, age: Instant) -> Acquire<'_> {
        Acquire { limit: self, age, place: None }
    }

    /// Whether a call of a request waits that started before `age`.
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
            debug_assert!(in_flight > 0, "a place was given back twice");
            if waiting > 0 {
                // Give the place back and let the oldest have it, all under the lock that guards the waiting count.
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

    /// Moves the oldest waiting calls to the free places. Wakers are for the caller to wake once the lock is gone.
    fn admit(&self, queue: &mut Queue) -> smallvec::SmallVec<[Waker; 2]> {
        let mut wakers = smallvec::SmallVec::new();
        while !queue.waiting.is_empty() && self.load().0 < self.max() {
            let Some((place, waker)) = queue.waiting.pop_first() else { break };
            // The lock keeps others from admitting, and the waiting count keeps newcomers from taking: one step for both.
            self.word.fetch_add(1, AcqRel);
            self.word.fetch_sub(ONE_WAITING, AcqRel);
            queue.decided.insert(place, Decision::Admitted);
            wakers.extend(waker);
        }
        wakers
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic between two lines of this module would be a bug; the counts are valid at every point either way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call into the queue, unless a place is free after all or the queue is full of older requests.
    fn enqueue(&self, age: Instant, waker: &Waker) -> Result<Option<QueuePosition>, LimitReached> {
        let mut queue = self.lock();
        // First announce the wait, then look once more for a place: whoever leaves from here on sees somebody waiting.
        self.word.fetch_add(ONE_WAITING, AcqRel);
        let place = (age, queue.next);
        queue.next += 1;
        queue.waiting.insert(place, Some(waker.clone()));
        let mut wakers = self.admit(&mut queue);
        if queue.decided.remove(&place).is_some() {
            drop(queue);
            wakers.drain(..).for_each(Waker::wake);
            return Ok(None);
        }
        let mut outcome = Ok(Some(place));
        let max_waiting = self.max_waiting.load(Relaxed) as usize;
        while queue.waiting.len() > max_waiting {
            let (in_flight, waiting) = self.load();
            let Some((youngest, waker)) = queue.waiting.pop_last() else { break };
            self.word.fetch_sub(ONE_WAITING, AcqRel);
            if youngest == place {
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

/// A place below the limit. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    limit: &'a Limiter,
}

impl Permit<'_> {
    /// The same place for longer than a borrow lasts. `limit` is the one that it is a place of.
    pub fn own(self, limit: &Arc<Limiter>) -> OwnedPermit {
        debug_assert!(std::ptr::eq(self.limit, &**limit), "a place of another limit");
        std::mem::forget(self);
        OwnedPermit { limit: Some(limit.clone()) }
    }
}

/// A place below the limit that may travel. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct OwnedPermit {
    /// Until the place is given back, or lent.
    limit: Option<Arc<Limiter>>,
}

impl OwnedPermit {
    /// The same place for a borrow. `limit` is the one that it is a place of.
    fn lend(mut self, limit: &Arc<Limiter>) -> Permit<'_> {
        debug_assert!(self.is_of(limit), "a place of another limit");
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

/// Waits for a place. Dropping it gives up the wait, or the place if it had been given one.
#[derive(Debug)]
pub(crate) struct Acquire<'a> {
    limit: &'a Limiter,
    age: Instant,
    place: Option<QueuePosition>,
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<Permit<'a>, LimitReached>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(place) = self.place else {
            if self.limit.take() {
                return Poll::Ready(Ok(Permit { limit: self.limit }));
            }
            return match self.limit.enqueue(self.age, cx.waker()) {
                Ok(None) => Poll::Ready(Ok(Permit { limit: self.limit })),
                Ok(place) => {
                    self.place = place;
                    Poll::Pending
                }
                Err(full) => Poll::Ready(Err(full)),
            };
        };
        let mut queue = self.limit.lock();
        if let Some(waker) = queue.waiting.get_mut(&place) {
            match waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let decision = queue.decided.remove(&place);
        drop(queue);
        self.place = None;
        Poll::Ready(match decision {
            Some(Decision::Admitted) => Ok(Permit { limit: self.limit }),
            // A place is either waiting or decided until its owner has looked; a refusal is the safe reading of neither.
            Some(Decision::Refused) | None => {
                let (in_flight, waiting) = self.limit.load();
                Err(LimitReached { in_flight, waiting })
            }
        })
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut queue = self.limit.lock();
        if queue.waiting.remove(&place).is_some() {
            self.limit.word.fetch_sub(ONE_WAITING, AcqRel);
            return;
        }
        let decision = queue.decided.remove(&place);
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

    fn poll<'a>(acquire: &mut Pin<Box<Acquire<'a>>>) -> Poll<Result<Permit<'a>, LimitReached>> {
        acquire.as_mut().poll(&mut Context::from_waker(&noop_waker()))
    }

    fn age(seconds: u64) -> Instant {
        static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BASE.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_place_is_taken_and_given_back() {
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
    fn the_oldest_request_goes_first_whenever_its_call_came() {
        let limit = Limiter::new(1, 10);
        let place = limit.try_acquire().unwrap();
        let mut young = Box::pin(limit.acquire(age(3)));
        let mut oldest = Box::pin(limit.acquire(age(1)));
        let mut middle = Box::pin(limit.acquire(age(2)));
        for acquire in [&mut young, &mut middle, &mut oldest] {
            assert!(poll(acquire).is_pending());
        }
        drop(place);
        assert!(limit.try_acquire().is_none(), "nobody passes those who wait");
        assert!(poll(&mut young).is_pending());
        let Poll::Ready(Ok(place)) = poll(&mut oldest) else { panic!("the oldest has the place") };
        drop(place);
        assert!(poll(&mut young).is_pending());
        assert!(matches!(poll(&mut middle), Poll::Ready(Ok(_))));
        assert!(matches!(poll(&mut young), Poll::Ready(Ok(_))));
        assert_eq!(limit.load(), (0, 0));
    }

    #[test]
    fn calls_of_one_request_keep_their_order() {
        let limit = Limiter::new(1, 10);
        let place = limit.try_acquire().unwrap();
        let mut first = Box::pin(limit.acquire(age(1)));
        let mut second = Box::pin(limit.acquire(age(1)));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(place);
        assert!(poll(&mut second).is_pending());
        assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
    }

    #[test]
    fn when_full_the_youngest_request_is_refused_be_it_waiting_or_new() {
        let limit = Limiter::new(1, 2);
        let _place = limit.try_acquire().unwrap();
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
    fn whoever_goes_leaves_nothing_behind() {
        let limit = Limiter::new(1, 10);
        let place = limit.try_acquire().unwrap();
        let mut goes = Box::pin(limit.acquire(age(1)));
        let mut admitted = Box::pin(limit.acquire(age(2)));
        let mut stays = Box::pin(limit.acquire(age(3)));
        for acquire in [&mut goes, &mut admitted, &mut stays] {
            assert!(poll(acquire).is_pending());
        }
        drop(goes);
        assert_eq!(limit.load(), (1, 2));
        drop(place);
        // `admitted` has been given the place and goes without having looked.
        drop(admitted);
        assert!(matches!(poll(&mut stays), Poll::Ready(Ok(_))));
        assert_eq!(limit.load(), (0, 0));
        assert!(limit.lock().decided.is_empty());
    }

    #[test]
    fn more_room_admits_and_less_is_reached_by_and_by() {
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
    fn threads_never_exceed_the_limit_and_lose_no_wakeup() {
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
                                // Some give up at once, some with the place in hand.
                                let mut acquire = Box::pin(acquire);
                                let _ = poll(&mut acquire);
                                return;
                            }
                            if let Ok(place) = acquire.await {
                                assert!(inside.fetch_add(1, SeqCst) < 3);
                                tokio::task::yield_now().await;
                                inside.fetch_sub(1, SeqCst);
                                drop(place);
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
