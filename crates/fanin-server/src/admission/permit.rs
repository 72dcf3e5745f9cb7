//! A request's permits: of its route first, then of the server. A request that waits for its route holds nothing that other routes
//! need.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::limiter::{Limiter, QueuedPermit};
use super::refusal::Refusal;
use crate::Priority;

/// The limiters that a route's requests pass.
#[derive(Debug)]
pub(crate) struct RouteLimiters {
    pub(crate) route: Arc<Limiter>,
    pub(crate) server: Arc<Limiter>,
}

/// The right of a request to be in flight, on its route and on the server. Both are released when it is dropped.
#[derive(Debug)]
pub struct Permit {
    /// `None` only in tests.
    limiters: Option<Rc<RouteLimiters>>,
}

impl Permit {
    fn new(limiters: &Rc<RouteLimiters>) -> Permit {
        Permit { limiters: Some(limiters.clone()) }
    }

    /// A permit that counts nowhere, for tests.
    pub fn detached() -> Permit {
        Permit { limiters: None }
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if let Some(limiters) = &self.limiters {
            limiters.server.release();
            limiters.route.release();
        }
    }
}

/// The immediate result of [`admit`].
#[derive(Debug)]
pub(crate) enum Admission {
    Admitted(Permit),
    Wait(PendingAdmission),
    Refused(Refusal),
}

/// Requests both permits.
pub(crate) fn admit(limiters: &Rc<RouteLimiters>, priority: Priority) -> Admission {
    let wait =
        |queued, stage| Admission::Wait(PendingAdmission { limiters: limiters.clone(), priority, queued, stage });
    if !limiters.route.try_acquire() {
        return match limiters.route.enqueue(priority) {
            Some(queued) => wait(queued, Stage::Route),
            None => Admission::Refused(Refusal::Route),
        };
    }
    if !limiters.server.try_acquire() {
        return match limiters.server.enqueue(priority) {
            Some(queued) => wait(queued, Stage::Server),
            None => {
                limiters.route.release();
                Admission::Refused(Refusal::Server)
            }
        };
    }
    Admission::Admitted(Permit::new(limiters))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// It waits for the route's permit.
    Route,
    /// It holds the route's permit and waits for the server's.
    Server,
    Done,
}

/// A request that waits for a permit. Dropping it releases what it holds.
#[derive(Debug)]
pub(crate) struct PendingAdmission {
    limiters: Rc<RouteLimiters>,
    priority: Priority,
    queued: QueuedPermit,
    stage: Stage,
}

impl PendingAdmission {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refusal>> {
        if self.stage == Stage::Route {
            if ready!(self.queued.poll(cx)).is_err() {
                return Poll::Ready(Err(Refusal::Evicted));
            }
            self.stage = Stage::Server;
            if self.limiters.server.try_acquire() {
                self.stage = Stage::Done;
                return Poll::Ready(Ok(Permit::new(&self.limiters)));
            }
            match self.limiters.server.enqueue(self.priority) {
                Some(queued) => self.queued = queued,
                None => return Poll::Ready(Err(Refusal::Server)),
            }
        }
        if ready!(self.queued.poll(cx)).is_err() {
            return Poll::Ready(Err(Refusal::Evicted));
        }
        self.stage = Stage::Done;
        Poll::Ready(Ok(Permit::new(&self.limiters)))
    }
}

impl Drop for PendingAdmission {
    fn drop(&mut self) {
        if self.stage == Stage::Server {
            self.limiters.route.release();
        }
    }
}

const _: () = assert!(Priority::Background as usize + 1 == Priority::ALL.len());
