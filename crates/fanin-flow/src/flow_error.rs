//! Why a flow has no response.

use std::borrow::Cow;
use std::time::Duration;

use fanin_upstream::{CallError, ErrorKind};
use http::StatusCode;

use crate::rpc_status::RpcStatus;

/// Why a flow has no response. The client receives it as a problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{title}: {detail}")]
pub struct FlowError {
    /// Status.
    pub status: StatusCode,
    /// A short name of the kind of problem: `upstream-timeout`.
    pub kind: &'static str,
    /// The kind in words.
    pub title: &'static str,
    /// What happened, without details that only the operator may see.
    pub detail: Cow<'static, str>,
    /// The upstream that failed, if one did.
    pub upstream: Option<String>,
    /// After how long a retry makes sense, if the problem is temporary.
    pub retry_after: Option<Duration>,
    /// The code for clients that call a method, if the flow has chosen one.
    pub rpc: Option<Box<RpcStatus>>,
}

impl FlowError {
    /// The error for a failed required call.
    pub(crate) fn call(error: &CallError) -> FlowError {
        FlowError::upstream(&error.upstream, error.kind)
    }

    /// The error for a failure of that kind.
    pub fn upstream(name: &str, failed: ErrorKind) -> FlowError {
        let (status, kind, title) = match failed {
            ErrorKind::Timeout => {
                (StatusCode::GATEWAY_TIMEOUT, "upstream-timeout", "An upstream did not answer in time")
            }
            ErrorKind::Limit => (StatusCode::SERVICE_UNAVAILABLE, "upstream-limit", "Too many calls to an upstream"),
            ErrorKind::Breaker => (StatusCode::SERVICE_UNAVAILABLE, "upstream-breaker", "An upstream is unavailable"),
            ErrorKind::Refused | ErrorKind::Connect => {
                (StatusCode::BAD_GATEWAY, "upstream-unreachable", "An upstream cannot be reached")
            }
            ErrorKind::Status => (StatusCode::BAD_GATEWAY, "upstream-status", "An upstream answered with an error"),
            ErrorKind::Decode => (StatusCode::BAD_GATEWAY, "upstream-answer", "An upstream's answer cannot be read"),
            ErrorKind::TooLarge => {
                (StatusCode::BAD_GATEWAY, "upstream-answer-size", "An upstream's answer is too large")
            }
            ErrorKind::Protocol => (StatusCode::BAD_GATEWAY, "upstream-protocol", "An upstream broke off its answer"),
            ErrorKind::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, "cancelled", "The request was cancelled"),
        };
        let unavailable = status == StatusCode::SERVICE_UNAVAILABLE;
        FlowError {
            status,
            kind,
            title,
            detail: Cow::Owned(format!("{name}: {}", failed.as_str())),
            upstream: Some(name.to_owned()),
            retry_after: unavailable.then_some(Duration::from_secs(1)),
            rpc: None,
        }
    }

    pub(crate) fn client(detail: String) -> FlowError {
        FlowError {
            status: StatusCode::BAD_REQUEST,
            kind: "bad-request",
            title: "The request cannot be understood",
            detail: Cow::Owned(detail),
            upstream: None,
            retry_after: None,
            rpc: None,
        }
    }

    pub(crate) fn abort(status: StatusCode, message: String, rpc: Option<Box<RpcStatus>>) -> FlowError {
        FlowError {
            status,
            kind: "abort",
            title: status.canonical_reason().unwrap_or("Error"),
            detail: Cow::Owned(message),
            upstream: None,
            retry_after: None,
            rpc,
        }
    }

    /// A bug of the flow. Only the log has the details.
    pub(crate) fn flow() -> FlowError {
        FlowError {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "flow",
            title: "The flow failed",
            detail: Cow::Borrowed("see the log of the server"),
            upstream: None,
            retry_after: None,
            rpc: None,
        }
    }

    pub(crate) fn deadline() -> FlowError {
        FlowError {
            status: StatusCode::GATEWAY_TIMEOUT,
            kind: "deadline",
            title: "The request took too long",
            detail: Cow::Borrowed("the route's timeout has passed"),
            upstream: None,
            retry_after: None,
            rpc: None,
        }
    }
}
