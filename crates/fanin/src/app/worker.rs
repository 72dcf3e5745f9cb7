//! The application on one worker.

use std::cell::OnceCell;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Context, Poll};
use std::time::Duration;

use fanin_flow::{Detail, FlowFuture, WorkerFlows};
use fanin_push::Hub;
use fanin_server::{GuardedHead, Request, RequestEnd, RequestId, Response, Verdict, Worker, WorkerContext};
use fanin_static::{Requested, Static};
use fanin_upstream::WorkerClient;

use super::models::InProcess;
use super::request_record::RequestRecord;
use super::websocket::Handshake;
use super::{App, convert, guard, proxy, rpc};
use crate::recorder::WorkerRecorder;
use crate::recording::Capture;

thread_local! {
    /// The worker's subscribers. A reload keeps them.
    static HUB: OnceCell<Rc<Hub>> = const { OnceCell::new() };
    /// The worker's connections to upstreams. A reload makes a new `AppWorker`, but keeps these.
    static CLIENT: OnceCell<Rc<WorkerClient>> = const { OnceCell::new() };
}

/// How long memory that a worker has freed may stay with the process: at most twice this.
const COLLECT_INTERVAL: Duration = Duration::from_secs(5);

/// Sets up what a thread has once, whatever is reloaded.
fn first_on_this_thread() -> Rc<WorkerClient> {
    tokio::task::spawn_local(async {
        loop {
            tokio::time::sleep(COLLECT_INTERVAL).await;
            fanin_heap::collect();
        }
    });
    WorkerClient::new()
}

/// The flows of one worker.
pub struct AppWorker {
    app: Arc<App>,
    flows: WorkerFlows,
    hub: Rc<Hub>,
    client: Rc<WorkerClient>,
    recorder: Rc<WorkerRecorder>,
}

impl AppWorker {
    /// Sets the flows up on this thread.
    pub(super) fn new(app: Arc<App>, context: WorkerContext) -> AppWorker {
        let client = CLIENT.with(|client| client.get_or_init(first_on_this_thread).clone());
        if let Some(side) = &app.models {
            client.set_model_backend(Arc::new(InProcess(side.models().clone())));
        }
        client.refresh_snapshots(&app.upstreams);
        app.fetch_keys(&client);
        let activity = context.activity;
        let set_activity = move |route: Option<usize>| match route {
            Some(route) => activity.set(route as u64 + 1),
            None => activity.clear(),
        };
        let flows = app.flows.worker(Rc::new(client.clone()), Box::new(set_activity), Detail::Nothing);
        let hub = HUB.with(|hub| {
            hub.get_or_init(|| {
                let hub = Hub::new(app.channels.clone());
                tokio::task::spawn_local(hub.clone().run());
                hub
            })
            .clone()
        });
        flows.set_hub(&hub);
        let recorder = Rc::new(WorkerRecorder::new(&app.recorder, &app.labels));
        AppWorker { app, flows, hub, client, recorder }
    }

    /// Starts the flow of a request, and its record.
    fn start(&self, route: usize, request: Request) -> (FlowFuture, RequestRecord) {
        let mut record = RequestRecord::begin(&self.recorder, self.app.spans.is_some(), &request);
        let mut incoming = convert::incoming(&self.app.params[route], request);
        let (label, timeout) = (&self.app.labels[route], self.app.config.routes[route].timeout);
        record.capture(Capture::begin(&self.app.recordings, &incoming, label, timeout));
        incoming.detail = record.detail();
        (self.flows.run(route, incoming), record)
    }

    /// Runs the flow of a handshake.
    fn open_websocket(&self, request: Request, handshake: Handshake) -> impl Future<Output = Response> + use<> {
        let (route, id) = (request.route, request.id);
        let (flow, mut record) = self.start(route, request);
        async move {
            let mut reply = flow.await;
            record.end(&mut reply);
            convert::handshake_response(reply, id, handshake)
        }
    }
}

impl Worker for AppWorker {
    type Future = Answering;

    fn handle(&self, request: Request) -> Answering {
        let route = request.route;
        if let Some(Some(answer)) = self.app.statics.get(route) {
            return without_flow(answer, request);
        }
        if let Some(target) = self.app.methods.get(route) {
            return Answering::Other(Box::pin(rpc::serve(
                target.clone(),
                self.app.clone(),
                self.flows.clone(),
                self.recorder.clone(),
                request,
            )));
        }
        if let Some(Some(proxied)) = self.app.proxied.get(route) {
            let record = RequestRecord::begin(&self.recorder, self.app.spans.is_some(), &request);
            return Answering::Other(Box::pin(proxy::serve(proxied.clone(), self.client.clone(), request, record)));
        }
        if request.can_upgrade
            && let Some(handshake) = Handshake::read(&request, &self.app.config.routes[route].allowed_origins)
        {
            return Answering::Other(match handshake {
                Ok(handshake) => Box::pin(self.open_websocket(request, handshake)),
                Err(refused) => Box::pin(ready(refused.response(request.id))),
            });
        }
        let id = request.id;
        let (flow, record) = self.start(route, request);
        Answering::Flow { flow, request: id, record }
    }

    fn guard(&self, head: &GuardedHead<'_>) -> Verdict {
        guard::decide(&self.app.guards, head)
    }

    fn request_ended(&self, end: &RequestEnd<'_>) -> bool {
        let target = self.app.spans.as_ref();
        let wanted = target.is_some_and(|target| target.wants(end.trace, end.status, end.duration));
        wanted && self.app.export.send(self.app.names.record(end))
    }

    fn computing(&self) -> usize {
        self.flows.computing()
    }

    fn drain(&self) {
        self.hub.drain();
        self.app.health.drain();
        super::models::drain_here();
    }

    fn is_busy(&self) -> bool {
        super::models::is_busy_here()
    }
}

/// Answers a request to a route without a flow.
#[cold]
fn without_flow(answer: &Static, request: Request) -> Answering {
    let Request { method, uri, headers, params, permit, .. } = request;
    let requested = Requested { method: &method, path: uri.path(), query: uri.query(), headers: &headers };
    if let Some(response) = answer.at_once(requested, params.iter()) {
        return Answering::Other(Box::pin(ready(response)));
    }
    let answer = answer.clone();
    Answering::Other(Box::pin(async move {
        let requested = Requested { method: &method, path: uri.path(), query: uri.query(), headers: &headers };
        answer.wait(requested, params.iter(), Box::new(permit)).await
    }))
}

/// A request that is being answered. After a drop, the flow decides whether it goes on (`on_disconnect`).
pub enum Answering {
    /// A flow runs.
    Flow {
        /// The flow.
        flow: FlowFuture,
        /// The request's id.
        request: RequestId,
        /// Its record.
        record: RequestRecord,
    },
    /// A flow serves a gRPC method, or decides about a WebSocket.
    Other(Pin<Box<dyn Future<Output = Response>>>),
}

impl Future for Answering {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        match &mut *self {
            Answering::Flow { flow, request, record } => {
                let guard = record.guard();
                let polled = Pin::new(flow).poll(context);
                drop(guard);
                let mut reply = task::ready!(polled);
                record.end(&mut reply);
                Poll::Ready(convert::response(reply, *request))
            }
            Answering::Other(call) => call.as_mut().poll(context),
        }
    }
}
