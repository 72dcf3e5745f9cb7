//! The record of a request that a flow answers.

use std::sync::Arc;

use fanin_flow::{Detail, FlowRecord, Reply, ReplyBody, ReplyStream, Summary};
use fanin_server::Request;
use http::StatusCode;

use super::App;
use crate::recorder::{Recorder, Running};

/// The record, while the request is answered. Empty if nothing is recorded, and once the answer is there.
#[derive(Debug)]
pub struct RequestRecord {
    recorder: Arc<Recorder>,
    running: Option<Box<Running>>,
}

impl RequestRecord {
    pub(super) fn begin(app: &App, request: &Request) -> RequestRecord {
        let running = app.labels.get(request.route).and_then(|route| app.recorder.begin(request, route));
        RequestRecord { recorder: app.recorder.clone(), running: running.map(Box::new) }
    }

    pub(super) fn detail(&self) -> Detail {
        self.running.as_ref().map_or(Detail::Nothing, |running| running.detail())
    }

    /// The flow has replied. The record of an answer in parts ends with its last part.
    pub(super) fn end(&mut self, reply: &mut Reply) {
        let Some(running) = self.running.take() else { return };
        let status = reply.result.as_ref().map_or_else(|error| error.status, |success| success.status);
        if let Ok(success) = &mut reply.result
            && let ReplyBody::Stream(stream) = &mut success.body
            && reply.record.is_none()
        {
            let inner = std::mem::replace(stream, Box::new(Nothing));
            *stream =
                Box::new(RecordedStream { inner, status, recorder: self.recorder.clone(), running: Some(running) });
            return;
        }
        self.recorder.end(*running, status, reply.partial.is_some(), reply.record.take());
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
    recorder: Arc<Recorder>,
    running: Option<Box<Running>>,
}

impl RecordedStream {
    fn end(&mut self, partial: bool, record: Option<Box<FlowRecord>>) {
        if let Some(running) = self.running.take() {
            self.recorder.end(*running, self.status, partial, record);
        }
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
