//! The defaults of an upstream. Some depend on its kind.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use indexmap::IndexMap;
use url::Url;

use crate::upstream::breaker::Breaker;
use crate::upstream::grpc::{FieldNames, GrpcCompression, Int64};
use crate::upstream::hedge::Hedge;
use crate::upstream::http::{EscapedSlashes, HttpVersion, QueryLists};
use crate::upstream::keys::Upstream;
use crate::upstream::kind::UpstreamKind;
use crate::upstream::limit::Limit;
use crate::upstream::retry::Retry;
use crate::upstream::sql::SessionReset;

impl Upstream {
    /// An HTTP upstream with one endpoint and all defaults.
    pub fn new(name: impl Into<String>, url: Url) -> Upstream {
        Upstream { urls: vec![url], ..Upstream::blank(name.into(), UpstreamKind::Http) }
    }

    /// All defaults of a kind, without an endpoint.
    pub(super) fn blank(name: String, kind: UpstreamKind) -> Upstream {
        let http = if kind == UpstreamKind::Grpc { HttpVersion::Http2 } else { HttpVersion::Http1 };
        Upstream {
            name,
            urls: Vec::new(),
            grpc: Vec::new(),
            postgres: Vec::new(),
            mysql: Vec::new(),
            files: None,
            model: None,
            password: None,
            auth: None,
            reset: SessionReset::default(),
            proto: Vec::new(),
            proto_path: Vec::new(),
            descriptors: None,
            reflection: false,
            safe_methods: Vec::new(),
            max_messages: 10_000,
            int64: Int64::default(),
            field_names: FieldNames::default(),
            compression: GrpcCompression::default(),
            statements: IndexMap::new(),
            timeout: Duration::from_secs(1),
            // A login costs a database server more than an accepted connection.
            connect_timeout: Duration::from_millis(if kind.is_sql() { 1000 } else { 250 }),
            limit: Limit::Fixed(kind.default_limit()),
            max_waiting: 64,
            http,
            max_connections: if kind.is_sql() { kind.default_limit() } else { http.default_connections() },
            max_connecting: 16,
            idle_timeout: Duration::from_secs(if kind.is_sql() { 600 } else { 30 }),
            keepalive: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(1),
            keepalive_idle: true,
            max_answer: 16 << 20,
            max_stream: 16 << 30,
            stream_idle_timeout: Duration::from_secs(60),
            headers: HeaderMap::new(),
            answer_headers: None,
            forward_headers: ["traceparent", "tracestate", "x-request-id"].map(HeaderName::from_static).into(),
            // gRPC has its own header, `grpc-timeout`.
            timeout_header: (kind != UpstreamKind::Grpc).then_some(HeaderName::from_static("x-fanin-timeout-ms")),
            query_lists: QueryLists::Repeat,
            escaped_slashes: EscapedSlashes::Refuse,
            tls: None,
            // A model in this process would refuse the same request again.
            retry: (kind != UpstreamKind::Model).then(Retry::default),
            hedge: matches!(kind, UpstreamKind::Http | UpstreamKind::Grpc).then_some(Hedge::Half),
            breaker: Some(Breaker::default()),
            ejection: true,
            attempt_timeout: None,
            chunk_timeout: None,
            snapshot: None,
            operations: IndexMap::new(),
        }
    }
}
