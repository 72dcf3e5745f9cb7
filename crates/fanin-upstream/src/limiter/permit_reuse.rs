//! Permits that a flow keeps while it runs.
//!
//! A flow whose call has ended often makes its next one at once. Its place below the limit would have gone to a younger
//! request by then, and it would have to wait for the next one, as the oldest of all: a wait and a wake for each call of a request
//! that had a place already. So while others wait, a place that is given back during a flow's turn is kept to the turn's end, and the
//! flow's next call has it if no older request waits.
//!
//! Whoever is to go on behind all others that are ready now is woken at the turn's end, too: the calls of one turn go on in one go.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Limiter, OwnedPermit, Permit};

thread_local! {
    static TURN: Turn = const {
        Turn { runs: Cell::new(false), kept: RefCell::new(SmallVec::new_const()), woken: RefCell::new(Vec::new()) }
    };
}

struct Turn {
    runs: Cell<bool>,
    kept: RefCell<SmallVec<[OwnedPermit; 2]>>,
    woken: RefCell<Vec<Waker>>,
}

/// Runs a part of one flow: a turn. `turn` must not take long, and must not run another flow's turn: that would be a part of
/// this one.
pub fn poll_scope<T>(turn: impl FnOnce() -> T) -> T {
    /// Also when the flow panics.
    struct End(bool);
    impl Drop for End {
        fn drop(&mut self) {
            if self.0 {
                // Ended first: places that go from here on go at once.
                TURN.with(|turn| turn.runs.set(false));
                let kept = TURN.with(|turn| std::mem::take(&mut *turn.kept.borrow_mut()));
                drop(kept);
                // Waking runs code of others, who may ask for a wake themselves.
                let mut woken = TURN.with(|turn| std::mem::take(&mut *turn.woken.borrow_mut()));
                woken.drain(..).for_each(Waker::wake);
                TURN.with(|turn| {
                    let mut now = turn.woken.borrow_mut();
                    if now.is_empty() {
                        // Its room is used again.
                        *now = woken;
                    }
                });
            }
        }
    }
    let _end = End(TURN.with(|turn| !turn.runs.replace(true)));
    turn()
}

/// Wakes a part of this turn's flow when the turn has ended; outside of a turn at once. A part that woke itself in the midst of the
/// turn would be polled again before its siblings are, and a few such parts would end the turn before its time.
pub(crate) fn wake_behind(waker: &Waker) {
    TURN.with(|turn| {
        if turn.runs.get() {
            turn.woken.borrow_mut().push(waker.clone());
        } else {
            waker.wake_by_ref();
        }
    });
}

/// A place below a limit, for a call of a flow.
#[derive(Debug)]
pub(crate) struct ReusablePermit<'a> {
    limit: &'a Arc<Limiter>,
    permit: Option<Permit<'a>>,
}

impl<'a> ReusablePermit<'a> {
    /// A place if one is free and nobody waits for it, or if this turn has kept one and no request older than `age` waits.
    pub fn try_take(limit: &'a Arc<Limiter>, age: Instant) -> Option<ReusablePermit<'a>> {
        let permit = limit.try_acquire().or_else(|| take_kept(limit, age))?;
        Some(ReusablePermit { limit, permit: Some(permit) })
    }

    /// The same for a permit.
    pub fn of(limit: &'a Arc<Limiter>, permit: Permit<'a>) -> ReusablePermit<'a> {
        ReusablePermit { limit, permit: Some(permit) }
    }
}

impl Drop for ReusablePermit<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        if self.limit.load().1 == 0 {
            return;
        }
        TURN.with(|turn| {
            if turn.runs.get() {
                turn.kept.borrow_mut().push(permit.own(self.limit));
            }
        });
    }
}

#[cold]
fn take_kept<'a>(limit: &'a Arc<Limiter>, age: Instant) -> Option<Permit<'a>> {
    TURN.with(|turn| {
        let mut kept = turn.kept.borrow_mut();
        let at = kept.iter().position(|place| place.is_of(limit))?;
        (!limit.has_older_waiter(age)).then(|| kept.swap_remove(at).lend(limit))
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use super::super::{Acquire, LimitReached};
    use super::*;

    fn poll<'a>(acquire: &mut Pin<Box<Acquire<'a>>>) -> Poll<Result<Permit<'a>, LimitReached>> {
        acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A limit of one, and three ages.
    fn limit_of_one() -> (Arc<Limiter>, [Instant; 3]) {
        let now = Instant::now();
        let limit = Arc::new(Limiter::new(1, 10));
        (limit, [0, 1, 2].map(|at| now + Duration::from_secs(at)))
    }

    #[test]
    fn a_flow_has_its_place_for_its_next_call_before_younger_requests() {
        let (limit, [_, own, young]) = limit_of_one();
        let place = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        let place = poll_scope(|| {
            drop(place);
            assert!(poll(&mut waits).is_pending(), "the turn has not ended");
            assert!(limit.try_acquire().is_none(), "it is nobody else's");
            ReusablePermit::try_take(&limit, own).expect("the place that it had")
        });
        assert!(poll(&mut waits).is_pending());
        poll_scope(|| drop(place));
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))), "at the turn's end it goes to who waits");
        assert_eq!(limit.load(), (0, 0));
    }

    #[test]
    fn an_older_request_goes_first() {
        let (limit, [old, own, _]) = limit_of_one();
        let place = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(old));
        assert!(poll(&mut waits).is_pending());
        poll_scope(|| {
            drop(place);
            assert!(ReusablePermit::try_take(&limit, own).is_none());
        });
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
    }

    #[test]
    fn outside_a_turn_and_where_nobody_waits_a_place_goes_at_once() {
        let (limit, [_, own, young]) = limit_of_one();
        poll_scope(|| {
            drop(ReusablePermit::try_take(&limit, own).unwrap());
            assert_eq!(limit.load(), (0, 0));
        });
        let place = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        drop(place);
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
    }

    #[test]
    fn a_turn_that_panics_keeps_nothing() {
        let (limit, [_, own, young]) = limit_of_one();
        let place = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        let panics = std::panic::AssertUnwindSafe(|| {
            poll_scope(|| {
                drop(place);
                panic!("as meant");
            });
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
        // The next turn is one of its own.
        let place = ReusablePermit::try_take(&limit, own).unwrap();
        let mut waits = Box::pin(limit.acquire(young));
        assert!(poll(&mut waits).is_pending());
        poll_scope(|| drop(place));
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
    }

    #[test]
    fn parts_that_wait_for_the_others_are_woken_at_the_turns_end() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Count>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(count.clone());
        let woken = || count.0.load(std::sync::atomic::Ordering::SeqCst);
        wake_behind(&waker);
        assert_eq!(woken(), 1, "there is no turn to wait for");
        for times in 1..3 {
            poll_scope(|| {
                wake_behind(&waker);
                wake_behind(&waker);
                assert_eq!(woken(), 2 * times - 1);
            });
            assert_eq!(woken(), 2 * times + 1);
        }
    }
}
