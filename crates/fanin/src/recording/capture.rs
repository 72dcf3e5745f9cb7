//! A request that is recorded, while it is answered.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_flow::{FlowRecord, IncomingRequest, Reply, ReplyBody};

use super::Recordings;
use super::captured::{Captured, CapturedRequest, CapturedResponse};
use super::session::Session;

/// Larger bodies of responses are left out.
const MAX_BODY: usize = 4 << 20;

/// A request that is recorded.
#[derive(Debug)]
pub struct Capture {
    session: Arc<Session>,
    /// Taken when it is answered.
    request: Option<CapturedRequest>,
}

impl Capture {
    /// Begins to record a request, if it is chosen. `timeout`: its route's.
    pub fn begin(
        recordings: &Recordings,
        incoming: &IncomingRequest,
        route: &Arc<str>,
        timeout: Duration,
    ) -> Option<Box<Capture>> {
        let session = recordings.active().filter(|session| session.choose())?;
        let own = incoming.deadline.saturating_duration_since(incoming.start);
        let request = CapturedRequest {
            route: route.clone(),
            method: incoming.method.clone(),
            uri: incoming.uri.clone(),
            headers: incoming.headers.clone(),
            body: incoming.body.clone(),
            remote: incoming.remote,
            identity: incoming.identity.clone(),
            start: incoming.start,
            queued: incoming.start.elapsed(),
            timeout: Some(own).filter(|own| *own < timeout),
            has_upload: incoming.upload.is_some(),
        };
        Some(Box::new(Capture { session, request: Some(request) }))
    }

    /// It has been answered.
    pub fn end(mut self, reply: &Reply, record: Option<&Arc<FlowRecord>>) {
        let Some(request) = self.request.take() else { return };
        if request.has_upload {
            return self.session.leave_out("its body is passed on without being collected");
        }
        let response = match &reply.result {
            Err(error) => CapturedResponse::Error(error.clone()),
            Ok(success) => {
                let body = match &success.body {
                    ReplyBody::Pieces(pieces) => pieces,
                    ReplyBody::Stream(_) | ReplyBody::Messages(_) => {
                        return self.session.leave_out("its response is made while it is sent");
                    }
                    ReplyBody::Events(_) => return self.session.leave_out("it subscribes to events"),
                };
                let body = (body.iter().map(Bytes::len).sum::<usize>() <= MAX_BODY).then(|| body.clone());
                CapturedResponse::Success { status: success.status, headers: success.headers.clone(), body }
            }
        };
        let took = request.start.elapsed();
        let (partial, record) = (reply.partial.clone(), record.cloned());
        self.session.put(Box::new(Captured { request, took, partial, response, record }));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.request.is_some() {
            self.session.leave_out("its client left before the response");
        }
    }
}
