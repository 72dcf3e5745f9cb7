//! What an application decides about a request before it is admitted.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use fanin_tls::ClientCertificate;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tokio::time::Instant;

use crate::Response;

/// The head of a request to a route that is [guarded](crate::RouteSpec::guarded). Its body is not read.
#[derive(Clone, Copy, Debug)]
pub struct GuardedHead<'a> {
    /// The route: its index in [`Application::routes`](crate::Application::routes).
    pub route: usize,
    /// The method as sent.
    pub method: &'a Method,
    /// The target as sent.
    pub uri: &'a Uri,
    /// The headers as sent.
    pub headers: &'a HeaderMap,
    /// The client's address.
    pub client: IpAddr,
    /// The certificate that the client has presented.
    pub certificate: Option<&'a Arc<ClientCertificate>>,
    /// When its head was complete.
    pub start: Instant,
    /// No wait may outlive this.
    pub deadline: Instant,
}

/// What an application decides about a request.
pub enum Verdict {
    /// It goes on to admission.
    Pass(Pass),
    /// It is answered with this, and its body is not read.
    Refuse(Box<Response>),
    /// It has to wait.
    Wait(Pin<Box<dyn Future<Output = Verdict>>>),
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Pass(_) => f.write_str("pass"),
            Verdict::Refuse(response) => write!(f, "refuse with {}", response.status),
            Verdict::Wait(_) => f.write_str("wait"),
        }
    }
}

/// What is known of a request that goes on.
#[derive(Default)]
pub struct Pass {
    /// Who sends it. The access log names it.
    pub identity: Option<Arc<dyn Identity>>,
    /// Further headers of its response, whoever makes it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pass")
    }
}

/// Who sends a request.
pub trait Identity: Any + Send + Sync {
    /// Its name, for the access log.
    fn principal(&self) -> Option<&str>;
}

impl fmt::Debug for dyn Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.principal().unwrap_or("nobody"))
    }
}
