//! Attempts answered by a script instead of an endpoint, for tests of flows. All policies apply to them as to any other.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use super::attempt::{Attempt, Phase, Received};
use super::upload::UploadSlot;
use crate::error::{ERROR_HEADER, ErrorKind, Failure, error_header_value};
use crate::metrics::Extra;

/// One attempt, as a script sees it.
#[derive(Clone, Debug)]
pub struct StubRequest {
    /// Name of the upstream.
    pub upstream: Arc<str>,
    /// The operation, by its index in the upstream's configuration.
    pub operation: Option<u32>,
    /// HTTP method; POST or GET for a statement, a gRPC method or a model.
    pub method: Method,
    /// Path and query, without the path of the upstream's URL.
    pub path_and_query: String,
    /// The headers of the call.
    pub headers: HeaderMap,
    /// The body. For gRPC, databases and models: the message or the parameters as JSON.
    pub body: Bytes,
    /// Whether it changes nothing at the backend.
    pub safe: bool,
    /// When nobody waits for the answer any more.
    pub deadline: Instant,
    /// When the request started that makes it.
    pub request_started: Instant,
}

/// What an attempt is answered.
#[derive(Clone, Debug)]
pub struct StubAnswer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The body. For gRPC, databases and models: what the flow sees, as JSON.
    pub body: Bytes,
    /// What went wrong, for an error status of a backend that is not HTTP.
    pub message: Option<String>,
}

/// Why an attempt has no answer: its kind, and a text for the error.
#[derive(Clone, Debug)]
pub struct StubFailure {
    /// The kind.
    pub kind: ErrorKind,
    /// The text.
    pub detail: String,
}

/// The future of [`Stub::answer`]. Dropping it cancels the attempt.
pub type StubFuture = Pin<Box<dyn Future<Output = Result<StubAnswer, StubFailure>>>>;

/// Answers attempts in place of all endpoints.
pub trait Stub {
    /// Answers one attempt. It may take as long as it likes: the call's timeouts apply.
    fn answer(&self, request: StubRequest) -> StubFuture;
}

/// The largest body of an upload that a script sees.
const MAX_UPLOAD: usize = 64 << 20;

/// The endpoint of a worker whose calls are answered by a script.
#[derive(Clone)]
pub(crate) struct Scripted {
    pub stub: Rc<dyn Stub>,
    pub upstream: Arc<str>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "script for {}", self.upstream)
    }
}

impl Scripted {
    /// Sends the attempt to the script.
    pub async fn send(&self, attempt: &Attempt<'_>) -> Result<Received, Failure> {
        attempt.phase.set(Phase::Sent);
        attempt.metrics.count(Extra::Sent);
        let body = match attempt.upload {
            None => attempt.request.body.clone(),
            Some(upload) => collect(upload).await?,
        };
        let request = StubRequest {
            upstream: self.upstream.clone(),
            operation: attempt.operation,
            method: attempt.request.method.clone(),
            path_and_query: attempt.request.path.to_string(),
            headers: attempt.request.headers.clone(),
            body,
            safe: attempt.safe,
            deadline: attempt.deadline,
            request_started: attempt.age,
        };
        match self.stub.answer(request).await {
            Ok(answer) => received(attempt, answer),
            Err(StubFailure { kind, detail }) => Err(Failure::new(kind, detail)),
        }
    }
}

fn received(attempt: &Attempt<'_>, answer: StubAnswer) -> Result<Received, Failure> {
    let StubAnswer { status, mut headers, mut body, message } = answer;
    if let Some(source) = attempt.source {
        let length = body.len() as u64;
        source.put(std::mem::take(&mut body), Some(length));
    } else if body.len() > attempt.max_answer {
        let detail = format!("the body has {} bytes, {} are allowed (max_answer)", body.len(), attempt.max_answer);
        return Err(Failure::new(ErrorKind::TooLarge, detail));
    }
    if let Some(message) = message {
        headers.insert(ERROR_HEADER, error_header_value(&message));
    }
    Ok(Received { status, headers: headers.into(), body, at: Instant::now() })
}

/// The whole body of an upload.
async fn collect(upload: &Rc<UploadSlot>) -> Result<Bytes, Failure> {
    let Some(mut parts) = upload.take() else { return Ok(Bytes::new()) };
    let mut whole = BytesMut::new();
    while let Some(part) = poll_fn(|cx| parts.poll_part(cx)).await {
        let Ok(part) = part else {
            upload.set_broken();
            return Err(Failure::new(ErrorKind::Cancelled, "the client's body ended before it was complete"));
        };
        if whole.len() + part.len() > MAX_UPLOAD {
            return Err(Failure::ours(format!("the body is larger than {MAX_UPLOAD} bytes")));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// Where a URL of a scripted upstream points: nowhere, by an address that needs no lookup. User and path stay.
fn unreachable_url(url: &url::Url) -> url::Url {
    let mut plain = url.clone();
    if plain.scheme() == "https" {
        // From one special scheme to another, which is always possible.
        let _ = plain.set_scheme("http");
    }
    // Both have hosts.
    let _ = plain.set_host(Some("127.0.0.1"));
    plain
}

/// Makes an upstream need no network, no certificates and no lookup: what a worker with a script wants.
pub fn without_network(config: &mut fanin_config::Upstream) {
    for urls in [&mut config.urls, &mut config.grpc, &mut config.postgres, &mut config.mysql] {
        urls.iter_mut().for_each(|url| *url = unreachable_url(url));
    }
    config.tls = None;
    if let Some(snapshot) = &mut config.snapshot {
        snapshot.dump = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_point_nowhere() {
        let plain = |url: &str| unreachable_url(&url.parse().unwrap()).to_string();
        assert_eq!(plain("https://user:pw@catalog.internal/api/v2"), "http://user:pw@127.0.0.1/api/v2");
        assert_eq!(plain("http://catalog:8080"), "http://127.0.0.1:8080/");
        assert_eq!(plain("postgres://me@db:5433/shop"), "postgres://me@127.0.0.1:5433/shop");
    }
}
