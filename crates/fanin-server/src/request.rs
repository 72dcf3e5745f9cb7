//! A request as the application gets it: admitted, parsed, its body complete.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, Version};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{Permit, Priority, RequestId};

/// A request that has been admitted and whose body has been read.
#[derive(Debug)]
pub struct Request {
    /// Its id, which access log and problems carry.
    pub id: RequestId,
    /// The route: its place in what [`Application::routes`](crate::Application::routes) gave.
    pub route: usize,
    /// The method as sent; HEAD may come to a GET route.
    pub method: Method,
    /// The target as sent.
    pub uri: Uri,
    /// The protocol's version.
    pub version: Version,
    /// The path's parameters, decoded.
    pub params: Params,
    /// The headers as sent; repeated ones are all there.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The client's address, as the socket has it.
    pub remote: SocketAddr,
    /// When its head had arrived.
    pub start: Instant,
    /// What no work for it may outlive: the route's timeout, or what a trusted client gave if that is earlier.
    pub deadline: Instant,
    /// The route's.
    pub priority: Priority,
    /// Its place in flight. The place is given back when this is dropped: keep it as long as work goes on.
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
