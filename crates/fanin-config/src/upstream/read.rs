//! Reads `[upstreams.NAME]`.

use std::time::Duration;

use crate::models::Models;
use crate::reader::{Located, Table, replace};
use crate::upstream::answer_headers::AnswerHeaders;
use crate::upstream::breaker::Breaker;
use crate::upstream::checks::{check_deadline, check_waiting};
use crate::upstream::headers::{forwardable, read_headers};
use crate::upstream::hedge::Hedge;
use crate::upstream::http::{self, EscapedSlashes, HttpVersion, QueryLists};
use crate::upstream::keys::Upstream;
use crate::upstream::kind::{self, UpstreamKind};
use crate::upstream::limit::Limit;
use crate::upstream::operation::Operation;
use crate::upstream::retry::Retry;
use crate::upstream::snapshot::Snapshot;
use crate::upstream::statement::Statement;
use crate::upstream::timeout::read_shorter_timeout;
use crate::upstream::tls::ClientTls;
use crate::upstream::{grpc, model, sql};
use crate::values::names::is_upstream_name;

impl Upstream {
    /// Reads one upstream. `longest_route` is the longest `timeout` of all routes, if there are any.
    pub(crate) fn read(
        name: Located<String>,
        mut table: Table<'_, '_>,
        longest_route: Option<Duration>,
        models: Option<&Models>,
    ) -> Option<Upstream> {
        if !is_upstream_name(&name.value) {
            let message = format!("`{}` is not a valid name for an upstream", name.value);
            table.reader().error_hint(&name.span, message, "use letters, digits, `_` and `-`; begin with a letter");
        }
        let kind = kind::detect(&table);
        kind::refuse_keys_of_other_kinds(&table, kind);
        let mut upstream = Upstream::blank(name.value, kind);
        read_endpoints(&mut table, &mut upstream, models);
        read_grpc(&mut table, &mut upstream, kind);
        read_limits(&mut table, &mut upstream);
        read_connections(&mut table, &mut upstream, kind);
        read_messages(&mut table, &mut upstream);
        read_tls(&mut table, &mut upstream, kind);
        read_policies(&mut table, &mut upstream, kind);
        upstream.snapshot = table.table("snapshot").and_then(Snapshot::read);
        check_deadline(&table, &upstream, longest_route);
        check_waiting(&table, &upstream);
        upstream.operations = Operation::read_all(&mut table, upstream.timeout, upstream.escaped_slashes);
        upstream.statements = Statement::read_all(&mut table);
        table.finish();
        Some(upstream)
    }
}

fn read_endpoints(table: &mut Table<'_, '_>, upstream: &mut Upstream, models: Option<&Models>) {
    upstream.urls = http::read_urls(table);
    upstream.grpc = grpc::read_urls(table);
    upstream.postgres = sql::read_urls(table, UpstreamKind::Postgres);
    upstream.mysql = sql::read_urls(table, UpstreamKind::Mysql);
    upstream.files = table.folder("files");
    upstream.model = model::read(table, models);
    upstream.password = table.string("password");
    upstream.auth = sql::PostgresAuth::read(table);
    replace(&mut upstream.reset, sql::SessionReset::read(table));
}

fn read_grpc(table: &mut Table<'_, '_>, upstream: &mut Upstream, kind: UpstreamKind) {
    let services = grpc::Services::read(table, kind == UpstreamKind::Grpc);
    upstream.proto = services.proto;
    upstream.proto_path = services.proto_path;
    upstream.descriptors = services.descriptors;
    upstream.reflection = services.reflection;
    replace(&mut upstream.safe_methods, grpc::read_safe_methods(table));
    replace(&mut upstream.max_messages, table.count("max_messages", 1..=u64::MAX));
    replace(&mut upstream.int64, grpc::Int64::read(table));
    replace(&mut upstream.field_names, grpc::FieldNames::read(table));
    replace(&mut upstream.compression, grpc::GrpcCompression::read(table));
}

fn read_limits(table: &mut Table<'_, '_>, upstream: &mut Upstream) {
    replace(&mut upstream.timeout, table.duration("timeout"));
    replace(&mut upstream.limit, Limit::read(table));
    replace(&mut upstream.max_waiting, table.count("max_waiting", 0..=u64::MAX));
    replace(&mut upstream.max_answer, table.size("max_answer", 1));
    replace(&mut upstream.max_stream, table.size("max_stream", 1));
    replace(&mut upstream.stream_idle_timeout, table.duration("stream_idle_timeout"));
}

fn read_connections(table: &mut Table<'_, '_>, upstream: &mut Upstream, kind: UpstreamKind) {
    let connect_timeout = table.duration("connect_timeout");
    upstream.connect_timeout = connect_timeout.unwrap_or(upstream.connect_timeout).min(upstream.timeout);
    if connect_timeout.is_some_and(|connect| connect > upstream.timeout) {
        table.error("connect_timeout", "must not be longer than `timeout` of the upstream");
    }
    replace(&mut upstream.http, HttpVersion::read(table));
    let connections = table.count("max_connections", 1..=u64::MAX);
    upstream.max_connections = connections.unwrap_or(match (kind.is_sql(), upstream.limit) {
        (false, _) => upstream.http.default_connections(),
        // A statement occupies its connection: with fewer connections, calls would queue a second time.
        (true, Limit::Fixed(calls) | Limit::Adaptive { max: calls, .. }) => calls,
    });
    let connecting = table.count("max_connecting", 1..=u64::MAX);
    if connecting.is_some_and(|connecting| connecting > upstream.max_connections) {
        table.error("max_connecting", format_args!("must not exceed `max_connections`, {}", upstream.max_connections));
    }
    upstream.max_connecting = connecting.unwrap_or(upstream.max_connecting).min(upstream.max_connections);
    replace(&mut upstream.idle_timeout, table.duration("idle_timeout"));
    replace(&mut upstream.keepalive, table.duration("keepalive"));
    replace(&mut upstream.keepalive_timeout, table.duration("keepalive_timeout"));
    replace(&mut upstream.keepalive_idle, table.boolean("keepalive_idle"));
    for key in ["keepalive", "keepalive_timeout", "keepalive_idle"] {
        if kind == UpstreamKind::Http && upstream.http == HttpVersion::Http1 && table.has(key) {
            table.error(key, "applies to HTTP/2 only; set http = \"2\" or remove this key");
        }
    }
}

/// The keys about the content of requests and answers.
fn read_messages(table: &mut Table<'_, '_>, upstream: &mut Upstream) {
    upstream.headers = read_headers(table);
    let forward = table.list("forward_headers", "the name of a header", false, forwardable);
    replace(&mut upstream.forward_headers, forward.map(|names| names.into_iter().map(|name| name.value).collect()));
    upstream.answer_headers = table.table("answer_headers").map(AnswerHeaders::read);
    replace(&mut upstream.timeout_header, table.header_or_off("timeout_header"));
    replace(&mut upstream.query_lists, QueryLists::read(table));
    replace(&mut upstream.escaped_slashes, EscapedSlashes::read(table));
}

fn read_tls(table: &mut Table<'_, '_>, upstream: &mut Upstream, kind: UpstreamKind) {
    upstream.tls = table.table("tls").map(ClientTls::read);
    if upstream.tls.is_some()
        && matches!(kind, UpstreamKind::Http | UpstreamKind::Grpc)
        && !upstream.endpoints().iter().any(|url| url.scheme() == "https")
    {
        table.error("tls", "needs an https URL, but no URL of this upstream is https");
    }
}

fn read_policies(table: &mut Table<'_, '_>, upstream: &mut Upstream, kind: UpstreamKind) {
    let timeout = upstream.timeout;
    if kind != UpstreamKind::Model || table.has("retry") {
        upstream.retry = Retry::read(table);
    }
    upstream.hedge = Hedge::read(table, timeout);
    upstream.breaker = Breaker::read(table);
    replace(&mut upstream.ejection, table.boolean("ejection"));
    upstream.attempt_timeout = read_shorter_timeout(table, "attempt_timeout", timeout);
    if upstream.attempt_timeout.is_some() && upstream.retry.as_ref().is_none_or(|retry| retry.max == 0) {
        table.warning(
            "attempt_timeout",
            "ends an attempt, but `retry` allows no further one",
            "set `timeout` instead, or allow retries",
        );
    }
    upstream.chunk_timeout = read_shorter_timeout(table, "chunk_timeout", timeout);
}
