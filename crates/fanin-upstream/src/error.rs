//! What can go wrong with a call, whose fault it is and whether trying again may help.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::request::Answer;

/// Why a call has no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The endpoint refused the connection.
    Refused,
    /// No connection: name not resolved, unreachable, TLS failed, or connecting took too long.
    Connect,
    /// The call's time, or the request's, was over.
    Timeout,
    /// The upstream answered with a status that is not an answer to this call.
    Status,
    /// The upstream's limit is reached and as many calls wait as may.
    Limit,
    /// The upstream's breaker is open.
    Breaker,
    /// The answer's body is not what it says it is.
    Decode,
    /// The answer is larger than allowed.
    TooLarge,
    /// The upstream broke the protocol or the connection, half a body for instance.
    Protocol,
    /// Nobody needs the call's answer any more.
    Cancelled,
}

impl ErrorKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [ErrorKind; 10] = [
        ErrorKind::Refused,
        ErrorKind::Connect,
        ErrorKind::Timeout,
        ErrorKind::Status,
        ErrorKind::Limit,
        ErrorKind::Breaker,
        ErrorKind::Decode,
        ErrorKind::TooLarge,
        ErrorKind::Protocol,
        ErrorKind::Cancelled,
    ];

    /// The kind's name in messages, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Refused => "refused",
            ErrorKind::Connect => "connect",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Status => "status",
            ErrorKind::Limit => "limit",
            ErrorKind::Breaker => "breaker",
            ErrorKind::Decode => "decode",
            ErrorKind::TooLarge => "too_large",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who has to change something so that the call works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Whoever sent the request.
    Client,
    /// The upstream, or the network on the way to it.
    Upstream,
    /// This server: its limits, its configuration, its flows.
    Us,
}

impl Fault {
    /// The name used in messages and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::Client => "client",
            Fault::Upstream => "upstream",
            Fault::Us => "us",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("upstream {upstream}: {kind} after {ms} ms: {detail}", ms = elapsed.as_millis())]
pub struct CallError {
    /// Name of the upstream.
    pub upstream: Arc<str>,
    /// What happened.
    pub kind: ErrorKind,
    /// Whose fault it is.
    pub fault: Fault,
    /// Whether the same call, sent again a little later, may succeed.
    pub retry: bool,
    /// Time from the call's start to its failure.
    pub elapsed: Duration,
    /// The particulars, for a log: the endpoint, the phase, the numbers.
    pub detail: Cow<'static, str>,
}

impl CallError {
    /// The error of an answer whose status the call does not take: a 4xx is the client's fault (or the flow's, which asked
    /// on its behalf), anything else the upstream's. A retry may help for 429, 502, 503 and 504.
    pub fn status(upstream: &Arc<str>, answer: &Answer) -> CallError {
        CallError {
            upstream: upstream.clone(),
            kind: ErrorKind::Status,
            fault: if answer.status.is_client_error() { Fault::Client } else { Fault::Upstream },
            retry: answer.status == StatusCode::TOO_MANY_REQUESTS || is_passing_failure(answer.status),
            elapsed: answer.elapsed,
            detail: match answer.headers.get(ERROR_HEADER) {
                None => format!("status {}", answer.status.as_u16()).into(),
                Some(words) => {
                    format!("status {}: {}", answer.status.as_u16(), String::from_utf8_lossy(words.as_bytes())).into()
                }
            },
        }
    }

    /// The error of an answer whose body cannot be used, broken JSON for instance.
    pub fn decode(upstream: &Arc<str>, answer: &Answer, detail: impl Into<Cow<'static, str>>) -> CallError {
        CallError {
            upstream: upstream.clone(),
            kind: ErrorKind::Decode,
            fault: Fault::Upstream,
            retry: false,
            elapsed: answer.elapsed,
            detail: match answer.headers.is_encoded() {
                // Only the answer of a failure is not decoded, or refused, before anybody reads it.
                true => format!("{}: the answer is still compressed", detail.into()).into(),
                false => detail.into(),
            },
        }
    }

    /// The error of a call that nobody needs any more.
    pub fn cancelled(upstream: &Arc<str>) -> CallError {
        CallError {
            upstream: upstream.clone(),
            kind: ErrorKind::Cancelled,
            fault: Fault::Us,
            retry: false,
            elapsed: Duration::ZERO,
            detail: Cow::Borrowed("no longer needed"),
        }
    }
}

/// Header in which an answer of a protocol other than HTTP carries what was said against the call, for logs and flows.
pub(crate) const ERROR_HEADER: HeaderName = HeaderName::from_static("fanin-error");

/// The longest text of [`ERROR_HEADER`].
const LONGEST_ERROR: usize = 500;

/// A text as a header's value: on one line, not too long.
#[cold]
pub(crate) fn error_header_value(text: &str) -> HeaderValue {
    let line: String = text.chars().take(LONGEST_ERROR).map(|c| if c.is_control() { ' ' } else { c }).collect();
    // Without control characters every text is one.
    HeaderValue::from_bytes(line.as_bytes()).unwrap_or(HeaderValue::from_static("unreadable"))
}

/// Statuses by which a gateway or an overloaded server says "not now": 502, 503, 504.
pub(crate) fn is_passing_failure(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// A failure inside the crate: a [`CallError`] that does not know its upstream and its time yet.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub kind: ErrorKind,
    pub fault: Fault,
    pub detail: Cow<'static, str>,
    /// The upstream has surely not begun to work on the request, so that even a call with effects may be sent again.
    pub unsent: bool,
}

impl Failure {
    #[cold]
    pub fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Failure {
        let (fault, unsent) = match kind {
            ErrorKind::Refused | ErrorKind::Connect => (Fault::Upstream, true),
            ErrorKind::Limit | ErrorKind::Breaker => (Fault::Us, true),
            ErrorKind::Cancelled => (Fault::Us, false),
            ErrorKind::Timeout | ErrorKind::Status | ErrorKind::Decode | ErrorKind::TooLarge | ErrorKind::Protocol => {
                (Fault::Upstream, false)
            }
        };
        Failure { kind, fault, detail: detail.into(), unsent }
    }

    /// A request that this server must not or cannot send.
    #[cold]
    pub fn ours(detail: impl Into<Cow<'static, str>>) -> Failure {
        Failure { kind: ErrorKind::Protocol, fault: Fault::Us, detail: detail.into(), unsent: true }
    }

    pub fn unsent(mut self) -> Failure {
        self.unsent = true;
        self
    }

    pub fn retry_may_help(&self) -> bool {
        match self.kind {
            ErrorKind::Refused | ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Limit | ErrorKind::Breaker => {
                true
            }
            ErrorKind::Protocol => self.fault == Fault::Upstream,
            ErrorKind::Status | ErrorKind::Decode | ErrorKind::TooLarge | ErrorKind::Cancelled => false,
        }
    }

    pub fn into_error(self, upstream: &Arc<str>, elapsed: Duration) -> CallError {
        CallError {
            upstream: upstream.clone(),
            kind: self.kind,
            fault: self.fault,
            retry: self.retry_may_help(),
            elapsed,
            detail: self.detail,
        }
    }
}

/// An upstream that cannot be set up from its configuration.
#[derive(Debug, thiserror::Error)]
#[error("upstream {upstream}: {key}: {detail}")]
pub struct BuildError {
    /// Name of the upstream.
    pub upstream: String,
    /// The configuration key at fault, below `upstreams.NAME`.
    pub key: &'static str,
    /// What is wrong with it.
    pub detail: String,
}
