//! The application's decision about a request, and the wait for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use tokio::time::Instant;

use super::RequestHead;
use super::panic::catch_panic;
use super::server_responses::ServerResponse;
use crate::connection::HeldBack;
use crate::worker::{Route, WorkerGeneration};
use crate::{Application, GuardedHead, Pass, Verdict, Worker};

/// The application's decision about a request.
pub(super) fn decide<A: Application>(
    generation: &WorkerGeneration<A>,
    route: &Route,
    head: &GuardedHead<'_>,
) -> Result<Verdict, ServerResponse> {
    catch_panic(|| generation.app.guard(head)).ok_or_else(|| {
        route.stats.panicked();
        ServerResponse::Panic
    })
}

/// What goes on: what the guard has found out, the head and the body.
type Passed = (Box<Pass>, RequestHead, Incoming);

/// A request about which the application's guard has to wait.
pub(super) struct GuardWait {
    pub(super) verdict: Pin<Box<dyn Future<Output = Verdict>>>,
    /// `None` once it has been decided.
    pub(super) head: Option<(RequestHead, Incoming)>,
    /// If it has a body.
    pub(super) _held_back: Option<HeldBack>,
}

impl GuardWait {
    /// When the wait ends at the latest. `None` once it has ended.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.head.as_ref().map(|(head, _)| head.deadline)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Passed, ServerResponse>> {
        let Some(verdict) = catch_panic(|| self.verdict.as_mut().poll(cx)) else {
            if let Some((head, _)) = &self.head {
                head.route.stats.panicked();
            }
            return Poll::Ready(Err(ServerResponse::Panic));
        };
        Poll::Ready(match (ready!(verdict), self.head.take()) {
            (Verdict::Pass(pass), Some((head, body))) => Ok((Box::new(pass), head, body)),
            (Verdict::Refuse(response), _) => Err(ServerResponse::Guard(response)),
            // A wait for a wait has no end.
            (Verdict::Wait(_), _) | (_, None) => Err(ServerResponse::Deadline),
        })
    }
}
