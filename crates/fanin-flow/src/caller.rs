//! Who performs calls: the upstreams of this worker, or a script in tests.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use fanin_upstream::{Answer, CallContext, CallError, Request, Upstream, WorkerClient};

/// A call under way. Dropping it cancels the call.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Answer, CallError>>>>;

/// Performs one call. Worker-local; the future must not borrow.
pub trait Caller {
    /// Starts `request` at `upstream`. Nothing may happen before the future is polled.
    fn call(&self, upstream: &Arc<Upstream>, request: Request, context: CallContext) -> CallFuture;

    /// Whether tasks can be started here that outlive the flow.
    fn spawns(&self) -> bool {
        true
    }
}

impl Caller for Rc<WorkerClient> {
    fn call(&self, upstream: &Arc<Upstream>, request: Request, context: CallContext) -> CallFuture {
        Box::pin(upstream.call(self, request, context))
    }
}
