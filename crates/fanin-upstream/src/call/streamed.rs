//! Answers whose body is not collected: [`StreamedBody`] takes it from the connection part by part, as fast as its reader does.
//!
//! Nothing is read ahead: a connection is read when the reader polls. So a reader that stops stops the upstream.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::call_options::CallOptions;
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Failure, Fault};
use crate::limiter::OwnedPermit;
use crate::metrics::StreamEnd;
use crate::transport::part_source::{Ending, PartBody, PartSource, SourceSlot};
use crate::transport::upload::UploadSlot;
use crate::worker::WorkerUpstream;

/// Bounds of one streamed answer. `None`: those of the operation or upstream.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamBounds {
    /// Most bytes of the body.
    pub max: Option<usize>,
    /// How long the upstream may send nothing.
    pub idle_timeout: Option<Duration>,
    /// How long the body may take in all. Default: as long as it takes.
    pub timeout: Option<Duration>,
}

/// The bodies of a call that are not collected.
#[derive(Clone, Debug, Default)]
pub struct Bodies {
    /// Where the answer's body goes.
    pub answer: Option<Rc<BodySlot>>,
    /// What the request is sent with, instead of its own body.
    pub request: Option<Rc<UploadSlot>>,
}

/// Where a call leaves the body of its answer instead of collecting it.
#[derive(Default)]
pub struct BodySlot {
    bounds: Cell<StreamBounds>,
    pub(crate) source: SourceSlot,
    body: RefCell<Option<Box<StreamedBody>>>,
}

impl fmt::Debug for BodySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot of a body, {:?}", self.bounds.get())
    }
}

impl BodySlot {
    /// An empty slot.
    pub fn new(bounds: StreamBounds) -> Rc<BodySlot> {
        Rc::new(BodySlot { bounds: Cell::new(bounds), ..BodySlot::default() })
    }

    /// Changes the bounds, also of a body that is there already.
    pub fn set_bounds(&self, bounds: StreamBounds) {
        self.bounds.set(bounds);
        if let Some(body) = self.body.borrow_mut().as_mut() {
            body.max = bounds.max.map_or(body.max, |max| max as u64);
            body.idle_timeout = bounds.idle_timeout.unwrap_or(body.idle_timeout);
            body.deadline = bounds.timeout.map(|timeout| Instant::now() + timeout);
        }
    }

    /// The body, once the call has answered. Dropping it gives it up.
    pub fn take(&self) -> Option<Box<StreamedBody>> {
        self.body.borrow_mut().take()
    }

    /// Most bytes of the body.
    pub(super) fn max(&self, options: &CallOptions) -> usize {
        self.bounds.get().max.unwrap_or(options.max_stream)
    }

    /// How long the body may take.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.bounds.get().timeout
    }

    /// Drops what an attempt has left.
    pub(super) fn clear(&self) {
        drop(self.source.take());
        drop(self.take());
    }

    /// Binds the body that an attempt has left to its call, which lasts until the body ends. Its timeout counts from `begun`.
    pub(super) fn bind(&self, call: StreamedCall, options: &CallOptions, begun: Instant) {
        let Some(PartBody { source, announced }) = self.source.take() else { return };
        let body = StreamedBody {
            source: Some(source),
            announced,
            taken: 0,
            max: self.max(options) as u64,
            idle_timeout: self.bounds.get().idle_timeout.unwrap_or(options.stream_idle_timeout),
            silent_since: None,
            timer: None,
            deadline: self.bounds.get().timeout.map(|timeout| begun + timeout),
            ending: None,
            call: Some(call),
        };
        self.body.replace(Some(Box::new(body)));
    }

    /// Adds the permit of the operation's own limit.
    pub(super) fn hold(&self, permit: OwnedPermit) {
        if let Some(call) = self.body.borrow_mut().as_mut().and_then(|body| body.call.as_mut()) {
            call.operation_permit = Some(permit);
        }
    }
}

/// What a streamed answer holds of its call until it ends.
pub(super) struct StreamedCall {
    pub local: Rc<WorkerUpstream>,
    pub endpoint: Arc<Endpoint>,
    pub _permit: Option<OwnedPermit>,
    pub operation_permit: Option<OwnedPermit>,
    /// The call counts among those on its endpoint.
    pub is_counted: bool,
}

impl Drop for StreamedCall {
    fn drop(&mut self) {
        if self.is_counted {
            self.endpoint.load.end();
        }
    }
}

/// The body of an answer, read as its reader takes it. Dropped before its end, it closes its connection.
pub struct StreamedBody {
    /// `None` after the end.
    source: Option<Box<dyn PartSource>>,
    announced: Option<u64>,
    taken: u64,
    max: u64,
    idle_timeout: Duration,
    /// Since when a part is awaited.
    silent_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The end of the time for the whole body.
    deadline: Option<Instant>,
    ending: Option<Ending>,
    call: Option<StreamedCall>,
}

impl fmt::Debug for StreamedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "streamed body, {} of {:?} bytes taken", self.taken, self.announced)
    }
}

impl StreamedBody {
    /// Bytes of the whole body, if they are announced.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Bytes taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// How the server has ended a gRPC stream, once it has.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The next part; `None` at the end of a complete body. A part of a gRPC stream is one message as JSON.
    ///
    /// # Errors
    /// Why the body is not complete. It has ended then, and the failure is logged and counted.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ErrorKind>>> {
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        let part = match source.poll_part(cx) {
            Poll::Pending => match self.poll_timer(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(failure) => Some(Err(failure)),
            },
            // A server that knows the deadline may break off at it.
            Poll::Ready(Some(Ok(_) | Err(Failure { kind: ErrorKind::Protocol, .. }))) if self.is_overdue() => {
                Some(Err(self.too_late()))
            }
            Poll::Ready(part) => part,
        };
        self.silent_since = None;
        Poll::Ready(match part {
            Some(Ok(part)) if part.len() as u64 > self.max.saturating_sub(self.taken) => {
                let detail = format!("the streamed answer has more than {} bytes (max_stream)", self.max);
                Some(Err(self.fail(&Failure::new(ErrorKind::TooLarge, detail))))
            }
            Some(Ok(part)) => {
                self.taken += part.len() as u64;
                if let Some(call) = &self.call {
                    call.local.metrics.add_stream_bytes(part.len());
                }
                Some(Ok(part))
            }
            Some(Err(failure)) => Some(Err(self.fail(&failure))),
            None => {
                self.end(StreamEnd::Complete);
                None
            }
        })
    }

    /// The failure of an upstream that is silent for too long, or of a body that takes too long.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        let idle = since.checked_add(self.idle_timeout);
        let Some(end) = idle.into_iter().chain(self.deadline).min() else { return Poll::Pending };
        let timer = match &mut self.timer {
            Some(timer) => {
                if timer.deadline() != end {
                    timer.as_mut().reset(end);
                }
                timer
            }
            none => none.insert(Box::pin(sleep_until(end))),
        };
        timer.as_mut().poll(cx).map(|()| {
            if idle != Some(end) {
                return self.too_late();
            }
            let millis = self.idle_timeout.as_millis();
            let detail = format!("nothing of the streamed answer within {millis} ms (stream_idle_timeout)");
            Failure::new(ErrorKind::Timeout, detail)
        })
    }

    fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    #[cold]
    fn too_late(&self) -> Failure {
        let detail = format!("the streamed answer is not complete after its timeout, {} bytes came", self.taken);
        Failure::new(ErrorKind::Timeout, detail)
    }

    #[cold]
    fn fail(&mut self, failure: &Failure) -> ErrorKind {
        if let Some(call) = &self.call {
            tracing::warn!(
                upstream = %call.local.upstream.name(), endpoint = %call.endpoint.address, kind = failure.kind.as_str(),
                bytes = self.taken, detail = %failure.detail, "a streamed answer is incomplete"
            );
            // A body that takes long because its reader is slow shows nothing about the upstream.
            let is_healthy = failure.kind == ErrorKind::TooLarge || failure.fault != Fault::Upstream;
            if !is_healthy && !self.is_overdue() {
                call.local.stream_failed(&call.endpoint);
            }
        }
        self.end(StreamEnd::of(failure.kind));
        failure.kind
    }

    fn end(&mut self, end: StreamEnd) {
        // First the connection, then the permits.
        if let Some(mut source) = self.source.take() {
            self.ending = source.ending();
        }
        if let Some(call) = self.call.take() {
            call.local.metrics.count_stream(end);
        }
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        if self.source.is_some() {
            self.end(StreamEnd::Cancelled);
        }
    }
}
