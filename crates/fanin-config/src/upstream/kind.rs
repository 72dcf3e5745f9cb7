//! The kinds of upstreams: which key selects a kind, and which keys a kind has.

use std::fmt;

use crate::reader::Table;

/// What an upstream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamKind {
    /// HTTP: `url` or `urls`.
    Http,
    /// gRPC: `grpc`.
    Grpc,
    /// PostgreSQL: `postgres`.
    Postgres,
    /// MySQL or MariaDB: `mysql`.
    Mysql,
    /// A folder of this machine: `files`.
    Files,
    /// A model in this process: `model`.
    Model,
}

impl UpstreamKind {
    /// Whether it is a database.
    pub const fn is_sql(self) -> bool {
        matches!(self, UpstreamKind::Postgres | UpstreamKind::Mysql)
    }

    /// The default of `limit`. A database runs about as many statements at once as it has cores and disks, and a few threads
    /// read a folder. More calls would queue there instead of here, where the oldest request goes first.
    pub const fn default_limit(self) -> usize {
        match self {
            // The model queue decides what fits into a deadline; this is only an upper bound.
            UpstreamKind::Http | UpstreamKind::Grpc | UpstreamKind::Model => 256,
            UpstreamKind::Postgres | UpstreamKind::Mysql => 8,
            UpstreamKind::Files => 4,
        }
    }
}

impl fmt::Display for UpstreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpstreamKind::Http => "HTTP",
            UpstreamKind::Grpc => "gRPC",
            UpstreamKind::Postgres => "PostgreSQL",
            UpstreamKind::Mysql => "MySQL",
            UpstreamKind::Files => "a folder",
            UpstreamKind::Model => "a model",
        })
    }
}

/// Kinds reached over the network.
const NETWORK: &[UpstreamKind] = &[UpstreamKind::Http, UpstreamKind::Grpc, UpstreamKind::Postgres, UpstreamKind::Mysql];
/// Kinds that use HTTP.
const ANY_HTTP: &[UpstreamKind] = &[UpstreamKind::Http, UpstreamKind::Grpc];
/// Databases.
const SQL: &[UpstreamKind] = &[UpstreamKind::Postgres, UpstreamKind::Mysql];

/// The keys that select a kind. An upstream has exactly one of them.
pub(crate) const ENDPOINT_KEYS: [(&str, UpstreamKind); 7] = [
    ("url", UpstreamKind::Http),
    ("urls", UpstreamKind::Http),
    ("grpc", UpstreamKind::Grpc),
    ("postgres", UpstreamKind::Postgres),
    ("mysql", UpstreamKind::Mysql),
    ("files", UpstreamKind::Files),
    ("model", UpstreamKind::Model),
];

/// Keys that only some kinds have. Every other key is for all kinds.
const KEYS_OF_KINDS: &[(&str, &[UpstreamKind])] = &[
    ("snapshot", &[UpstreamKind::Http]),
    ("http", &[UpstreamKind::Http]),
    ("timeout_header", &[UpstreamKind::Http]),
    ("query_lists", &[UpstreamKind::Http]),
    ("escaped_slashes", &[UpstreamKind::Http]),
    ("operations", &[UpstreamKind::Http]),
    ("headers", ANY_HTTP),
    ("forward_headers", ANY_HTTP),
    ("answer_headers", &[UpstreamKind::Http]),
    ("keepalive", ANY_HTTP),
    ("keepalive_timeout", ANY_HTTP),
    ("keepalive_idle", ANY_HTTP),
    ("chunk_timeout", ANY_HTTP),
    ("max_stream", ANY_HTTP),
    ("stream_idle_timeout", ANY_HTTP),
    ("max_connecting", ANY_HTTP),
    ("tls", NETWORK),
    ("connect_timeout", NETWORK),
    ("max_connections", NETWORK),
    ("idle_timeout", NETWORK),
    ("ejection", NETWORK),
    ("password", SQL),
    ("auth", &[UpstreamKind::Postgres]),
    ("reset", SQL),
    ("statements", SQL),
    ("proto", &[UpstreamKind::Grpc]),
    ("proto_path", &[UpstreamKind::Grpc]),
    ("descriptors", &[UpstreamKind::Grpc]),
    ("reflection", &[UpstreamKind::Grpc]),
    ("safe_methods", &[UpstreamKind::Grpc]),
    ("max_messages", &[UpstreamKind::Grpc]),
    ("int64", &[UpstreamKind::Grpc]),
    ("field_names", &[UpstreamKind::Grpc]),
    ("compression", &[UpstreamKind::Grpc]),
];

/// Whether an upstream of this kind has this key.
pub(crate) fn has_key(kind: UpstreamKind, key: &str) -> bool {
    KEYS_OF_KINDS.iter().find(|(name, _)| *name == key).is_none_or(|(_, kinds)| kinds.contains(&kind))
}

/// Reports keys that an upstream of this kind does not have.
pub(super) fn refuse_keys_of_other_kinds(table: &Table<'_, '_>, kind: UpstreamKind) {
    for &(key, kinds) in KEYS_OF_KINDS {
        if table.has(key) && !kinds.contains(&kind) {
            let kinds: Vec<String> = kinds.iter().map(UpstreamKind::to_string).collect();
            table.error(key, format_args!("applies to {} only; this upstream is {kind}", kinds.join(", ")));
        }
    }
}

/// Determines the kind of an upstream by its endpoint key.
pub(super) fn detect(table: &Table<'_, '_>) -> UpstreamKind {
    let mut found = ENDPOINT_KEYS.into_iter().filter(|(key, _)| table.has(key));
    match (found.next(), found.next()) {
        (None, _) => {
            table.missing(
                "url",
                "write url = \"http://host:port\", urls = [...] for several endpoints, or grpc, postgres, mysql, files or model",
            );
            UpstreamKind::Http
        }
        (Some((_, kind)), None) => kind,
        (Some((first, kind)), Some((second, _))) => {
            table.error(second, format_args!("cannot be combined with `{first}`; remove one of them"));
            kind
        }
    }
}
