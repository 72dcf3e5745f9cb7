//! Permit reuse: a flow keeps its permit for a call that follows at once.
//!
//! A flow often makes its next call as soon as one ends. Its permit would have gone to a younger request by then, and
//! the flow would wait for another one: a wait and a wake-up for each call of a request that had a permit. So while
//! others wait, a permit that is released during a poll of a flow is kept to the end of that poll. The flow's next call
//! reuses it, unless an older request waits.
//!
//! Wake-ups of the flow itself are deferred to the end of the poll as well, so that all its ready calls go on in one
//! poll.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Limiter, OwnedPermit, Permit};

thread_local! {
    static SCOPE: Scope = const {
        Scope { active: Cell::new(false), released: RefCell::new(SmallVec::new_const()), deferred: RefCell::new(Vec::new()) }
    };
}

struct Scope {
    active: Cell<bool>,
    released: RefCell<SmallVec<[OwnedPermit; 2]>>,
    deferred: RefCell<Vec<Waker>>,
}

/// Runs one poll of a flow, in which permits are reused. `poll` must be short, and must not poll another flow in a
/// scope of its own: that would be part of this one.
pub fn poll_scope<T>(poll: impl FnOnce() -> T) -> T {
    /// Ends the scope, also when the flow panics.
    struct End(bool);
    impl Drop for End {
        fn drop(&mut self) {
            if self.0 {
                // First: permits that are released from here on are not kept.
                SCOPE.with(|scope| scope.active.set(false));
                let released = SCOPE.with(|scope| std::mem::take(&mut *scope.released.borrow_mut()));
                drop(released);
                // Waking runs foreign code, which may ask for a wake-up itself.
                let mut deferred = SCOPE.with(|scope| std::mem::take(&mut *scope.deferred.borrow_mut()));
                deferred.drain(..).for_each(Waker::wake);
                SCOPE.with(|scope| {
                    let mut now = scope.deferred.borrow_mut();
                    if now.is_empty() {
                        // Keeps the capacity of the list.
                        *now = deferred;
                    }
                });
            }
        }
    }
    let _end = End(SCOPE.with(|scope| !scope.active.replace(true)));
    poll()
}

/// Wakes a part of the polled flow at the end of the poll; outside of a poll, at once. A part that woke itself during
/// the poll would be polled again before its siblings.
pub(crate) fn wake_after_poll(waker: &Waker) {
    SCOPE.with(|scope| {
        if scope.active.get() {
            scope.deferred.borrow_mut().push(waker.clone());
        } else {
            waker.wake_by_ref();
        }
    });
}

/// A permit that a flow may reuse.
#[derive(Debug)]
pub(crate) struct ReusablePermit<'a> {
    limit: &'a Arc<Limiter>,
    permit: Option<Permit<'a>>,
}

impl<'a> ReusablePermit<'a> {
    /// A free permit if no call waits for one, or a permit kept by this poll if no request older than `age` waits.
    pub fn try_take(limit: &'a Arc<Limiter>, age: Instant) -> Option<ReusablePermit<'a>> {
        let permit = limit.try_acquire().or_else(|| take_released(limit, age))?;
        Some(ReusablePermit { limit, permit: Some(permit) })
    }

    /// A permit that has been acquired already.
    pub fn of(limit: &'a Arc<Limiter>, permit: Permit<'a>) -> ReusablePermit<'a> {
        ReusablePermit { limit, permit: Some(permit) }
    }

    /// The same permit for a call that goes on after its flow.
    pub fn own(mut self) -> Option<OwnedPermit> {
        self.permit.take().map(|permit| permit.own(self.limit))
    }
}

impl Drop for ReusablePermit<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        if self.limit.load().1 == 0 {
            return;
        }
        SCOPE.with(|scope| {
            if scope.active.get() {
                scope.released.borrow_mut().push(permit.own(self.limit));
            }
        });
    }
}

#[cold]
fn take_released<'a>(limit: &'a Arc<Limiter>, age: Instant) -> Option<Permit<'a>> {
    SCOPE.with(|scope| {
        let mut released = scope.released.borrow_mut();
        let at = released.iter().position(|permit| permit.is_of(limit))?;
        (!limit.has_older_waiter(age)).then(|| released.swap_remove(at).lend(limit))
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use super::super::{LimitReached, WaitForPermit};
    use super::*;

    fn poll<'a>(acquire: &mut Pin<Box<WaitForPermit<'a>>>) -> Poll<Result<Permit<'a>, LimitReached>> {
        acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A limit of one, and three starts of requests.
    fn limit_of_one() -> (Arc<Limiter>, [Instant; 3]) {
        let now = Instant::now();
        let limit = Arc::new(Limiter::new(1, 10));
        (limit, [0, 1, 2].map(|at| now + Duration::from_secs(at)))
    }

    #[test]
    fn a_flow_reuses_its_permit_before_younger_requests_get_it() {
        let (limit, [_, own, young]) = limit_of_one();
        let permit = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        let permit = poll_scope(|| {
            drop(permit);
            assert!(poll(&mut waits).is_pending(), "the poll has not ended");
            assert!(limit.try_acquire().is_none(), "nobody else gets it");
            ReusablePermit::try_take(&limit, own).expect("the permit that it had")
        });
        assert!(poll(&mut waits).is_pending());
        poll_scope(|| drop(permit));
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))), "at the end of the poll the waiting call gets it");
        assert_eq!(limit.load(), (0, 0));
    }

    #[test]
    fn an_older_request_gets_the_permit() {
        let (limit, [old, own, _]) = limit_of_one();
        let permit = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(old));
        assert!(poll(&mut waits).is_pending());
        poll_scope(|| {
            drop(permit);
            assert!(ReusablePermit::try_take(&limit, own).is_none());
        });
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
    }

    #[test]
    fn without_a_poll_or_waiters_a_permit_is_released_at_once() {
        let (limit, [_, own, young]) = limit_of_one();
        poll_scope(|| {
            drop(ReusablePermit::try_take(&limit, own).unwrap());
            assert_eq!(limit.load(), (0, 0));
        });
        let permit = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        drop(permit);
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
    }

    #[test]
    fn a_poll_that_panics_keeps_no_permit() {
        let (limit, [_, own, young]) = limit_of_one();
        let permit = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        let panics = std::panic::AssertUnwindSafe(|| {
            poll_scope(|| {
                drop(permit);
                panic!("as meant");
            });
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
        // The next poll has a scope of its own.
        let permit = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        poll_scope(|| drop(permit));
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
    }

    #[test]
    fn deferred_wakeups_happen_at_the_end_of_the_poll() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Count>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(count.clone());
        let deferred = || count.0.load(std::sync::atomic::Ordering::SeqCst);
        wake_after_poll(&waker);
        assert_eq!(deferred(), 1, "there is no poll");
        for times in 1..3 {
            poll_scope(|| {
                wake_after_poll(&waker);
                wake_after_poll(&waker);
                assert_eq!(deferred(), 2 * times - 1);
            });
            assert_eq!(deferred(), 2 * times + 1);
        }
    }
}
