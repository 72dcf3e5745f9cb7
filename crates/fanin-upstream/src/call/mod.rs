//! A call from its start to its end: deadline, policies, decompression, metrics.
//!
//! - `policies`: breaker, retry, hedge, limit, endpoint, transport.
//! - `attempt_record`: what the policies learn from each attempt.
//! - `exchanged`: what an attempt sends and gets, for a log that keeps it.
//! - `streamed`: an answer whose body is not collected, and what of its call lasts until its end.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use fanin_config::UpstreamKind;
use fanin_tracecontext::TraceContext;
use http::StatusCode;
use http::header::RANGE;
use tokio::time::{Instant, timeout_at};

use crate::deadline_timer::Deadline;
use crate::error::{CallError, ErrorKind, Failure};
use crate::metrics::{Outcome, Shard};
use crate::request::{Answer, CallContext, Request};
use crate::transport::attempt::{Phase, Prepared, Received};
use crate::transport::content_encoding;
use crate::upstream::Upstream;
use crate::worker::WorkerClient;
use policies::Call;

mod attempt_record;
mod exchanged;
mod policies;
mod streamed;

pub use streamed::{Bodies, BodySlot, StreamBounds, StreamedBody};

impl Upstream {
    /// Sends a request and reads the whole answer within the call's timeout and the request's deadline. The future may
    /// be dropped at any point. It then leaves nothing behind: no permit, no queued call, no connection in an unknown
    /// state.
    ///
    /// # Errors
    /// Anything but an answer, whatever the answer's status; see [`ErrorKind`].
    pub fn call(
        self: &Arc<Self>,
        worker: &Rc<WorkerClient>,
        request: Request,
        context: CallContext,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        self.call_into(worker, request, context, Bodies::default())
    }

    /// The same with bodies that are not collected. With `bodies.answer`, it ends with the answer's head and leaves the body there. Timeout
    /// and deadline apply until then. The body is as the upstream encoded it. A call without an answer leaves nothing.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn stream(
        self: &Arc<Self>,
        worker: &Rc<WorkerClient>,
        request: Request,
        context: CallContext,
        bodies: Bodies,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        self.call_into(worker, request, context, bodies)
    }

    fn call_into(
        self: &Arc<Self>,
        worker: &Rc<WorkerClient>,
        request: Request,
        context: CallContext,
        bodies: Bodies,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<> {
        let local = worker.local(self);
        // Prepared outside the future and boxed, so that the future does not carry the request.
        let request = Prepared::new(request).map(Box::new);
        async move {
            let upstream = &*local.upstream;
            let started = Instant::now();
            let trace = context.trace.as_ref().map(|parent| &*parent.request).filter(|trace| trace.is_sampled());
            let record = Record { metrics: &local.metrics, started, trace, outcome: Cell::new(None) };
            let own = started + context.timeout.unwrap_or(upstream.config.timeout);
            let deadline = own.min(context.deadline);
            let phase = Cell::new(Phase::Waiting);
            let result = match (started < deadline, &request) {
                (false, _) => Err(Failure::new(ErrorKind::Timeout, "the deadline had passed before the call")),
                (true, Err(failure)) => Err(failure.clone()),
                (true, Ok(request)) => {
                    let options = upstream.options.of(context.operation);
                    let (slot, upload) = (bodies.answer.as_deref(), bodies.request.as_ref());
                    let call = Call {
                        local: &local,
                        context: &context,
                        options,
                        started,
                        deadline,
                        phase: &phase,
                        slot,
                        upload,
                        attempts: Cell::new(0),
                        wanted: Cell::new(started),
                    };
                    let mut bound = Deadline::new(&local.deadline_timer, deadline);
                    let mut run = pin!(call.run(request));
                    poll_fn(|cx| match run.as_mut().poll(cx) {
                        Poll::Pending => bound.poll(cx).map(|()| Err(timed_out(&phase, own, deadline))),
                        ended => ended,
                    })
                    .await
                }
            };
            let result = match result {
                Ok(received) if bodies.answer.is_none() && received.headers.is_encoded() => {
                    let max_answer = upstream.options.of(context.operation).max_answer;
                    Box::pin(decode(upstream, received, max_answer, own, deadline)).await
                }
                other => other,
            };
            let result = match result {
                // A gRPC server that knows the deadline may answer just after it.
                Ok(received) if received.at > deadline => Err(timed_out(&phase, own, deadline)),
                other => other,
            };
            match result {
                Ok(received) => {
                    let Received { status, headers, body, at } = received;
                    let elapsed = at.saturating_duration_since(started);
                    record.end(Outcome::answer(status), elapsed);
                    let unrequested_part = status == StatusCode::PARTIAL_CONTENT
                        && request.is_ok_and(|request| !request.headers.contains_key(RANGE))
                        && !upstream.config.headers.contains_key(RANGE);
                    Ok(Answer { status, headers, body, elapsed, unrequested_part })
                }
                Err(failure) => {
                    if let Some(slot) = &bodies.answer {
                        slot.clear();
                    }
                    let elapsed = started.elapsed();
                    record.end(Outcome::error(failure.kind), elapsed);
                    Err(failure.into_error(&upstream.name, elapsed))
                }
            }
        }
    }
}

/// Decodes a compressed answer. One that cannot be decoded fails the call, unless its status is a failure anyway.
async fn decode(
    upstream: &Upstream,
    received: Received,
    max_answer: usize,
    own: Instant,
    deadline: Instant,
) -> Result<Received, Failure> {
    // Other transports build their bodies themselves. In gRPC, content-encoding would be the server's own metadata.
    if upstream.config.kind() != UpstreamKind::Http {
        return Ok(received);
    }
    let failed = received.status.as_u16() >= 400;
    let original = failed.then(|| received.clone());
    match timeout_at(deadline, content_encoding::decode(received, max_answer)).await {
        Ok(Ok(decoded)) => Ok(decoded),
        Ok(Err(failure)) => original.ok_or(failure),
        Err(_) => Err(timed_out(&Cell::new(Phase::Decoding), own, deadline)),
    }
}

#[cold]
fn timed_out(phase: &Cell<Phase>, own: Instant, deadline: Instant) -> Failure {
    let cause = if own <= deadline { "the call timed out" } else { "the request's deadline passed" };
    Failure::new(ErrorKind::Timeout, format!("{cause}: {}", phase.get().describe()))
}

/// Counts a call when it ends. A dropped call counts as cancelled.
struct Record<'a> {
    metrics: &'a Shard,
    started: Instant,
    /// Of a sampled trace.
    trace: Option<&'a TraceContext>,
    outcome: Cell<Option<()>>,
}

impl Record<'_> {
    fn end(&self, outcome: Outcome, elapsed: std::time::Duration) {
        self.outcome.set(Some(()));
        self.metrics.record(outcome, elapsed);
        if let Some(trace) = self.trace {
            self.metrics.exemplify(elapsed, trace);
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.outcome.get().is_none() {
            self.metrics.record(Outcome::error(ErrorKind::Cancelled), self.started.elapsed());
        }
    }
}
