//! `[upstreams.NAME]`: what an upstream is, its policies, its operations and statements.
//!
//! | files | |
//! |---|---|
//! | `keys`, `defaults`, `read`, `checks` | the table itself: fields, defaults, reading, checks across keys |
//! | `kind` | the kinds, the key that selects each, the keys that each has |
//! | `http`, `grpc`, `sql`, `model` | what only one kind has |
//! | `limit`, `retry`, `hedge`, `breaker`, `timeout` | policies |
//! | `headers`, `tls` | connections and messages |
//! | `operation`, `param`, `shape`, `batch`, `cache`, `call_options` | named calls |
//! | `statement`, `statement_batch`, `rows`, `sql_check` | named SQL statements |
//! | `snapshot` | whole tables in memory |
//!
//! To add a kind: a variant and its keys in `kind`, a file that parses its endpoint, a field in `keys`, a default in
//! `defaults`, a line in `read`.

pub(crate) mod answer_headers;
pub(crate) mod batch;
pub(crate) mod breaker;
pub(crate) mod cache;
pub(crate) mod call_options;
mod checks;
mod defaults;
pub(crate) mod grpc;
mod headers;
pub(crate) mod hedge;
pub(crate) mod http;
pub(crate) mod keys;
pub(crate) mod kind;
pub(crate) mod limit;
mod model;
pub(crate) mod operation;
pub(crate) mod param;
mod read;
pub(crate) mod retry;
pub(crate) mod rows;
pub(crate) mod shape;
pub(crate) mod snapshot;
pub(crate) mod sql;
pub(crate) mod sql_check;
pub(crate) mod statement;
pub(crate) mod statement_batch;
mod timeout;
pub(crate) mod tls;
