//! A route as the server sees it.

use std::time::Duration;

use fanin_config::HostPattern;
use http::{HeaderValue, Method};

use crate::Priority;

/// A route as the server sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSpec {
    /// HTTP methods, at least one. A GET route answers HEAD too, unless the same path has a HEAD route.
    pub methods: Vec<Method>,
    /// Path pattern: `{name}` is one segment or a part of one, `{*name}` at the end is the rest of the path.
    pub path: String,
    /// Hosts. None: every host.
    pub hosts: Vec<HostPattern>,
    /// The longest time from a request's head to its response.
    pub timeout: Duration,
    /// Requests in flight.
    pub limit: usize,
    /// Requests that may wait for a permit.
    pub max_waiting: usize,
    /// Bytes of a request's body.
    pub max_body: usize,
    /// A request is handed over without its body, which the application reads: [`Upload`](crate::Upload).
    pub stream_body: bool,
    /// The application answers gRPC calls on it. On other routes they are not implemented.
    pub grpc: bool,
    /// Which pages of other origins may use it.
    pub cors: Option<fanin_config::Cors>,
    /// Which responses are compressed.
    pub compression: Option<fanin_config::Compression>,
    /// Responses have entity tags, and conditional requests are answered.
    pub etag: bool,
    /// `Cache-Control` of responses that do not have it.
    pub cache_control: Option<HeaderValue>,
    /// Which headers of clients the application sees.
    pub request_headers: Option<fanin_config::RequestHeaderRules>,
    /// The rest of the path, with which the pattern ends, may be empty.
    pub rest_may_be_empty: bool,
    /// Headers that responses get, or must not have.
    pub response_headers: Option<fanin_config::HeaderRules>,
    /// Which responses are kept and sent again.
    pub cache: Option<fanin_config::ResponseCache>,
    /// Tells what the application makes of the route, so that a reload drops what was kept of another version.
    pub version: u64,
    /// What the route promises. Metrics count the requests that keep it.
    pub objective: Option<fanin_config::Objective>,
    /// The application decides about each request: [`Worker::guard`](crate::Worker::guard).
    pub guarded: bool,
    /// Orders the queue, and decides which requests are shed first.
    pub priority: Priority,
}

impl RouteSpec {
    /// A route with the defaults of `fanin.toml`.
    pub fn new(method: Method, path: impl Into<String>) -> RouteSpec {
        let server = fanin_config::Server::default();
        RouteSpec {
            methods: vec![method],
            path: path.into(),
            hosts: Vec::new(),
            timeout: Duration::from_secs(10),
            limit: server.limit,
            max_waiting: server.max_waiting,
            max_body: server.max_body,
            stream_body: false,
            grpc: false,
            cors: None,
            compression: None,
            etag: false,
            cache_control: None,
            request_headers: None,
            rest_may_be_empty: false,
            response_headers: None,
            cache: None,
            version: 0,
            guarded: false,
            objective: None,
            priority: Priority::Normal,
        }
    }

    /// The label of logs and metrics: `"GET /products/{id}"`, `"GET,POST /products"`, or with a host `"GET shop.example.com/products"`.
    pub fn label(&self) -> String {
        format!("{} {}", self.methods_text(), self.place())
    }

    /// Its hosts, separated by commas, and its path.
    pub(crate) fn place(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(HostPattern::to_string).collect();
        format!("{}{}", hosts.join(","), self.path)
    }

    /// The methods, separated by commas.
    pub(crate) fn methods_text(&self) -> String {
        self.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(",")
    }
}

impl From<&fanin_config::Route> for RouteSpec {
    fn from(route: &fanin_config::Route) -> RouteSpec {
        RouteSpec {
            methods: route.methods.clone(),
            path: route.path.clone(),
            hosts: route.hosts.clone(),
            timeout: route.timeout,
            limit: route.limit,
            max_waiting: route.max_waiting,
            max_body: route.max_body,
            stream_body: route.stream_body,
            grpc: route.grpc.is_some(),
            cors: route.cors.clone(),
            compression: route.compression.clone(),
            etag: route.etag,
            cache_control: route.cache_control.clone(),
            request_headers: route.request_headers.clone(),
            rest_may_be_empty: route.folder.is_some(),
            response_headers: route.response_headers.clone(),
            cache: route.cache.clone(),
            version: 0,
            guarded: false,
            objective: route.objective,
            priority: route.priority,
        }
    }
}
