//! A running flow as the server sees it: on the request's worker, or on a thread of a pool.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fanin_config::OnDisconnect;

use crate::executor::Flow;
use crate::reply::Reply;
use crate::request_object::IncomingRequest;
use crate::route::RouteFlow;
use crate::threads::{self, Pool};
use crate::worker::Worker;

/// A running flow. If it is dropped because its client left, it continues as a task of its own if the route's `on_disconnect`
/// requires it. Must be dropped inside a `LocalSet`.
pub struct FlowFuture(Running);

enum Running {
    OnWorker(Box<Flow>),
    OnThread(Box<OnThread>),
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

impl Future for FlowFuture {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let reply = match &mut self.0 {
            Running::OnWorker(flow) => ready!(fanin_upstream::poll_scope(|| Pin::new(&mut **flow).poll(context))),
            Running::OnThread(remote) => ready!(remote.run.as_mut().poll(context)),
            Running::Ended => return Poll::Pending,
        };
        self.0 = Running::Ended;
        Poll::Ready(reply)
    }
}

impl Drop for FlowFuture {
    fn drop(&mut self) {
        let (on_disconnect, wrote) = match &self.0 {
            Running::OnWorker(flow) => (flow.host.route.on_disconnect, flow.host.wrote),
            Running::OnThread(remote) => (remote.on_disconnect, remote.wrote.get()),
            Running::Ended => return,
        };
        let continues = match on_disconnect {
            OnDisconnect::Cancel => false,
            OnDisconnect::Finish => true,
            OnDisconnect::Effect => wrote,
        };
        if continues && !std::thread::panicking() && tokio::runtime::Handle::try_current().is_ok() {
            match std::mem::replace(&mut self.0, Running::Ended) {
                Running::OnWorker(flow) => drop(tokio::task::spawn_local(flow)),
                Running::OnThread(remote) => drop(tokio::task::spawn_local(remote.run)),
                Running::Ended => {}
            }
        }
    }
}
