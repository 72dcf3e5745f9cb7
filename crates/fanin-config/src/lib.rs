//! The configuration file, `fanin.toml`: types, defaults, checks, JSON Schema.
//!
//! [`Config::load`] reads `DIR/fanin.toml`. It gives either a configuration in which every value has been checked and
//! every default filled in, or *all* errors at once, each with file, line and column. The types are plain data:
//! durations are `std::time::Duration`, sizes are bytes, paths are resolved against the configuration's folder.
//!
//! | modules | |
//! |---|---|
//! | `config` | the whole file |
//! | `server`, `server_tls`, `route`, `flow_limits`, `executor`, `models`, `push`, `recorder`, `tracing`, `otlp` | a table each |
//! | `web` | what browsers and caches expect of responses |
//! | `access`, `auth`, `certificate_name`, `rate_limit` | who may use a route, and how often |
//! | `objective`, `flow_ref`, `budget` | what a route promises; the flow that it names, and what that may do |
//! | `upstream` | `[upstreams.NAME]`: kinds, policies, operations, statements |
//! | `values` | durations, sizes, environment variables, names, secrets as text |
//! | `reader` | typed values with their positions; records every error and reads on |
//! | `editing` | what an editor has not written yet |
//! | `schema` | the JSON Schema |
//! | `diagnostic`, `render` | errors, and how people see them |
//!
//! This crate must not know how any value is used: no I/O besides reading the file, no flows, no network.
//!
//! To add a key: add a field with its documentation and default to the struct of its section, and one line to that
//! section's `read`. The JSON Schema and the table of `docs/configuration.md` follow from the struct; a test fails
//! when the two disagree.

mod access;
mod auth;
mod budget;
mod certificate_name;
mod config;
mod diagnostic;
mod editing;
mod executor;
mod flow_limits;
mod flow_ref;
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod memory_budget;
mod models;
mod network;
mod objective;
mod otlp;
mod path_pattern;
mod path_segments;
mod priority;
mod push;
mod rate_limit;
mod reader;
mod recorder;
mod render;
mod request_id;
mod route;
mod route_conflicts;
mod route_kind;
mod schema;
mod server;
mod server_tls;
mod signing;
mod tracing;
mod upstream;
mod values;
mod web;

pub use access::{Access, Need};
pub use auth::{Algorithm, Auth, AuthKind};
pub use budget::{Allowance, Budget};
pub use certificate_name::CertificateName;
pub use config::{Config, FILE_NAME, Inspection};
pub use diagnostic::{ConfigError, Diagnostic, Position, Severity, Source};
pub use editing::{Editing, canonical, locate, set_key};
pub use executor::{Executor, Threads};
pub use flow_limits::FlowLimits;
pub use flow_ref::FlowRef;
pub use grpc::Grpc;
pub use memory_budget::MemoryBudget;
pub use models::{ModelSettings, Models, Versions};
pub use network::Network;
pub use objective::Objective;
pub use otlp::{Otlp, OtlpProtocol};
pub use path_segments::{UnsafeSegment, check_segments, check_value, has_whole_escapes};
pub use priority::Priority;
pub use push::Push;
pub use rate_limit::{RateLimit, RateLimitKey};
pub use recorder::Recorder;
pub use render::{render, render_all};
pub use route::{OnDisconnect, Route};
pub use server::{AccessLog, LogFormat, RequestSlashes, Server};
pub use server_tls::{Alpn, Certificate, ClientCertificates, ServerTls, TlsVersion};
pub use signing::Signing;
pub use tracing::{TraceTrust, Tracing};
pub use upstream::answer_headers::AnswerHeaders;
pub use upstream::batch::Batch;
pub use upstream::breaker::Breaker;
pub use upstream::cache::Cache;
pub use upstream::call_options::{CALL_OPTIONS, OPERATION_CALL_OPTIONS};
pub use upstream::grpc::{FieldNames, GrpcCompression, Int64};
pub use upstream::hedge::Hedge;
pub use upstream::http::{EscapedSlashes, HttpVersion, QueryLists};
pub use upstream::keys::Upstream;
pub use upstream::kind::UpstreamKind;
pub use upstream::limit::Limit;
pub use upstream::operation::Operation;
pub use upstream::param::{Param, ParamKind, ParamLocation, ParamType};
pub use upstream::retry::Retry;
pub use upstream::rows::Rows;
pub use upstream::shape::{Members, Shape, ShapeKind};
pub use upstream::snapshot::Snapshot;
pub use upstream::sql::{PostgresAuth, SessionReset};
pub use upstream::sql_check::{can_change_session, check_sql};
pub use upstream::statement::Statement;
pub use upstream::statement_batch::StatementBatch;
pub use upstream::tls::ClientTls;
pub use values::duration::{format_duration, parse_duration};
pub use values::host::HostPattern;
pub use values::http::REQUEST_ID_HEADERS;
pub use values::origin::{OriginPattern, web_origin};
pub use values::polynomial::Polynomial;
pub use values::secret::MASK;
pub use values::size::{format_size, parse_size};
pub use web::compression::{Compression, MediaType};
pub use web::cors::Cors;
pub use web::folder::Folder;
pub use web::redirect::Redirect;
pub use web::request_headers::RequestHeaderRules;
pub use web::respond::Respond;
pub use web::response_cache::ResponseCache;
pub use web::response_headers::HeaderRules;
