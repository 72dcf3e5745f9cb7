//! A route on one worker.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::Priority;
use crate::admission::RouteLimiters;
use crate::metrics::RouteStats;

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
    pub(crate) priority: Priority,
    pub(crate) limiters: Rc<RouteLimiters>,
    pub(crate) stats: Arc<RouteStats>,
}
