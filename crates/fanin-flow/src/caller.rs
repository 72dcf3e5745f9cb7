//! The interface through which flows send calls: a worker's client, or a script in tests.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use fanin_upstream::{Answer, Bodies, CallContext, CallError, Request, Upstream, WorkerClient};

/// A call in flight. Dropping it cancels the call.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Answer, CallError>>>>;

/// Sends calls. Local to one worker.
pub trait Caller {
    /// Sends `request` to `upstream`. The future must not borrow from `self`.
    fn call(&self, upstream: &Arc<Upstream>, request: Request, context: CallContext) -> CallFuture;

    /// The same with bodies that are not collected. `None` if this caller cannot.
    fn stream(
        &self,
        upstream: &Arc<Upstream>,
        request: Request,
        context: CallContext,
        bodies: Bodies,
    ) -> Option<CallFuture> {
        let _ = (upstream, request, context, bodies);
        None
    }

    /// Whether this thread can spawn tasks that outlive the flow.
    fn spawns(&self) -> bool {
        true
    }
}

impl Caller for Rc<WorkerClient> {
    fn call(&self, upstream: &Arc<Upstream>, request: Request, context: CallContext) -> CallFuture {
        Box::pin(upstream.call(self, request, context))
    }

    fn stream(
        &self,
        upstream: &Arc<Upstream>,
        request: Request,
        context: CallContext,
        bodies: Bodies,
    ) -> Option<CallFuture> {
        Some(Box::pin(upstream.stream(self, request, context, bodies)))
    }
}
