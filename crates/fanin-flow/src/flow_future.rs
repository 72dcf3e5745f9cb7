//! A running flow as the server sees it: on the request's worker, or on a thread of a pool.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_config::OnDisconnect;

use crate::before::{Before, Used};
use crate::executor::Flow;
use crate::incoming_request::IncomingRequest;
use crate::progressive::Queue;
use crate::reply::{Incomplete, Reply, ReplyBody, ReplyStream, Summary};
use crate::route::RouteFlow;
use crate::threads::{self, Pool};
use crate::worker::Worker;

/// A running flow. If it is dropped because its client left, it continues as a task of its own if the route's `on_disconnect`
/// requires it. Must be dropped inside a `LocalSet`.
pub struct FlowFuture(Running);

enum Running {
    OnWorker(Box<Flow>),
    OnThread(Box<OnThread>),
    /// The flow before the route's own runs.
    Before(Box<Before<FlowFuture>>),
    /// The route's own runs after another.
    After(Box<(FlowFuture, Used)>),
    Ended,
}

/// A flow on a thread of a pool.
struct OnThread {
    run: Pin<Box<dyn Future<Output = Reply>>>,
    wrote: Rc<Cell<bool>>,
    on_disconnect: OnDisconnect,
}

impl FlowFuture {
    pub(crate) fn new(worker: Rc<Worker>, route: Arc<RouteFlow>, incoming: IncomingRequest) -> FlowFuture {
        FlowFuture(Running::OnWorker(Box::new(Flow::new(worker, route, incoming))))
    }

    /// The same on a thread of `pool`.
    pub(crate) fn on_thread(
        worker: Rc<Worker>,
        pool: Arc<Pool>,
        route: Arc<RouteFlow>,
        incoming: IncomingRequest,
    ) -> FlowFuture {
        let wrote = Rc::new(Cell::new(false));
        let on_disconnect = route.on_disconnect;
        let run = Box::pin(threads::run(worker, pool, route, incoming, wrote.clone()));
        FlowFuture(Running::OnThread(Box::new(OnThread { run, wrote, on_disconnect })))
    }
}

impl FlowFuture {
    /// First the flow `before`, then the one that `start` starts.
    pub(crate) fn after(before: Before<FlowFuture>) -> FlowFuture {
        FlowFuture(Running::Before(Box::new(before)))
    }
}

impl Future for FlowFuture {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let reply = match &mut self.0 {
            Running::OnWorker(flow) => ready!(fanin_upstream::poll_scope(|| Pin::new(&mut **flow).poll(context))),
            Running::OnThread(remote) => ready!(remote.run.as_mut().poll(context)),
            Running::Before(before) => match ready!(before.poll(context)) {
                Err(reply) => reply,
                Ok(started) => {
                    self.0 = Running::After(Box::new(started));
                    return self.poll(context);
                }
            },
            Running::After(after) => {
                let mut reply = ready!(Pin::new(&mut after.0).poll(context));
                after.1.add_to(&mut reply);
                reply
            }
            Running::Ended => return Poll::Pending,
        };
        match std::mem::replace(&mut self.0, Running::Ended) {
            Running::OnWorker(flow) if flow.is_sending() => Poll::Ready(PartsReply::begin(flow, reply)),
            _ => Poll::Ready(reply),
        }
    }
}

impl Drop for FlowFuture {
    fn drop(&mut self) {
        let (on_disconnect, wrote) = match &self.0 {
            Running::OnWorker(flow) => (flow.host.route.on_disconnect, flow.host.wrote),
            Running::OnThread(remote) => (remote.on_disconnect, remote.wrote.get()),
            Running::Before(before) => (before.flow.host.route.on_disconnect, before.flow.host.wrote),
            // It decides itself.
            Running::After(_) | Running::Ended => return,
        };
        if continues(on_disconnect, wrote) {
            match std::mem::replace(&mut self.0, Running::Ended) {
                Running::OnWorker(flow) => drop(tokio::task::spawn_local(flow)),
                Running::OnThread(remote) => drop(tokio::task::spawn_local(remote.run)),
                // The route's own flow does not begin.
                Running::Before(before) => drop(tokio::task::spawn_local(before.flow)),
                Running::After(_) | Running::Ended => {}
            }
        }
    }
}

/// Whether a flow goes on after its client has left.
fn continues(on_disconnect: OnDisconnect, wrote: bool) -> bool {
    let wanted = match on_disconnect {
        OnDisconnect::Cancel => false,
        OnDisconnect::Finish => true,
        OnDisconnect::Effect => wrote,
    };
    wanted && !std::thread::panicking() && tokio::runtime::Handle::try_current().is_ok()
}

/// The body of an answer in parts.
struct PartsReply {
    /// `None` after the end.
    flow: Option<Box<Flow>>,
    queue: Queue,
    summary: Option<Summary>,
}

impl PartsReply {
    fn begin(flow: Box<Flow>, reply: Reply) -> Reply {
        let mut parts = PartsReply { flow: Some(flow), queue: Queue::default(), summary: None };
        reply.map_body(|body| {
            if let ReplyBody::Pieces(first) = body {
                parts.queue.push(first);
            }
            Ok(ReplyBody::Stream(Box::new(parts)))
        })
    }

    fn end(&mut self) {
        self.summary = self.flow.take().map(|mut flow| flow.summary());
    }
}

impl ReplyStream for PartsReply {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Incomplete>>> {
        loop {
            if let Some(bytes) = self.queue.pop() {
                return Poll::Ready(Some(Ok(bytes)));
            }
            let Some(flow) = &mut self.flow else { return Poll::Ready(None) };
            match ready!(fanin_upstream::poll_scope(|| flow.poll_part(context))) {
                Some(pieces) => self.queue.push(pieces),
                None => self.end(),
            }
        }
    }

    fn summary(&mut self) -> Option<Summary> {
        // A client that left: of a flow that goes on, only its end will tell.
        if self.flow.as_ref().is_some_and(|flow| !continues(flow.host.route.on_disconnect, flow.host.wrote)) {
            self.end();
        }
        self.summary.take()
    }
}

impl Drop for PartsReply {
    fn drop(&mut self) {
        let Some(mut flow) = self.flow.take() else { return };
        if continues(flow.host.route.on_disconnect, flow.host.wrote) {
            drop(tokio::task::spawn_local(async move {
                while poll_fn(|context| fanin_upstream::poll_scope(|| flow.poll_part(context))).await.is_some() {}
            }));
        }
    }
}
