//! `[upstreams.NAME]`: backend services and how to treat them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use url::Url;

use crate::backend::{self, UpstreamKind};
use crate::client_tls::ClientTls;
use crate::grpc::{self, FieldNames, Int64};
use crate::headers::{forwardable, read_headers};
use crate::policy::{Breaker, Hedge, Retry, read_breaker, read_hedge, read_part, read_retry};
use crate::read::At;
use crate::statement::{self, Statement};
use crate::table::Table;
use crate::urls::read_urls;
use crate::{Limit, Models, Operation, Snapshot, format_duration, limit, schema, text};

/// `[upstreams.NAME]`: a backend service, where its endpoints are, how long to wait for it, how much to ask of it at once.
/// Flows get it with `load("@upstreams", "NAME")`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The upstream's name: the table's key.
    #[serde(skip)]
    pub name: String,
    /// Base URLs of the endpoints (`http` or `https`), tried in turns. A call's path is appended to the URL's path. For a
    /// single one write `url = "..."` instead.
    #[serde(serialize_with = "text::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "schema::OneOrMore<schema::UrlText>")]
    pub urls: Vec<Url>,
    /// A gRPC server's URL (`http` or `https`), or a list for several endpoints, in place of `url`.
    #[serde(serialize_with = "text::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "schema::OneOrMore<schema::UrlText>")]
    pub grpc: Vec<Url>,
    /// A PostgreSQL database's URL (`"postgres://user:password@host:5432/database"`), or a list for several servers with the
    /// same data, in place of `url`. With `?sslmode=require` or a table `tls` the connection is encrypted and the server's
    /// certificate checked.
    #[serde(serialize_with = "text::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "schema::OneOrMore<schema::PostgresText>")]
    pub postgres: Vec<Url>,
    /// The URL of a MySQL or MariaDB database (`"mysql://user:password@host:3306/database"`), or a list, as `postgres`.
    #[serde(serialize_with = "text::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "schema::OneOrMore<schema::MysqlText>")]
    pub mysql: Vec<Url>,
    /// A folder of this machine, relative to that of `fanin.toml`, in place of `url`. Flows read what is below it.
    #[serde(serialize_with = "text::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub files: Option<PathBuf>,
    /// A model of `[models]`, by its name, in place of `url`. It is computed in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub model: Option<String>,
    /// A database user's password, if it does not stand in the URL.
    #[serde(serialize_with = "text::secret", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub password: Option<String>,
    /// The `.proto` files that describe a gRPC upstream's services, one or a list. They are compiled when the configuration is
    /// loaded.
    #[serde(serialize_with = "text::paths", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "schema::OneOrMore<schema::Text>")]
    pub proto: Vec<PathBuf>,
    /// Folders in which the files of `proto` and what they import are looked for. Default: the folders of the files of
    /// `proto`.
    #[serde(serialize_with = "text::paths", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "schema::OneOrMore<schema::Text>")]
    pub proto_path: Vec<PathBuf>,
    /// A file with a compiled `FileDescriptorSet`, imports included, in place of `proto`.
    #[serde(serialize_with = "text::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub descriptors: Option<PathBuf>,
    /// Whether the gRPC server itself is asked to describe its services, in place of `proto`.
    #[schemars(with = "schema::Flag")]
    pub reflection: bool,
    /// Methods of a gRPC upstream that change nothing (`"GetUser"`, `"shop.Users/GetUser"`), or whole services
    /// (`"shop.Users"`), besides those whose description says so by `idempotency_level = NO_SIDE_EFFECTS`.
    #[serde(serialize_with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub safe_methods: Vec<String>,
    /// Messages of one stream of answers. A longer stream fails the call.
    #[schemars(with = "schema::Count<1>")]
    pub max_messages: usize,
    /// How 64-bit integers of gRPC messages stand in answers: `"string"`, as the protobuf rules for JSON have it, or
    /// `"number"`.
    #[schemars(with = "schema::Int64Text")]
    pub int64: Int64,
    /// Names of fields in gRPC answers: `"json"` (`userId`) or `"proto"` (`user_id`, as in the `.proto` file). Requests may use
    /// either.
    #[schemars(with = "schema::FieldNamesText")]
    pub field_names: FieldNames,
    /// How long a call may take, with its waiting, connecting and reading. A call may ask for another time; none outlives
    /// the request's deadline.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub timeout: Duration,
    /// How long connecting may take, TLS and signing on included. Default: 250ms; for a database 1s.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub connect_timeout: Duration,
    /// Calls in flight, over all workers: a number, or `"adaptive"`, which follows the upstream's latency between 8 and 1024, or
    /// `{ min = 8, max = 1024 }` for other bounds. Default: 256; for a database 8, for a folder 4.
    #[schemars(with = "schema::Or<schema::Count<1>, schema::Or<schema::Adaptive, limit::AdaptiveLimit>>")]
    pub limit: Limit,
    /// Calls that may wait for a place below `limit`; the next one is refused at once. Waiting calls of the oldest request go
    /// first.
    #[schemars(with = "schema::Count<0>")]
    pub max_waiting: usize,
    /// HTTP version: `"1"` or `"2"` (over plain TCP without upgrade: the backend must expect it).
    #[schemars(with = "schema::HttpVersionText")]
    pub http: HttpVersion,
    /// Connections to each endpoint: to a database over all workers, by default as many as `limit`; with HTTP/1.1 over all
    /// workers, 256 by default; with HTTP/2, so with gRPC, for each worker, 4 by default.
    #[schemars(with = "schema::Count<1>")]
    pub max_connections: usize,
    /// Connections to each endpoint that may be in the making at once, over all workers, so that a cold start is no storm.
    #[schemars(with = "schema::Count<1>")]
    pub max_connecting: usize,
    /// How long a connection is kept without a call. Should be shorter than the backend's own keep-alive time. Default: 30s; for
    /// a database 10m.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub idle_timeout: Duration,
    /// How often the other end of an HTTP/2 connection is pinged, with and without calls on it, so that one which vanished is
    /// noticed.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub keepalive: Duration,
    /// Whether HTTP/2 connections without calls are pinged too.
    #[schemars(with = "schema::Flag")]
    pub keepalive_idle: bool,
    /// How long a ping may go unanswered before the connection is closed.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub keepalive_timeout: Duration,
    /// Bytes of an answer's body. A larger one fails the call.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1>")]
    pub max_answer: usize,
    /// Headers sent with every call.
    #[serde(serialize_with = "text::headers")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: HeaderMap,
    /// Headers of the client's request that are sent on with every call. The default carries traces and nothing about the
    /// user; name `authorization` only for upstreams that should see it.
    #[serde(serialize_with = "text::list")]
    #[schemars(with = "Vec<String>")]
    pub forward_headers: Vec<HeaderName>,
    /// Header in which the upstream is told how many milliseconds the request still has; `"off"` sends none.
    #[serde(serialize_with = "text::or_off")]
    #[schemars(with = "schema::Or<schema::Text, schema::Off>")]
    pub timeout_header: Option<HeaderName>,
    /// How a list in a call's `query` is sent: `"repeat"` (`ids=1&ids=2`) or `"comma"` (`ids=1,2`).
    #[schemars(with = "schema::QueryListsText")]
    pub query_lists: QueryLists,
    /// TLS settings for `https` URLs. Without them the system's root certificates are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClientTls")]
    pub tls: Option<ClientTls>,
    /// Second tries of failed calls; `"off"` makes none.
    #[serde(serialize_with = "text::table_or_off")]
    #[schemars(with = "schema::Or<Retry, schema::Off>")]
    pub retry: Option<Retry>,
    /// A second request beside a slow first one, for calls that change nothing: `"half"` sends it to another endpoint, if
    /// there is one, when half of the call's time is over, `"p95"` when the first takes longer than 95 % of the answers,
    /// `"30ms"` after that time, `"off"` never.
    #[serde(serialize_with = "text::table_or_off")]
    #[schemars(with = "schema::HedgeText")]
    pub hedge: Option<Hedge>,
    /// Refuses calls at once while the upstream fails; `"off"` never does.
    #[serde(serialize_with = "text::table_or_off")]
    #[schemars(with = "schema::Or<Breaker, schema::Off>")]
    pub breaker: Option<Breaker>,
    /// Whether an endpoint that fails while others do not is left out for a while.
    #[schemars(with = "schema::Flag")]
    pub ejection: bool,
    /// How long one try of a call may take, connecting included, so that another may follow. Default: as long as the call.
    #[serde(serialize_with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DurationText")]
    pub attempt_timeout: Option<Duration>,
    /// How long the next part of an answer's body may take. Default: as long as the call.
    #[serde(serialize_with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DurationText")]
    pub chunk_timeout: Option<Duration>,
    /// A whole table, fetched in the background and looked up in memory with `NAME.lookup(key)` and `NAME.table()`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Snapshot")]
    pub snapshot: Option<Snapshot>,
    /// Named calls, by name.
    #[serde(serialize_with = "text::named", skip_serializing_if = "IndexMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Operation>")]
    pub operations: IndexMap<String, Operation>,
    /// Named statements of a database, by name.
    #[serde(serialize_with = "text::named", skip_serializing_if = "IndexMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Statement>")]
    pub statements: IndexMap<String, Statement>,
}

impl Upstream {
    /// An upstream with one endpoint and all defaults, as if nothing else stood in its table.
    pub fn new(name: impl Into<String>, url: Url) -> Upstream {
        Upstream { urls: vec![url], ..Upstream::blank(name.into(), UpstreamKind::Http) }
    }

    /// What the upstream is.
    pub fn kind(&self) -> UpstreamKind {
        match self {
            Upstream { files: Some(_), .. } => UpstreamKind::Files,
            Upstream { model: Some(_), .. } => UpstreamKind::Model,
            Upstream { postgres, .. } if !postgres.is_empty() => UpstreamKind::Postgres,
            Upstream { grpc, .. } if !grpc.is_empty() => UpstreamKind::Grpc,
            Upstream { mysql, .. } if !mysql.is_empty() => UpstreamKind::Mysql,
            _ => UpstreamKind::Http,
        }
    }

    /// Where its endpoints are: `urls`, `grpc` or `postgres`. None for a folder or a model.
    pub fn endpoints(&self) -> &[Url] {
        match self.kind() {
            UpstreamKind::Http => &self.urls,
            UpstreamKind::Grpc => &self.grpc,
            UpstreamKind::Postgres => &self.postgres,
            UpstreamKind::Mysql => &self.mysql,
            UpstreamKind::Files | UpstreamKind::Model => &[],
        }
    }

    /// What flows call by a name of its own, with what its calls may share: operations, or statements as such. Calls are numbered
    /// by their place here.
    pub fn named_calls(&self) -> IndexMap<String, Operation> {
        let statements = self.statements.iter().map(|(name, it)| (name.clone(), it.operation(name)));
        self.operations.iter().map(|(name, it)| (name.clone(), it.clone())).chain(statements).collect()
    }

    /// Defaults without an endpoint.
    fn blank(name: String, kind: UpstreamKind) -> Upstream {
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
            proto: Vec::new(),
            proto_path: Vec::new(),
            descriptors: None,
            reflection: false,
            safe_methods: Vec::new(),
            max_messages: 10_000,
            int64: Int64::default(),
            field_names: FieldNames::default(),
            statements: IndexMap::new(),
            timeout: Duration::from_secs(1),
            // Signing on to a database takes its server some work.
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
            headers: HeaderMap::new(),
            forward_headers: ["traceparent", "tracestate", "x-request-id"].map(HeaderName::from_static).into(),
            // gRPC has a header of its own for it.
            timeout_header: (kind != UpstreamKind::Grpc).then_some(HeaderName::from_static("x-fanin-timeout-ms")),
            query_lists: QueryLists::Repeat,
            tls: None,
            // What a model refuses in this process it would refuse again.
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

/// HTTP version of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1: one call on a connection at a time.
    Http1,
    /// HTTP/2: many calls on one connection; by ALPN over TLS, with prior knowledge without.
    Http2,
}

impl HttpVersion {
    /// How many connections to an endpoint are allowed where the file does not say.
    pub const fn default_connections(self) -> usize {
        match self {
            HttpVersion::Http1 => 256,
            HttpVersion::Http2 => 4,
        }
    }
}

impl Serialize for HttpVersion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match self {
            HttpVersion::Http1 => "1",
            HttpVersion::Http2 => "2",
        })
    }
}

/// How a list in a query is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryLists {
    /// The name once for each item: `ids=1&ids=2`.
    #[default]
    Repeat,
    /// One name, the items joined: `ids=1,2`.
    Comma,
}

impl Upstream {
    /// Reads a table of `[upstreams]`; what is wrong is noted in its reader.
    /// `longest_route`: the longest time that any request has, if there are routes. `models`: the file's `[models]`.
    pub(crate) fn read(
        name: At<String>,
        mut table: Table<'_, '_>,
        longest_route: Option<Duration>,
        models: Option<&Models>,
    ) -> Option<Upstream> {
        if !is_name(&name.value) {
            table.reader().error_hint(
                &name.span,
                format!("`{}` is not a name for an upstream", name.value),
                "use letters, digits, _ and -, a letter first",
            );
        }
        let kind = backend::kind(&table);
        backend::refuse_foreign(&table, kind);
        let mut upstream = Upstream::blank(name.value, kind);
        upstream.urls = read_urls(&mut table);
        grpc::read(&mut table, &mut upstream, kind);
        upstream.postgres = backend::read_urls(&mut table, UpstreamKind::Postgres);
        upstream.mysql = backend::read_urls(&mut table, UpstreamKind::Mysql);
        upstream.files = table.folder("files");
        upstream.model = backend::read_model(&mut table, models);
        upstream.password = table.text("password");
        set(&mut upstream.timeout, table.duration("timeout"));
        let connect_timeout = table.duration("connect_timeout");
        upstream.connect_timeout = connect_timeout.unwrap_or(upstream.connect_timeout).min(upstream.timeout);
        if connect_timeout.is_some_and(|connect| connect > upstream.timeout) {
            table.error("connect_timeout", "is longer than the upstream's timeout, which ends the call before");
        }
        set(&mut upstream.limit, limit::read(&mut table));
        set(&mut upstream.max_waiting, table.count("max_waiting", 0..=u64::MAX));
        set(&mut upstream.http, table.choice("http", &[("1", HttpVersion::Http1), ("2", HttpVersion::Http2)]));
        let connections = table.count("max_connections", 1..=u64::MAX);
        upstream.max_connections = connections.unwrap_or(match (kind.is_sql(), upstream.limit) {
            (false, _) => upstream.http.default_connections(),
            // A statement has its connection for itself, so that fewer would only make calls wait a second time.
            (true, Limit::Fixed(calls) | Limit::Adaptive { max: calls, .. }) => calls,
        });
        let connecting = table.count("max_connecting", 1..=u64::MAX);
        if connecting.is_some_and(|connecting| connecting > upstream.max_connections) {
            table.error("max_connecting", format_args!("is above max_connections, {}", upstream.max_connections));
        }
        upstream.max_connecting = connecting.unwrap_or(upstream.max_connecting).min(upstream.max_connections);
        set(&mut upstream.idle_timeout, table.duration("idle_timeout"));
        set(&mut upstream.keepalive, table.duration("keepalive"));
        set(&mut upstream.keepalive_timeout, table.duration("keepalive_timeout"));
        set(&mut upstream.keepalive_idle, table.flag("keepalive_idle"));
        for key in ["keepalive", "keepalive_timeout", "keepalive_idle"] {
            if kind == UpstreamKind::Http && upstream.http == HttpVersion::Http1 && table.at(key).is_some() {
                table.error(key, "pings HTTP/2 connections; this upstream has http = \"1\"");
            }
        }
        set(&mut upstream.max_answer, table.size("max_answer", 1));
        upstream.headers = read_headers(&mut table);
        let forward = table.list("forward_headers", "a header's name", false, forwardable);
        set(&mut upstream.forward_headers, forward.map(|names| names.into_iter().map(|name| name.value).collect()));
        set(&mut upstream.timeout_header, table.header("timeout_header"));
        let lists = [("repeat", QueryLists::Repeat), ("comma", QueryLists::Comma)];
        set(&mut upstream.query_lists, table.choice("query_lists", &lists));
        upstream.tls = table.table("tls").map(ClientTls::read);
        if upstream.tls.is_some()
            && matches!(kind, UpstreamKind::Http | UpstreamKind::Grpc)
            && !upstream.endpoints().iter().any(|url| url.scheme() == "https")
        {
            table.error("tls", "no url of this upstream is https");
        }
        let timeout = upstream.timeout;
        if kind != UpstreamKind::Model || table.at("retry").is_some() {
            upstream.retry = read_retry(&mut table);
        }
        upstream.hedge = read_hedge(&mut table, timeout);
        upstream.breaker = read_breaker(&mut table);
        set(&mut upstream.ejection, table.flag("ejection"));
        upstream.attempt_timeout = read_part(&mut table, "attempt_timeout", timeout);
        if upstream.attempt_timeout.is_some() && upstream.retry.as_ref().is_none_or(|retry| retry.max == 0) {
            table.warning(
                "attempt_timeout",
                "ends a try, but `retry` allows no other",
                "set `timeout` instead, or `retry`",
            );
        }
        upstream.chunk_timeout = read_part(&mut table, "chunk_timeout", timeout);
        upstream.snapshot = table.table("snapshot").and_then(Snapshot::read);
        check_deadline(&table, &upstream, longest_route);
        check_waiting(&table, &upstream);
        upstream.operations = table
            .named_tables("operations")
            .into_iter()
            .filter_map(|(name, table)| {
                if !is_identifier(&name.value) {
                    let message = format!("`{}` is not a name for an operation", name.value);
                    table.reader().error_hint(
                        &name.span,
                        message,
                        "flows call it by this name: use letters, digits and _",
                    );
                }
                Some((name.value, Operation::read(table, timeout)?))
            })
            .collect();
        upstream.statements = statement::read_all(&mut table);
        table.finish();
        Some(upstream)
    }
}

/// A second try that no request lives to see is a mistake.
fn check_deadline(table: &Table<'_, '_>, upstream: &Upstream, longest_route: Option<Duration>) {
    let Some(longest) = longest_route else { return };
    let hedge = match upstream.hedge {
        Some(Hedge::Time(after)) => Some(after),
        _ => None,
    };
    for (key, time) in [("attempt_timeout", upstream.attempt_timeout), ("hedge", hedge)] {
        if time.is_some_and(|time| time >= longest) {
            table.error(
                key,
                format_args!(
                    "lies beyond the deadline of every route, the longest of which is {}: no second try ever comes",
                    format_duration(longest)
                ),
            );
        }
    }
}

/// The last of those who wait gets its place after all in front of it have had theirs. Below this time for each answer, the
/// queue is rather a way to time out.
const PLAUSIBLE_ANSWER: Duration = Duration::from_millis(1);

/// Compares `max_waiting` with the time that a call has.
fn check_waiting(table: &Table<'_, '_>, upstream: &Upstream) {
    let Limit::Fixed(limit) = upstream.limit else { return };
    // The waiting calls go in rounds of `limit`, and the last of them needs an answer of its own.
    let rounds = upstream.max_waiting.div_ceil(limit).saturating_add(1);
    let each = upstream.timeout / u32::try_from(rounds).unwrap_or(u32::MAX);
    if each < PLAUSIBLE_ANSWER && table.at("max_waiting").is_some() {
        table.error(
            "max_waiting",
            format_args!(
                "{} waiting calls on a limit of {limit}: unless each answer takes less than {}, the last of them waits longer \
                 than the timeout of {} and is not worth queueing",
                upstream.max_waiting,
                format_duration(each.max(Duration::from_micros(1))),
                format_duration(upstream.timeout),
            ),
        );
    }
}

/// Replaces a default by what the file says.
pub(crate) fn set<T>(default: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *default = value;
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
