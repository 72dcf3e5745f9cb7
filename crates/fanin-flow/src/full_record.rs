//! What an explanation needs of a flow: the request, what its calls were answered, where it waited.

use std::net::SocketAddr;
use std::time::Duration;

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_lang::CallSite;
use fanin_trace::Slice;
use fanin_upstream::shared::{RequestKey, SharedResult};
use http::{HeaderMap, Method, Uri};
use tokio::time::Instant;

use crate::call_record::Detail;
use crate::client_identity::ClientIdentity;
use crate::incoming_request::IncomingRequest;

/// Bytes of a request and the answers of its calls that are kept. More, and the flow cannot be run again.
const MAX_BYTES: usize = 16 << 20;

/// The same of a sample. A few large ones, which any client can cause, would take the place of many and much memory.
const MAX_SAMPLE: usize = 64 << 10;

/// The full record of a flow.
pub(crate) struct FullRecord {
    pub(crate) request: RecordedRequest,
    pub(crate) calls: Vec<FullCall>,
    pub(crate) slices: Vec<Slice>,
    pub(crate) waits: Vec<FlowWait>,
    /// Why the flow cannot be run again.
    pub(crate) unrepeatable: Option<&'static str>,
    /// Bytes of the request and of the answers.
    pub(crate) bytes: usize,
    is_sample: bool,
    /// Whether answers and waits are kept, not only the requests of calls.
    pub(crate) keeps_answers: bool,
    /// They are more than it may keep.
    is_too_large: bool,
}

/// A call.
#[derive(Default)]
pub(crate) struct FullCall {
    /// What tells it from other calls, in each run of the flow. `None` if it was not sent.
    pub(crate) identity: Option<Identity>,
    /// What it was answered.
    pub(crate) result: Option<SharedResult>,
}

/// What tells a call from others whatever the timing: its line and its request. Several of the same identity are asked the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) site: CallSite,
    pub(crate) request: RequestKey,
}

/// A part of the flow began to wait for a call.
pub(crate) struct FlowWait {
    pub(crate) site: CallSite,
    pub(crate) call: u32,
    pub(crate) from: Duration,
}

/// A request, to be run again.
#[derive(Clone)]
pub(crate) struct RecordedRequest {
    method: Method,
    pub(crate) uri: Uri,
    params: Vec<(ArcStr, ArcStr)>,
    headers: HeaderMap,
    body: Bytes,
    remote: SocketAddr,
    identity: Option<Box<ClientIdentity>>,
    pub(crate) timeout: Duration,
}

impl RecordedRequest {
    /// The request as it came, starting at `start`.
    pub(crate) fn incoming(&self, start: Instant) -> IncomingRequest {
        let RecordedRequest { method, uri, params, headers, body, remote, identity, timeout } = self.clone();
        IncomingRequest {
            number: 0,
            known_id: None,
            method,
            uri,
            params,
            headers,
            body,
            upload: None,
            remote,
            identity,
            start,
            deadline: start + timeout,
            permit: None,
            detail: Detail::Calls,
            trace: None,
        }
    }
}

impl FullRecord {
    /// The record of a flow that begins, if so much of it is recorded and its request may be kept.
    pub(crate) fn begin(detail: Detail, incoming: &IncomingRequest) -> Option<Box<FullRecord>> {
        let bytes = incoming.body.len() + incoming.headers.iter().map(|(_, value)| value.len()).sum::<usize>();
        let is_sample = match detail {
            Detail::Requests | Detail::Full | Detail::Recording => false,
            Detail::Sample if bytes <= MAX_SAMPLE => true,
            _ => return None,
        };
        Some(Box::new(FullRecord {
            request: RecordedRequest {
                method: incoming.method.clone(),
                uri: incoming.uri.clone(),
                params: incoming.params.clone(),
                headers: incoming.headers.clone(),
                body: incoming.body.clone(),
                remote: incoming.remote,
                identity: incoming.identity.clone(),
                timeout: incoming.deadline.saturating_duration_since(incoming.start),
            },
            calls: Vec::new(),
            slices: Vec::new(),
            waits: Vec::new(),
            unrepeatable: incoming.upload.is_some().then_some("its body is passed on without being collected"),
            bytes,
            is_sample,
            keeps_answers: detail != Detail::Requests,
            is_too_large: false,
        }))
    }

    /// Whether it can be kept once its flow has ended.
    pub(crate) fn may_be_kept(&self) -> bool {
        !(self.is_sample && self.is_too_large)
    }

    /// Keeps what a call was answered.
    pub(crate) fn answered(&mut self, index: usize, result: SharedResult) {
        let kept = self.bytes + result.as_ref().map_or(0, |ready| ready.answer.body.len());
        if kept > if self.is_sample { MAX_SAMPLE } else { MAX_BYTES } {
            self.is_too_large = true;
            self.unrepeatable = Some("its answers are too large to be kept");
            self.calls.iter_mut().for_each(|call| call.result = None);
        } else if let Some(call) = self.calls.get_mut(index) {
            self.bytes = kept;
            call.result = Some(result);
        }
    }
}
