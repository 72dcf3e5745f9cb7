//! A request that waits for admission.

use std::task::{Context, Poll, ready};

use hyper::body::Incoming;

use super::RequestHead;
use crate::admission::{Admission, PendingAdmission, Permit, Refusal, admit};
use crate::connection::HeldBack;
use crate::worker::QueuedRequest;

/// A request that waits for admission.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) wait: Wait,
    /// `None` once it has been admitted.
    pub(super) head: Option<(RequestHead, Incoming)>,
    /// If it has a body.
    pub(super) _held_back: Option<HeldBack>,
}

/// What a request waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// Its turn in the run queue of an overloaded worker.
    Worker(QueuedRequest),
    /// Permits of its route and of the server.
    Permit(PendingAdmission),
}

impl PendingRequest {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refusal>> {
        if let Wait::Worker(queued) = &self.wait {
            if ready!(queued.poll(cx)).is_err() {
                return Poll::Ready(Err(Refusal::Queueing));
            }
            // Taken only when this state ends.
            let Some((head, _)) = &self.head else { return Poll::Pending };
            match admit(&head.route.limiters, head.priority) {
                Admission::Admitted(permit) => return Poll::Ready(Ok(permit)),
                Admission::Refused(refusal) => return Poll::Ready(Err(refusal)),
                Admission::Wait(admitting) => self.wait = Wait::Permit(admitting),
            }
        }
        match &mut self.wait {
            Wait::Permit(admitting) => admitting.poll(cx),
            // It was replaced above.
            Wait::Worker(_) => Poll::Pending,
        }
    }
}
