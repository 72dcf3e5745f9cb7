//! What is known of a request until it is logged.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use fanin_config::Server;
use fanin_tracecontext::TraceContext;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};
use tokio::time::Instant;

use super::cache_part::CachePart;
use crate::cache::Outcome;
use crate::client::InProgress;
use crate::connection::ConnectionState;
use crate::rpc::Call;
use crate::web::WebRequest;
use crate::worker::Route;
use crate::{Pass, RequestId};

/// What the log and the metrics need after the application has taken the request.
#[derive(Debug)]
pub(super) struct RequestMeta {
    pub(super) id: RequestId,
    pub(super) start: Instant,
    pub(super) method: Method,
    /// `None` for a target without a path, as in CONNECT.
    pub(super) target: Option<PathAndQuery>,
    pub(super) version: Version,
    pub(super) route: Option<Rc<Route>>,
    /// The client that trusted proxies name in a header.
    pub(super) forwarded: Option<SocketAddr>,
    /// It calls a method: errors are sent in the form of its protocol.
    pub(super) call: Option<Call>,
    /// It asks for another protocol, and the connection can go on in one.
    pub(super) can_upgrade: bool,
    /// The trace that it takes part in.
    pub(super) trace: Option<Arc<TraceContext>>,
    /// Its id as others know it, if that is configured.
    pub(super) known_id: Option<HeaderValue>,
    /// What its route configures for browsers and caches.
    pub(super) web: Option<Box<WebRequest>>,
    /// What the application's guard has found out.
    pub(super) pass: Option<Box<Pass>>,
    /// It counts for its client until it is answered or given up.
    pub(super) in_progress: Option<InProgress>,
    /// What it has to do with caches of responses, until it is answered.
    pub(super) cache: Option<Box<CachePart>>,
    /// What the cache of its route did.
    pub(super) cached: Option<Outcome>,
}

impl RequestMeta {
    pub(super) fn path(&self) -> &str {
        self.target.as_ref().map_or("", PathAndQuery::path)
    }

    /// Copies what is still needed of the request's head. A stream may last for hours, and the target is a part of the buffer that hyper
    /// has read the head into.
    pub(super) fn release_head(&mut self) {
        self.target = self.target.take().and_then(|target| target.path().parse().ok());
    }

    /// The client's address.
    #[inline]
    pub(super) fn remote(&self, conn: &ConnectionState) -> SocketAddr {
        self.forwarded.unwrap_or_else(|| conn.client.remote())
    }

    /// Tells the client the id of its request.
    #[inline]
    pub(super) fn add_id(&self, server: &Server, headers: &mut HeaderMap) {
        if let (Some(name), Some(id)) = (&server.request_id, &self.known_id) {
            headers.insert(name, id.clone());
        }
    }
}
