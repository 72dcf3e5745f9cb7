//! Why a request is refused.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

/// Why a request is refused, in words for the client. They never have a part of its credentials.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The kind of refusal.
    pub reason: Reason,
    /// What is wrong with this request.
    pub detail: Cow<'static, str>,
    /// When a retry may succeed.
    pub retry_after: Option<Duration>,
    /// `WWW-Authenticate`, and headers of rate limits.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Refusal {
        let retry_after = (reason == Reason::KeysUnavailable).then_some(Duration::from_secs(1));
        Refusal { reason, detail: detail.into(), retry_after, headers: Vec::new() }
    }
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client's address.
    Address,
    /// Its client has presented no certificate.
    NoCertificate,
    /// The client's certificate has none of the names that the route allows.
    Certificate,
    /// It has no credentials.
    NoCredentials,
    /// Its token is not valid.
    InvalidToken,
    /// Its API key is unknown.
    InvalidKey,
    /// Its name or its password is wrong.
    InvalidPassword,
    /// The claims of its token are not those that the route requires.
    Claims,
    /// A rate limit is reached.
    RateLimit,
    /// There are no keys to check its token with, or too many passwords are compared.
    KeysUnavailable,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 10] = [
        Reason::Address,
        Reason::NoCertificate,
        Reason::Certificate,
        Reason::NoCredentials,
        Reason::InvalidToken,
        Reason::InvalidKey,
        Reason::InvalidPassword,
        Reason::Claims,
        Reason::RateLimit,
        Reason::KeysUnavailable,
    ];

    /// The label of the metric, and the kind of the problem document.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Address => "address-denied",
            Reason::NoCertificate => "no-client-certificate",
            Reason::Certificate => "client-certificate-denied",
            Reason::NoCredentials => "no-credentials",
            Reason::InvalidToken => "invalid-token",
            Reason::InvalidKey => "invalid-key",
            Reason::InvalidPassword => "invalid-password",
            Reason::Claims => "insufficient-claims",
            Reason::RateLimit => "rate-limit",
            Reason::KeysUnavailable => "auth-unavailable",
        }
    }

    /// The title of the problem document.
    pub const fn title(self) -> &'static str {
        match self {
            Reason::Address => "The client's address is not allowed",
            Reason::NoCertificate => "The client has presented no certificate",
            Reason::Certificate => "The client's certificate does not allow this",
            Reason::NoCredentials => "The request has no credentials",
            Reason::InvalidToken => "The token is not valid",
            Reason::InvalidKey => "The API key is not valid",
            Reason::InvalidPassword => "The name or the password is wrong",
            Reason::Claims => "The token does not allow this",
            Reason::RateLimit => "Too many requests",
            Reason::KeysUnavailable => "Credentials cannot be checked now",
        }
    }

    /// The status.
    pub const fn status(self) -> u16 {
        match self {
            // Not 401, which needs a scheme of HTTP to answer with; nor 421, since a new connection would have the same certificate.
            Reason::Address | Reason::NoCertificate | Reason::Certificate | Reason::Claims => 403,
            Reason::NoCredentials | Reason::InvalidToken | Reason::InvalidKey | Reason::InvalidPassword => 401,
            Reason::RateLimit => 429,
            Reason::KeysUnavailable => 503,
        }
    }
}
