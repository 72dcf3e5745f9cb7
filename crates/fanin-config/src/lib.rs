//! The configuration file, `fanin.toml`: types, defaults, checks, JSON Schema.
//!
//! [`Config::load`] reads `DIR/fanin.toml` and gives either a configuration in which every value has been checked and
//! every default filled in, or *all* the errors at once, each with file, line and column. The types are plain data:
//! durations are `std::time::Duration`, sizes are bytes, paths are resolved against the configuration's folder.
//!
//! To add a key: add a field with its documentation and default to the struct of its section, and one line to that
//! section's `read`. The JSON Schema and the table of `docs/configuration.md` follow from the struct; a test fails
//! when the two disagree.

mod backend;
mod client_tls;
mod config;
mod diagnostic;
mod duration;
mod env;
mod executor;
mod grpc;
mod headers;
mod limit;
mod limits;
mod mask;
mod merge;
mod models;
mod operation;
mod overload;
mod param;
mod policy;
mod read;
mod render;
mod route;
mod schema;
mod server;
mod size;
mod statement;
mod table;
mod text;
mod upstream;
mod urls;

pub use backend::{CALL_OPTIONS, UpstreamKind};
pub use client_tls::ClientTls;
pub use config::{Config, FILE_NAME, Inspection};
pub use diagnostic::{ConfigError, Diagnostic, Severity, Source};
pub use duration::{format_duration, parse_duration};
pub use executor::{Executor, Threads};
pub use grpc::{FieldNames, Int64};
pub use limit::Limit;
pub use limits::FlowLimits;
pub use mask::MASK;
pub use merge::{Batch, Cache, Snapshot};
pub use models::{ModelSettings, Models, Versions};
pub use operation::Operation;
pub use overload::{MemoryBudget, Network, Priority};
pub use param::{OPERATION_CALL_OPTIONS, Param, ParamKind, ParamLocation, ParamType};
pub use policy::{Breaker, Hedge, Retry};
pub use read::Position;
pub use render::{render, render_all};
pub use route::{FlowRef, OnDisconnect, Route};
pub use server::{AccessLog, Server, ServerTls};
pub use size::{format_size, parse_size};
pub use statement::{Rows, Statement, StatementBatch, check_sql};
pub use upstream::{HttpVersion, QueryLists, Upstream};
