//! A route on one worker.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::RequestHeaderRules;

use crate::Priority;
use crate::admission::RouteLimiters;
use crate::cache::RouteCache;
use crate::metrics::RouteStats;
use crate::rpc;
use crate::web::Web;

/// A route with everything resolved that a request needs.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its place in the application's list.
    pub(crate) index: usize,
    /// The label, as JSON.
    pub(crate) label: Box<str>,
    pub(crate) names: Option<Rc<[Box<str>]>>,
    pub(crate) timeout: Duration,
    pub(crate) max_body: usize,
    pub(crate) stream_body: bool,
    pub(crate) grpc: bool,
    pub(crate) guarded: bool,
    pub(crate) priority: Priority,
    pub(crate) web: Option<Rc<Web>>,
    pub(crate) request_headers: Option<RequestHeaderRules>,
    pub(crate) cache: Option<Arc<RouteCache>>,
    pub(crate) limiters: Rc<RouteLimiters>,
    pub(crate) stats: Arc<RouteStats>,
}

impl Route {
    /// Bytes of a body that are read. A message as large as is allowed may have a prefix.
    #[inline]
    pub(crate) fn max_read(&self) -> usize {
        if self.grpc { self.max_body.saturating_add(rpc::PREFIX) } else { self.max_body }
    }
}
