//! A flow that runs before the route's own, and decides whether that one runs.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_json::Doc;
use http::StatusCode;

use crate::executor::Flow;
use crate::flow_record::FlowRecord;
use crate::incoming_request::IncomingRequest;
use crate::reply::{Reply, ReplyBody, Success};
use crate::route::RouteFlow;
use crate::worker::Worker;

/// The flow before, and what the route's own needs.
pub(crate) struct Before<F> {
    pub flow: Box<Flow>,
    max_depth: usize,
    incoming: Option<Box<IncomingRequest>>,
    start: Option<Start<F>>,
}

/// Starts the route's own flow.
type Start<F> = Box<dyn FnOnce(IncomingRequest) -> F>;

impl<F> Before<F> {
    pub fn new(worker: Rc<Worker>, route: Arc<RouteFlow>, incoming: IncomingRequest, start: Start<F>) -> Before<F> {
        let max_depth = route.limits.max_json_depth;
        let copy = IncomingRequest {
            number: incoming.number,
            known_id: incoming.known_id.clone(),
            method: incoming.method.clone(),
            uri: incoming.uri.clone(),
            params: incoming.params.clone(),
            headers: incoming.headers.clone(),
            body: incoming.body.clone(),
            upload: None,
            remote: incoming.remote,
            identity: incoming.identity.clone(),
            start: incoming.start,
            deadline: incoming.deadline,
            trace: incoming.trace.clone(),
            // The permit stays here, so that it is held until the route's own flow has it.
            permit: None,
            detail: incoming.detail,
        };
        let flow = Box::new(Flow::new(worker, route, copy));
        Before { flow, max_depth, incoming: Some(Box::new(incoming)), start: Some(start) }
    }

    /// The route's own flow, or the reply in its place.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(F, Used), Reply>> {
        let reply = ready!(fanin_upstream::poll_scope(|| Pin::new(&mut *self.flow).poll(context)));
        let auth = match &reply.result {
            Ok(Success { status, body: ReplyBody::Pieces(pieces), .. }) if *status < StatusCode::MULTIPLE_CHOICES => {
                Doc::parse(Bytes::from(pieces.concat()), self.max_depth).ok()
            }
            _ => return Poll::Ready(Err(reply)),
        };
        let (Some(mut incoming), Some(start)) = (self.incoming.take(), self.start.take()) else {
            return Poll::Ready(Err(reply));
        };
        incoming.identity.get_or_insert_default().auth = auth.filter(|auth| !auth.root().is_null());
        Poll::Ready(Ok((start(*incoming), Used::of(&reply))))
    }
}

/// What the flow before has used, which the report of the request includes.
pub(crate) struct Used {
    calls: u32,
    upstream: std::time::Duration,
    steps: u64,
    memory: u64,
    /// Its calls, if they are for a recording.
    record: Option<Arc<FlowRecord>>,
}

impl Used {
    fn of(reply: &Reply) -> Used {
        let (steps, memory) = (reply.usage.steps, reply.usage.memory);
        let record = reply.record.clone().filter(|record| record.names_requests());
        Used { calls: reply.calls, upstream: reply.upstream, steps, memory, record }
    }

    /// Adds it to the reply of the route's own flow.
    pub fn add_to(&self, reply: &mut Reply) {
        reply.calls += self.calls;
        reply.upstream += self.upstream;
        reply.usage.steps += self.steps;
        reply.usage.memory += self.memory;
        match (&mut reply.record, &self.record) {
            (Some(own), Some(before)) => {
                // Nobody else has the record of a flow that has just ended.
                if let Some(own) = Arc::get_mut(own) {
                    own.before = Some(before.clone());
                }
            }
            (none @ None, Some(before)) => *none = Some(before.clone()),
            (_, None) => {}
        }
    }
}
