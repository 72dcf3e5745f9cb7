//! Messages between the thread that runs a flow and the request's worker.

use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_tracecontext::TraceContext;
use fanin_upstream::{Answer, CallContext, CallError, Request, Upstream};
use http::{HeaderMap, HeaderValue, Method, Uri};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::block_on::Wakeup;
use crate::call_record::Detail;
use crate::caller::{CallFuture, Caller};
use crate::client_identity::ClientIdentity;
use crate::incoming_request::IncomingRequest;
use crate::reply::{Pieces, Reply};
use crate::route::RouteFlow;

/// From the thread to the worker. A flow makes at most `max_calls` calls, which bounds the channel.
pub(super) enum Message {
    /// A thread has taken the request.
    Taken,
    /// Make this call.
    Call(Box<Call>),
    /// The flow has ended, or panicked.
    Done(Box<Result<Reply<Pieces>, Box<dyn Any + Send>>>),
}

/// A call that the worker sends for the flow. It is cancelled once `reply` is closed.
pub(super) struct Call {
    pub(super) upstream: Arc<Upstream>,
    pub(super) request: Request,
    pub(super) context: CallContext,
    pub(super) reply: oneshot::Sender<Result<Answer, CallError>>,
}

/// A request that waits for a thread, or runs on one.
pub(crate) struct Job {
    pub(super) route: Arc<RouteFlow>,
    pub(super) queued: Instant,
    /// Taken by the thread that runs it.
    parts: Mutex<Option<JobParts>>,
    ended: AtomicBool,
    /// Wakes the thread that runs it.
    wakeup: Mutex<Option<Arc<Wakeup>>>,
}

/// The request, and the channel to its worker.
pub(super) struct JobParts {
    pub(super) request: SendableRequest,
    pub(super) messages: mpsc::UnboundedSender<Message>,
    /// The worker's runtime, whose timers and clock the flow uses.
    pub(super) runtime: tokio::runtime::Handle,
}

/// A request without its permit, which stays on the worker.
pub(super) struct SendableRequest {
    number: u64,
    known_id: Option<HeaderValue>,
    method: Method,
    uri: Uri,
    params: Vec<(ArcStr, ArcStr)>,
    headers: HeaderMap,
    body: Bytes,
    remote: SocketAddr,
    identity: Option<Box<ClientIdentity>>,
    start: Instant,
    deadline: Instant,
    detail: Detail,
    trace: Option<Arc<TraceContext>>,
}

impl From<IncomingRequest> for SendableRequest {
    fn from(incoming: IncomingRequest) -> SendableRequest {
        let IncomingRequest {
            number,
            known_id,
            method,
            uri,
            params,
            headers,
            body,
            remote,
            identity,
            start,
            deadline,
            upload: _,
            permit: _,
            detail,
            trace,
        } = incoming;
        SendableRequest {
            number,
            known_id,
            method,
            uri,
            params,
            headers,
            body,
            remote,
            identity,
            start,
            deadline,
            detail,
            trace,
        }
    }
}

impl From<SendableRequest> for IncomingRequest {
    fn from(request: SendableRequest) -> IncomingRequest {
        let SendableRequest {
            number,
            known_id,
            method,
            uri,
            params,
            headers,
            body,
            remote,
            identity,
            start,
            deadline,
            detail,
            trace,
        } = request;
        IncomingRequest {
            number,
            known_id,
            method,
            uri,
            params,
            headers,
            body,
            remote,
            identity,
            start,
            deadline,
            upload: None,
            permit: None,
            detail,
            trace,
        }
    }
}

impl Job {
    pub(super) fn new(route: Arc<RouteFlow>, parts: JobParts) -> Job {
        Job {
            route,
            queued: Instant::now(),
            parts: Mutex::new(Some(parts)),
            ended: AtomicBool::new(false),
            wakeup: Mutex::default(),
        }
    }

    pub(super) fn take(&self) -> Option<JobParts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sets the thread that runs the flow; `None` when it has ended.
    pub(super) fn runs_on(&self, wakeup: Option<&Arc<Wakeup>>) {
        *self.wakeup.lock().unwrap_or_else(PoisonError::into_inner) = wakeup.cloned();
    }

    /// Set once the reply is not needed any more.
    pub(super) fn ended(&self) -> &AtomicBool {
        &self.ended
    }

    /// The reply is not needed any more: wakes the thread that runs the flow, which drops it.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(wakeup) = &*self.wakeup.lock().unwrap_or_else(PoisonError::into_inner) {
            wakeup.wake_thread();
        }
    }
}

/// The caller of a pool's thread: passes calls to the worker of the request.
#[derive(Default)]
pub(super) struct WorkerCaller(RefCell<Option<mpsc::UnboundedSender<Message>>>);

impl WorkerCaller {
    /// Sets the channel for calls.
    pub(super) fn connect(&self, messages: Option<mpsc::UnboundedSender<Message>>) {
        *self.0.borrow_mut() = messages;
    }
}

impl Caller for WorkerCaller {
    fn call(&self, upstream: &Arc<Upstream>, request: Request, context: CallContext) -> CallFuture {
        let (reply, answer) = oneshot::channel();
        let name = upstream.name().clone();
        // At once, not at the first poll: the worker sends the call while the flow still computes.
        if let Some(link) = &*self.0.borrow() {
            // If the worker has ended, the message is dropped with `reply`, which ends the wait below.
            let _ = link.send(Message::Call(Box::new(Call { upstream: upstream.clone(), request, context, reply })));
        }
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(CallError::cancelled(&name))) })
    }

    fn spawns(&self) -> bool {
        false
    }
}
