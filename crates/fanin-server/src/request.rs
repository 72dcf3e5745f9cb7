//! A request as the application receives it: parsed, admitted, its body complete.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use fanin_tls::ClientCertificate;
use fanin_tracecontext::TraceContext;
use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::Upload;
use crate::{Identity, Permit, Priority, RequestId};

/// A request that has been admitted and whose body has been read.
#[derive(Debug)]
pub struct Request {
    /// Its id, as in the access log and in problem documents.
    pub id: RequestId,
    /// The id as others know it: what `request_id` of `[server]` names.
    pub known_id: Option<HeaderValue>,
    /// The route: its index in [`Application::routes`](crate::Application::routes).
    pub route: usize,
    /// The method as sent. A GET route may receive HEAD.
    pub method: Method,
    /// The target as sent.
    pub uri: Uri,
    /// The protocol's version.
    pub version: Version,
    /// The path's parameters, decoded.
    pub params: Params,
    /// The headers as sent, repeated ones included.
    pub headers: HeaderMap,
    /// The body. Empty if it is in `upload`.
    pub body: Bytes,
    /// The body of a route with `stream_body`, if there is one.
    pub upload: Option<Box<Upload>>,
    /// The client's address: as the socket reports it, or as trusted proxies name it. Port 0 if they do not tell the port.
    pub remote: SocketAddr,
    /// When its head was complete.
    pub start: Instant,
    /// No work for it may outlive this: the end of the route's timeout, or of the client's in `timeout_header` if that is earlier.
    pub deadline: Instant,
    /// The route's priority, or the one that a trusted client gave.
    pub priority: Priority,
    /// The certificate that the client has presented, verified.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Who sends it, if the application's guard knows.
    pub identity: Option<Arc<dyn Identity>>,
    /// Its trace, if it takes part in one.
    pub trace: Option<Arc<TraceContext>>,
    /// The client asks for another protocol, and the connection can go on in one: [`Response::switching_protocols`](crate::Response::switching_protocols).
    pub can_upgrade: bool,
    /// Its permit. Keep it while work goes on: dropping it releases it.
    pub permit: Permit,
}

impl Request {
    /// The path as sent.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// The query as sent, without the question mark.
    pub fn query(&self) -> Option<&str> {
        self.uri.query()
    }
}

/// The parameters of a path, in the pattern's order.
#[derive(Clone, Debug, Default)]
pub struct Params {
    pub(crate) names: Option<Rc<[Box<str>]>>,
    pub(crate) values: SmallVec<[Box<str>; 2]>,
}

impl Params {
    /// A parameter by name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.names.as_deref().unwrap_or(&[]);
        names.iter().map(|name| &**name).zip(self.values.iter().map(|value| &**value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Params {
    fn from(params: [(&str, &str); N]) -> Params {
        Params {
            names: Some(params.iter().map(|(name, _)| Box::from(*name)).collect()),
            values: params.iter().map(|(_, value)| Box::from(*value)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_by_name() {
        let params = Params::from([("id", "7"), ("rest", "a/b")]);
        assert_eq!(params.get("rest"), Some("a/b"));
        assert_eq!(params.get("x"), None);
        assert_eq!(params.iter().count(), 2);
    }
}
