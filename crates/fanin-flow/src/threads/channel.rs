//! What a request's thread and its worker tell each other.

use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_upstream::{Answer, CallContext, CallError, Request, Upstream};
use http::{HeaderMap, Method, Uri};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::block_on::Wakeup;
use crate::caller::{CallFuture, Caller};
use crate::reply::Reply;
use crate::request_object::IncomingRequest;
use crate::route::RouteFlow;

/// What a thread tells the request's worker. There are at most `max_calls` calls, so the channel needs no bound of its own.
pub(super) enum Message {
    /// A thread has taken the request.
    Taken,
    /// Make this call.
    Call(Box<Call>),
    /// The flow has ended, or panicked.
    Done(Box<Result<Reply, Box<dyn Any + Send>>>),
}

/// A call that the worker makes for the flow. The flow no longer wants it once `reply` is closed.
pub(super) struct Call {
    pub(super) upstream: Arc<Upstream>,
    pub(super) request: Request,
    pub(super) context: CallContext,
    pub(super) reply: oneshot::Sender<Result<Answer, CallError>>,
}

/// A request that waits for a thread, or has one.
pub(crate) struct Job {
    pub(super) route: Arc<RouteFlow>,
    pub(super) traced: bool,
    pub(super) queued: Instant,
    /// Until a thread takes it.
    parts: Mutex<Option<JobParts>>,
    ended: AtomicBool,
    /// Of the thread that runs it.
    wakeup: Mutex<Option<Arc<Wakeup>>>,
}

/// What the thread needs of the request, and the way back to its worker.
pub(super) struct JobParts {
    pub(super) request: SendableRequest,
    pub(super) messages: mpsc::UnboundedSender<Message>,
    /// The worker's runtime: its timers serve the flow, and in paused time its clock counts.
    pub(super) runtime: tokio::runtime::Handle,
}

/// A request less its hold, which stays on the worker.
pub(super) struct SendableRequest {
    method: Method,
    uri: Uri,
    params: Vec<(ArcStr, ArcStr)>,
    headers: HeaderMap,
    body: Bytes,
    remote: SocketAddr,
    start: Instant,
    deadline: Instant,
}

impl From<IncomingRequest> for SendableRequest {
    fn from(incoming: IncomingRequest) -> SendableRequest {
        let IncomingRequest { method, uri, params, headers, body, remote, start, deadline, permit: _ } = incoming;
        SendableRequest { method, uri, params, headers, body, remote, start, deadline }
    }
}

impl From<SendableRequest> for IncomingRequest {
    fn from(request: SendableRequest) -> IncomingRequest {
        let SendableRequest { method, uri, params, headers, body, remote, start, deadline } = request;
        IncomingRequest { method, uri, params, headers, body, remote, start, deadline, permit: None }
    }
}

impl Job {
    pub(super) fn new(route: Arc<RouteFlow>, parts: JobParts, traced: bool) -> Job {
        Job {
            route,
            traced,
            queued: Instant::now(),
            parts: Mutex::new(Some(parts)),
            ended: AtomicBool::new(false),
            wakeup: Mutex::default(),
        }
    }

    pub(super) fn take(&self) -> Option<JobParts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The flow has this thread from now on, or none any more.
    pub(super) fn runs_on(&self, wakeup: Option<&Arc<Wakeup>>) {
        *self.wakeup.lock().unwrap_or_else(PoisonError::into_inner) = wakeup.cloned();
    }

    /// Set once nobody wants the reply.
    pub(super) fn ended(&self) -> &AtomicBool {
        &self.ended
    }

    /// Nobody wants the reply: a thread that runs the flow drops it at its next turn.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(wakeup) = &*self.wakeup.lock().unwrap_or_else(PoisonError::into_inner) {
            wakeup.wake_thread();
        }
    }
}

/// The caller of a pool's thread: hands calls to the worker of the request that the thread runs.
#[derive(Default)]
pub(super) struct WorkerCaller(RefCell<Option<mpsc::UnboundedSender<Message>>>);

impl WorkerCaller {
    /// Calls go this way from now on.
    pub(super) fn connect(&self, messages: Option<mpsc::UnboundedSender<Message>>) {
        *self.0.borrow_mut() = messages;
    }
}

impl Caller for WorkerCaller {
    fn call(&self, upstream: &Arc<Upstream>, request: Request, context: CallContext) -> CallFuture {
        let (reply, answer) = oneshot::channel();
        let name = upstream.name().clone();
        // At once, not when the future is first polled: the worker makes the call while the flow still computes.
        if let Some(link) = &*self.0.borrow() {
            // Should the worker be gone, the sender is dropped with the message, and the wait below ends.
            let _ = link.send(Message::Call(Box::new(Call { upstream: upstream.clone(), request, context, reply })));
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(CallError::cancelled(&name))) })
    }

    fn spawns(&self) -> bool {
        false
    }
}
