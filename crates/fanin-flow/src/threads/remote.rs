//! The worker's side of a request on the threads executor: waits for a thread, sends the flow's calls, and receives the reply.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream};
use http::StatusCode;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep_until};

use super::channel::{Call, Job, JobParts, Message};
use super::pool::{Pool, Refused};
use crate::flow_error::FlowError;
use crate::incoming_request::IncomingRequest;
use crate::reply::{Reply, ReplyBody};
use crate::route::RouteFlow;
use crate::worker::Worker;

/// Runs a flow on a thread of `pool`. Dropping the future cancels the flow.
pub(crate) async fn run(
    worker: Rc<Worker>,
    pool: Arc<Pool>,
    route: Arc<RouteFlow>,
    mut incoming: IncomingRequest,
    wrote: Rc<Cell<bool>>,
) -> Reply {
    // The request's permit is released on the worker, when the flow has ended.
    let _permit = incoming.permit.take();
    let deadline = incoming.deadline;
    incoming.detail = incoming.detail.max(worker.detail);
    let (messages, inbox) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Handle::current();
    let parts = JobParts { request: incoming.into(), messages, runtime };
    let job = Arc::new(Job::new(route, parts));
    if let Err(refused) = pool.offer(&job) {
        return failed(refuse(refused));
    }
    let queued = Some(Box::pin(sleep_until(deadline)));
    let mut remote = Remote { worker, pool, job, wrote, inbox, calls: FuturesUnordered::new(), queued, done: false };
    poll_fn(|context| remote.poll(context)).await
}

struct Remote {
    worker: Rc<Worker>,
    pool: Arc<Pool>,
    job: Arc<Job>,
    wrote: Rc<Cell<bool>>,
    inbox: mpsc::UnboundedReceiver<Message>,
    calls: FuturesUnordered<Pin<Box<dyn Future<Output = ()>>>>,
    /// The deadline until a thread takes the request. Then the flow itself ends by its deadline.
    queued: Option<Pin<Box<Sleep>>>,
    done: bool,
}

impl Remote {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        loop {
            while let Poll::Ready(message) = self.receive(context) {
                match message {
                    Some(Message::Taken) => self.queued = None,
                    Some(Message::Call(call)) => {
                        if !call.context.safe {
                            self.wrote.set(true);
                        }
                        self.calls.push(Box::pin(make(&self.worker, *call)));
                    }
                    Some(Message::Done(outcome)) => {
                        self.done = true;
                        match *outcome {
                            Ok(reply) => return Poll::Ready(reply.map_body(|pieces| Ok(ReplyBody::Pieces(pieces)))),
                            // As if the flow had run here: the server counts panics of its workers.
                            Err(panic) => std::panic::resume_unwind(panic),
                        }
                    }
                    // A thread always sends `Done`, unless the request was withdrawn.
                    None => return Poll::Ready(failed(FlowError::flow())),
                }
            }
            while let Poll::Ready(Some(())) = Pin::new(&mut self.calls).poll_next(context) {}
            if let Some(deadline) = &mut self.queued
                && deadline.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(failed(FlowError::deadline()));
            }
            let Some(quiescence) = &self.pool.shared.quiescence else { return Poll::Pending };
            quiescence.wait();
            if self.inbox.is_empty() {
                return Poll::Pending;
            }
        }
    }

    fn receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        // `try_recv` first, because it does not use the task's budget: `poll` above must not end while there is a message.
        match self.inbox.try_recv() {
            Ok(message) => Poll::Ready(Some(message)),
            Err(_) => self.inbox.poll_recv(context),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.done {
            self.job.end();
            self.pool.withdraw(&self.job);
        }
    }
}

/// Sends a call for the flow, until the flow cancels it.
fn make(worker: &Worker, call: Call) -> impl Future<Output = ()> + use<> {
    let Call { upstream, request, context, mut reply } = call;
    let mut answer = worker.caller.call(&upstream, request, context);
    async move {
        let result = poll_fn(|context| {
            if reply.poll_closed(context).is_ready() {
                return Poll::Ready(None);
            }
            answer.as_mut().poll(context).map(Some)
        });
        if let Some(result) = result.await {
            let _ = reply.send(result);
        }
    }
}

#[cold]
fn failed(error: FlowError) -> Reply {
    Reply {
        result: Err(error),
        calls: 0,
        upstream: Duration::ZERO,
        partial: None,
        usage: crate::Usage::default(),
        limit: None,
        record: None,
    }
}

#[cold]
fn refuse(refused: Refused) -> FlowError {
    FlowError {
        status: StatusCode::SERVICE_UNAVAILABLE,
        kind: "threads",
        title: "No thread is free",
        detail: refused.to_string().into(),
        upstream: None,
        retry_after: Some(Duration::from_secs(1)),
        rpc: None,
    }
}
