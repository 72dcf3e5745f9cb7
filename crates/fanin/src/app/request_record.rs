//! The record of a request that a flow answers.

use std::rc::Rc;
use std::sync::Arc;

use fanin_flow::{Detail, FlowRecord, Reply, ReplyBody, ReplyStream, Summary};
use fanin_server::Request;
use fanin_tracecontext::TraceContext;
use http::StatusCode;

use super::spans::Calls;
use crate::recorder::{Running, WorkerRecorder};
use crate::recording::Capture;

/// The record, while the request is answered. Empty if nothing is recorded, and once the answer is there.
#[derive(Debug)]
pub struct RequestRecord {
    recorder: Rc<WorkerRecorder>,
    running: Option<Running>,
    /// Its part of a trace, if spans of it may be sent.
    context: Option<Arc<TraceContext>>,
    /// If a recording has chosen it.
    capture: Option<Box<Capture>>,
}

impl RequestRecord {
    /// `traced`: spans may be sent.
    pub(super) fn begin(recorder: &Rc<WorkerRecorder>, traced: bool, request: &Request) -> RequestRecord {
        let context = request.trace.clone().filter(|context| traced && context.is_recorded());
        RequestRecord { recorder: recorder.clone(), running: recorder.begin(request), context, capture: None }
    }

    /// It is also recorded for `fanin record`.
    pub(super) fn capture(&mut self, capture: Option<Box<Capture>>) {
        self.capture = capture;
    }

    /// Keeps the request if a panic ends it: it is the one that somebody will look for.
    pub(super) fn guard(&mut self) -> PanicGuard<'_> {
        PanicGuard(self)
    }

    pub(super) fn detail(&self) -> Detail {
        let recorder = self.running.as_ref().map_or(Detail::Nothing, |running| running.detail());
        let recorder = if self.context.is_some() { recorder.max(Detail::Paths) } else { recorder };
        if self.capture.is_some() { Detail::Recording } else { recorder }
    }

    /// The flow has replied. The record of an answer in parts ends with its last part.
    pub(super) fn end(&mut self, reply: &mut Reply) {
        if let Some(capture) = self.capture.take() {
            capture.end(reply, reply.record.as_ref());
        }
        if self.running.is_none() && self.context.is_none() {
            return;
        }
        let status = reply.result.as_ref().map_or_else(|error| error.status, |success| success.status);
        if let Ok(success) = &mut reply.result
            && let ReplyBody::Stream(stream) = &mut success.body
            && reply.record.is_none()
        {
            let inner = std::mem::replace(stream, Box::new(Nothing));
            *stream = Box::new(RecordedStream {
                inner,
                status,
                recorder: self.recorder.clone(),
                running: self.running.take(),
                context: self.context.take(),
            });
            return;
        }
        let ended = Ended { status, partial: reply.partial.is_some(), record: reply.record.take() };
        ended.keep(&self.recorder, self.running.take(), self.context.take());
    }
}

impl RequestRecord {
    /// The request has been answered without a flow.
    pub(super) fn answered(&mut self, status: StatusCode) {
        let ended = Ended { status, partial: false, record: None };
        ended.keep(&self.recorder, self.running.take(), self.context.take());
    }
}

/// See [`RequestRecord::guard`].
pub(super) struct PanicGuard<'a>(&'a mut RequestRecord);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(running) = self.0.running.take()
        {
            self.0.recorder.end(running, StatusCode::INTERNAL_SERVER_ERROR, false, None);
        }
    }
}

/// How a request ended.
struct Ended {
    status: StatusCode,
    partial: bool,
    record: Option<Arc<FlowRecord>>,
}

impl Ended {
    /// For the recorder, and until the request's spans are made.
    fn keep(self, recorder: &WorkerRecorder, running: Option<Running>, context: Option<Arc<TraceContext>>) {
        if let (Some(context), Some(record)) = (context, &self.record) {
            context.set_record(Box::new(Calls(record.clone())));
        }
        if let Some(running) = running {
            recorder.end(running, self.status, self.partial, self.record);
        }
    }
}

/// Stands in for a stream for a moment.
struct Nothing;

impl ReplyStream for Nothing {
    fn poll_next(
        &mut self,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<bytes::Bytes, fanin_flow::Incomplete>>> {
        std::task::Poll::Ready(None)
    }
}

/// An answer that is made while it is sent. Its calls are known at its end.
struct RecordedStream {
    inner: Box<dyn ReplyStream>,
    status: StatusCode,
    recorder: Rc<WorkerRecorder>,
    running: Option<Running>,
    context: Option<Arc<TraceContext>>,
}

impl RecordedStream {
    fn end(&mut self, partial: bool, record: Option<Arc<FlowRecord>>) {
        let ended = Ended { status: self.status, partial, record };
        ended.keep(&self.recorder, self.running.take(), self.context.take());
    }
}

impl ReplyStream for RecordedStream {
    fn poll_next(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<bytes::Bytes, fanin_flow::Incomplete>>> {
        self.inner.poll_next(context)
    }

    fn exact_len(&self) -> Option<u64> {
        self.inner.exact_len()
    }

    fn summary(&mut self) -> Option<Summary> {
        let mut summary = self.inner.summary();
        match &mut summary {
            Some(summary) => self.end(summary.partial, summary.record.take()),
            None => self.end(false, None),
        }
        summary
    }
}
