//! The keys of `[upstreams.NAME]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use url::Url;

use crate::schema::types;
use crate::upstream::answer_headers::AnswerHeaders;
use crate::upstream::breaker::Breaker;
use crate::upstream::grpc::{FieldNames, FieldNamesText, GrpcCompression, GrpcCompressionText, Int64, Int64Text};
use crate::upstream::hedge::Hedge;
use crate::upstream::http::{
    EscapedSlashes, EscapedSlashesText, HttpVersion, HttpVersionText, QueryLists, QueryListsText,
};
use crate::upstream::kind::UpstreamKind;
use crate::upstream::limit::{AdaptiveLimit, Limit};
use crate::upstream::operation::Operation;
use crate::upstream::retry::Retry;
use crate::upstream::snapshot::Snapshot;
use crate::upstream::sql::{MysqlText, PostgresAuth, PostgresAuthText, PostgresText, SessionReset, SessionResetText};
use crate::upstream::statement::Statement;
use crate::upstream::tls::ClientTls;
use crate::values::serialize;

/// `[upstreams.NAME]`: a backend service, its endpoints, timeouts, limits and policies. Flows get it with
/// `load("@upstreams", "NAME")`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The upstream's name: the key of its table.
    #[serde(skip)]
    pub name: String,
    /// Base URLs of several endpoints (`http` or `https`). Calls are spread over them. The path of a call is appended
    /// to the path of the URL. For one endpoint, write `url`.
    #[serde(serialize_with = "serialize::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::UrlText>")]
    pub urls: Vec<Url>,
    /// URL of a gRPC server (`http` or `https`), or a list for several endpoints. Use it instead of `url`.
    #[serde(serialize_with = "serialize::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::UrlText>")]
    pub grpc: Vec<Url>,
    /// URL of a PostgreSQL database: `"postgres://user:password@host:5432/database"`. A list names several servers
    /// with the same data. Use it instead of `url`. With `?sslmode=require` or a table `tls`, the connection is
    /// encrypted and the server's certificate is verified.
    #[serde(serialize_with = "serialize::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<PostgresText>")]
    pub postgres: Vec<Url>,
    /// URL of a MySQL or MariaDB database: `"mysql://user:password@host:3306/database"`. A list names several servers
    /// with the same data. Use it instead of `url`.
    #[serde(serialize_with = "serialize::urls", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<MysqlText>")]
    pub mysql: Vec<Url>,
    /// A folder on this machine, relative to the folder of `fanin.toml`. Flows read files below it. Use it instead of
    /// `url`.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub files: Option<PathBuf>,
    /// Name of a model in `[models]`. It is computed in this process. Use it instead of `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub model: Option<String>,
    /// Password of the database user, if the URL has none. Best taken from a variable: `"${DB_PASSWORD}"`.
    #[serde(serialize_with = "serialize::secret", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub password: Option<String>,
    /// The weakest way in which the password may be proven to PostgreSQL: `"scram"`, `"md5"` or `"cleartext"`. A
    /// server that asks for a weaker one is refused. Default: `"scram"`; with TLS `"cleartext"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PostgresAuthText")]
    pub auth: Option<PostgresAuth>,
    /// When a database session is reset before another call uses it: `"auto"`, after statements whose text can change
    /// settings, locks or temporary tables, such as `call`, or `"always"`. Set `"always"` if functions of your own
    /// change them.
    #[schemars(with = "SessionResetText")]
    pub reset: SessionReset,
    /// The `.proto` files that describe the services of a gRPC upstream, one or a list. They are compiled when the
    /// configuration is loaded.
    #[serde(serialize_with = "serialize::paths", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::Text>")]
    pub proto: Vec<PathBuf>,
    /// Folders in which the files of `proto` and their imports are found. Default: the folders of the files in
    /// `proto`.
    #[serde(serialize_with = "serialize::paths", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "types::OneOrMore<types::Text>")]
    pub proto_path: Vec<PathBuf>,
    /// A file with a compiled `FileDescriptorSet`, imports included. Use it instead of `proto`.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub descriptors: Option<PathBuf>,
    /// Fetches the description of the services from the gRPC server by server reflection. Use it instead of `proto`.
    #[schemars(with = "types::Flag")]
    pub reflection: bool,
    /// gRPC methods that change nothing (`"GetUser"`, `"shop.Users/GetUser"`), or whole services (`"shop.Users"`).
    /// Methods that their `.proto` file marks with `idempotency_level = NO_SIDE_EFFECTS` need no entry.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<String>")]
    pub safe_methods: Vec<String>,
    /// Most messages in a streamed gRPC answer that is collected. A longer stream fails the call. `stream(...)` has no such bound.
    #[schemars(with = "types::Count<1>")]
    pub max_messages: usize,
    /// How answers represent 64-bit integers of gRPC messages: `"string"`, as in the JSON mapping of protobuf, or
    /// `"number"`.
    #[schemars(with = "Int64Text")]
    pub int64: Int64,
    /// Field names in gRPC answers: `"json"` (`userId`) or `"proto"` (`user_id`, as in the `.proto` file). Requests
    /// may use both.
    #[schemars(with = "FieldNamesText")]
    pub field_names: FieldNames,
    /// Compression of gRPC messages: `"off"`, or `"gzip"` for requests, and for answers if the server wants to.
    #[schemars(with = "GrpcCompressionText")]
    pub compression: GrpcCompression,
    /// How long a call may take, including the time in the queue, connecting and reading. A call can set its own with
    /// `timeout =`. The deadline of the request always applies as well.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub timeout: Duration,
    /// How long connecting may take, including TLS and database login. Default: 250ms; for a database 1s.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub connect_timeout: Duration,
    /// Most calls in flight, over all workers. `"adaptive"` follows the upstream's latency, between 8 and 1024; `{ min
    /// = 4, max = 64 }` sets other bounds. Default: 256; for a database 8, for a folder 4.
    #[schemars(with = "types::Or<types::Count<1>, types::Or<types::Adaptive, AdaptiveLimit>>")]
    pub limit: Limit,
    /// Most calls that may wait for a permit of `limit`. Further calls are refused at once. Calls of the oldest
    /// request go first.
    #[schemars(with = "types::Count<0>")]
    pub max_waiting: usize,
    /// HTTP version: `"1"` or `"2"`. Without TLS, `"2"` starts without an upgrade, so the backend must expect HTTP/2.
    #[schemars(with = "HttpVersionText")]
    pub http: HttpVersion,
    /// Most connections to one endpoint. With HTTP/1.1: over all workers, default 256. With HTTP/2 and gRPC: for each
    /// worker, default 4. For a database: over all workers, default as `limit`.
    #[schemars(with = "types::Count<1>")]
    pub max_connections: usize,
    /// Most connections to one endpoint that are being opened at the same time, over all workers. It protects the
    /// backend after a start.
    #[schemars(with = "types::Count<1>")]
    pub max_connecting: usize,
    /// How long an unused connection is kept. Set it below the backend's own keep-alive time. Default: 30s; for a
    /// database 10m.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub idle_timeout: Duration,
    /// Interval of HTTP/2 pings on a connection. They detect a peer that has vanished without closing the connection.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub keepalive: Duration,
    /// Pings HTTP/2 connections without calls, too.
    #[schemars(with = "types::Flag")]
    pub keepalive_idle: bool,
    /// How long the reply to a ping may take before the connection is closed.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub keepalive_timeout: Duration,
    /// Largest body of an answer, in bytes and after decompression. A larger one fails the call.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_answer: usize,
    /// Largest body that `stream(...)` passes on, in bytes. A larger one is broken off, and the client sees an incomplete response.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_stream: usize,
    /// How long an upstream may send nothing while `stream(...)` passes its answer on. The time in which a client does not read does not
    /// count.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub stream_idle_timeout: Duration,
    /// Headers that are sent with every call.
    #[serde(serialize_with = "serialize::headers")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: HeaderMap,
    /// Headers of the client's request that are passed on with every call. The default carries traces and nothing
    /// about the user. Add `authorization` only for upstreams that may see it.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<String>")]
    pub forward_headers: Vec<HeaderName>,
    /// Which headers of an answer clients get, if a flow passes the answer on: streamed, or returned by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AnswerHeaders")]
    pub answer_headers: Option<AnswerHeaders>,
    /// Header that tells the upstream how many milliseconds the request has left. `"off"` sends none.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Or<types::Text, types::Off>")]
    pub timeout_header: Option<HeaderName>,
    /// How a list in `query` is sent: `"repeat"` (`ids=1&ids=2`) or `"comma"` (`ids=1,2`).
    #[schemars(with = "QueryListsText")]
    pub query_lists: QueryLists,
    /// Slashes and backslashes within a segment of a call's path, such as a value `a/b` for `{id}`. `"refuse"`: the call
    /// fails, because a backend that decodes before it splits would see another path. `"encode"`: they are sent as
    /// `%2F` and `%5C`, for backends that keep them apart. Segments `.` and `..` are refused in any case.
    #[schemars(with = "EscapedSlashesText")]
    pub escaped_slashes: EscapedSlashes,
    /// TLS settings for `https` URLs and databases. Without them, the root certificates of the system are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClientTls")]
    pub tls: Option<ClientTls>,
    /// Further attempts of failed calls. `"off"` disables retries.
    #[serde(serialize_with = "serialize::table_or_off")]
    #[schemars(with = "types::Or<Retry, types::Off>")]
    pub retry: Option<Retry>,
    /// When to send a second attempt beside a slow first one. Only calls that change nothing are hedged. `"half"`: to
    /// another endpoint, when half of the call's timeout has passed. `"p95"`: when the first attempt is slower than 95
    /// % of the answers. `"30ms"`: after that time. `"off"`: never.
    #[serde(serialize_with = "serialize::table_or_off")]
    #[schemars(with = "types::HedgeText")]
    pub hedge: Option<Hedge>,
    /// Circuit breaker: refuses calls at once while the upstream fails. `"off"` disables it.
    #[serde(serialize_with = "serialize::table_or_off")]
    #[schemars(with = "types::Or<Breaker, types::Off>")]
    pub breaker: Option<Breaker>,
    /// Outlier detection: leaves out an endpoint for a while if it fails and others do not.
    #[schemars(with = "types::Flag")]
    pub ejection: bool,
    /// How long one attempt of a call may take, including connecting. A shorter time than `timeout` leaves time for a
    /// retry. Default: the time of the call.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub attempt_timeout: Option<Duration>,
    /// How long the next part of an answer's body may take. Default: the time of the call.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub chunk_timeout: Option<Duration>,
    /// A whole table, fetched in the background and kept in memory. Flows use `NAME.lookup(key)` and `NAME.table()`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Snapshot")]
    pub snapshot: Option<Snapshot>,
    /// Named calls. Flows call them as `NAME.operation(...)`.
    #[serde(serialize_with = "serialize::named", skip_serializing_if = "IndexMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Operation>")]
    pub operations: IndexMap<String, Operation>,
    /// Named SQL statements of a database. Flows call them as `NAME.statement(...)`.
    #[serde(serialize_with = "serialize::named", skip_serializing_if = "IndexMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Statement>")]
    pub statements: IndexMap<String, Statement>,
}

impl Upstream {
    /// The kind of the upstream.
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

    /// The URLs of its endpoints. Empty for a folder or a model.
    pub fn endpoints(&self) -> &[Url] {
        match self.kind() {
            UpstreamKind::Http => &self.urls,
            UpstreamKind::Grpc => &self.grpc,
            UpstreamKind::Postgres => &self.postgres,
            UpstreamKind::Mysql => &self.mysql,
            UpstreamKind::Files | UpstreamKind::Model => &[],
        }
    }

    /// The named calls of the upstream: operations, and statements as operations. Their order gives each call its number.
    pub fn named_calls(&self) -> IndexMap<String, Operation> {
        let statements = self.statements.iter().map(|(name, it)| (name.clone(), it.operation(name)));
        self.operations.iter().map(|(name, it)| (name.clone(), it.clone())).chain(statements).collect()
    }
}
