//! Why a call failed, whose fault that is, and whether a retry may help.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderName, HeaderValue, StatusCode};
use url::Url;

pub use crate::error_kind::ErrorKind;
use crate::request::Answer;

/// Who has to change something for the call to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The client that sent the request.
    Client,
    /// The upstream, or the network to it.
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
    /// Details for a log: the endpoint, the phase, the numbers.
    pub detail: Cow<'static, str>,
}

impl CallError {
    /// The error of an answer whose status the call does not accept. A 4xx is the fault of the client, or of the flow
    /// that called for it. Any other status is the upstream's. A retry may help after 429, 502, 503 and 504.
    pub fn status(upstream: &Arc<str>, answer: &Answer) -> CallError {
        CallError {
            upstream: upstream.clone(),
            kind: ErrorKind::Status,
            fault: if answer.status.is_client_error() { Fault::Client } else { Fault::Upstream },
            retry: answer.status == StatusCode::TOO_MANY_REQUESTS || is_passing_failure(answer.status),
            elapsed: answer.elapsed,
            detail: match answer.headers.get(ERROR_HEADER) {
                None if is_redirect(answer.status) => redirect_detail(answer).into(),
                None => format!("status {}", answer.status.as_u16()).into(),
                Some(words) => {
                    format!("status {}: {}", answer.status.as_u16(), String::from_utf8_lossy(words.as_bytes())).into()
                }
            },
        }
    }

    /// The error of an answer whose body cannot be used, such as broken JSON.
    pub fn decode(upstream: &Arc<str>, answer: &Answer, detail: impl Into<Cow<'static, str>>) -> CallError {
        CallError {
            upstream: upstream.clone(),
            kind: ErrorKind::Decode,
            fault: Fault::Upstream,
            retry: false,
            elapsed: answer.elapsed,
            detail: match answer.headers.is_encoded() {
                // Any other answer that cannot be decoded has failed its call before.
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

/// Header in which an answer of a protocol other than HTTP carries the error's text, for logs and flows.
pub(crate) const ERROR_HEADER: HeaderName = HeaderName::from_static("fanin-error");

/// Longest value of [`ERROR_HEADER`], in characters.
const LONGEST_ERROR: usize = 500;

/// Longest redirect target in an error, in characters.
const LONGEST_LOCATION: usize = 200;

/// A text as a header's value: on one line, and cut if it is too long.
#[cold]
pub(crate) fn error_header_value(text: &str) -> HeaderValue {
    let line: String = text.chars().take(LONGEST_ERROR).map(|c| if c.is_control() { ' ' } else { c }).collect();
    // Any text without control characters is a valid value.
    HeaderValue::from_bytes(line.as_bytes()).unwrap_or(HeaderValue::from_static("unreadable"))
}

/// The statuses that ask a client to follow `Location`.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// What a redirect answer means, where it points, and what to do.
#[cold]
fn redirect_detail(answer: &Answer) -> String {
    let status = answer.status.as_u16();
    let target = answer.headers.get(LOCATION).map(redirect_target).filter(|target| !target.is_empty());
    let target = target.map_or_else(|| "it has no location".to_owned(), |target| format!("it points to {target}"));
    format!(
        "status {status}: redirects are not followed, and {target}; use the final URL in fanin.toml, or list {status} in ok \
         and read answer.headers[\"location\"]"
    )
}

/// Scheme, host and path of a `Location`. User, query and fragment may hold secrets, so they are left out, and so is a location that
/// is neither an HTTP URL nor a path.
fn redirect_target(location: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(location.as_bytes());
    let shown = if text.starts_with("//") {
        Url::parse(&format!("http:{text}"))
            .map_or_else(|_| String::new(), |url| without_secrets(&url)["http:".len()..].to_owned())
    } else if let Ok(url) = Url::parse(&text) {
        if url.has_host() { without_secrets(&url) } else { String::new() }
    } else {
        let path = &text[..text.find(['?', '#']).unwrap_or(text.len())];
        // Clients take `\\` for `/`, so what follows may be a user and a host.
        if path.starts_with('\\') { String::new() } else { path.to_owned() }
    };
    shown.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_LOCATION).collect()
}

fn without_secrets(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for URLs without a host, which have no user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// The statuses of a gateway or of an overloaded server: 502, 503, 504.
pub(crate) fn is_passing_failure(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// A failure inside the crate: a [`CallError`] without its upstream and its time.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub kind: ErrorKind,
    pub fault: Fault,
    pub detail: Cow<'static, str>,
    /// The upstream has certainly not begun to process the request, so even a call with effects may be sent again.
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

    /// A request that must not or cannot be sent. The fault is ours.
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

/// An upstream that cannot be built from its configuration.
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

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn error(status: u16, location: Option<&'static str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(location) = location {
            headers.insert(LOCATION, HeaderValue::from_static(location));
        }
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.into(),
            body: bytes::Bytes::new(),
            elapsed: Duration::ZERO,
            unrequested_part: false,
        };
        CallError::status(&Arc::from("users"), &answer).detail.into_owned()
    }

    #[test]
    fn redirects_name_their_target_and_a_remedy() {
        assert_eq!(
            error(302, Some("https://login.example.com:8443/sign-in?token=secret#top")),
            "status 302: redirects are not followed, and it points to https://login.example.com:8443/sign-in; use the final \
             URL in fanin.toml, or list 302 in ok and read answer.headers[\"location\"]"
        );
        assert!(error(301, None).starts_with("status 301: redirects are not followed, and it has no location; "));
        assert_eq!(error(304, Some("/x")), "status 304");
        assert_eq!(error(404, Some("/x")), "status 404");
    }

    #[test]
    fn redirect_targets_have_neither_user_nor_query() {
        let target = |location: &'static str| redirect_target(&HeaderValue::from_static(location));
        for (location, expected) in [
            ("/path?q=secret", "/path"),
            ("next/page#secret", "next/page"),
            ("?secret", ""),
            ("//host/path?secret", "//host/path"),
            ("http://user:secret@host/path", "http://host/path"),
            ("http://user:se@cret@host", "http://host/"),
            ("http://host?secret@x/y", "http://host/"),
            ("/a//user@b/c", "/a//user@b/c"),
            ("https:////u:secret@h/p", "https://h/p"),
            ("https:/u:secret@h/p", "https://h/p"),
            ("https:\\\\u:secret@h/p", "https://h/p"),
            ("https:u:secret@h/p", "https://h/p"),
            ("\\\\u:secret@h/p", ""),
            ("mailto:u:secret@h", ""),
        ] {
            assert_eq!(target(location), expected, "{location}");
        }
        let long = format!("/{}", "x".repeat(1000));
        assert_eq!(redirect_target(&HeaderValue::from_str(&long).unwrap()).len(), LONGEST_LOCATION);
        assert_eq!(redirect_target(&HeaderValue::from_bytes(b"/a\tb\xff").unwrap()), "/a b\u{fffd}");
    }
}
