//! `[upstreams.NAME.operations.NAME]`: named calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::path_pattern::check_template;
use crate::path_segments::{UnsafeSegment, check_segments};
use crate::reader::Table;
use crate::schema::types;
use crate::upstream::batch::Batch;
use crate::upstream::cache::Cache;
use crate::upstream::hedge::Hedge;
use crate::upstream::http::EscapedSlashes;
use crate::upstream::param::{Param, ParamLocation, ParamType};
use crate::upstream::retry::Retry;
use crate::upstream::shape::Shape;
use crate::upstream::timeout::read_shorter_timeout;
use crate::values::names::is_identifier;
use crate::values::serialize;

/// `[upstreams.NAME.operations.NAME]`: a named call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// HTTP method.
    #[serde(serialize_with = "serialize::display")]
    #[schemars(with = "types::MethodText")]
    pub method: Method,
    /// Path template. `{name}` is replaced by the call's parameter of that name, percent-encoded: `"/products/{id}"`.
    #[schemars(with = "types::PathTemplate")]
    pub path: String,
    /// Parameters by name, in this order. Calls are checked against their types, and no others are accepted. Without
    /// `params`, every argument of a call fills the path or goes into the query.
    #[serde(serialize_with = "serialize::optional_named", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, types::Or<types::ParamTypeText, Param>>")]
    pub params: Option<IndexMap<String, Param>>,
    /// Whether the call changes nothing at the backend, so that it may be retried, hedged, batched and cached.
    /// Default: true for GET and HEAD, false otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Flag")]
    pub safe: Option<bool>,
    /// Statuses besides 2xx that are answers and not failures: `[404]`.
    #[serde(serialize_with = "statuses")]
    #[schemars(with = "Vec<types::Count<100, 599>>")]
    pub ok: Vec<StatusCode>,
    /// The shape of answers with status 2xx: `"object"`, `["string"]`, `{ id = "int", price = "float?" }`. Another answer
    /// is a failure of the upstream. With `batch`, this is the whole answer of the backend, before it is split.
    #[serde(serialize_with = "shape", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Anything")]
    pub returns: Option<Arc<Shape>>,
    /// How long the call may take. Default: the upstream's `timeout`.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub timeout: Option<Duration>,
    /// Combines calls with different keys into one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Batch")]
    pub batch: Option<Batch>,
    /// Caches answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cache")]
    pub cache: Option<Cache>,
    /// Sends identical concurrent calls as one request, even from different requests. Default: true with `cache`,
    /// otherwise false, because a shared answer may be older than the call that uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Flag")]
    pub single_flight: Option<bool>,
    /// Most calls of this operation in flight, over all workers. The upstream's `limit` applies as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Count<1>")]
    pub limit: Option<usize>,
    /// Most calls that may wait for a permit of this operation's `limit`. Default: the upstream's `max_waiting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Count<0>")]
    pub max_waiting: Option<usize>,
    /// Replaces the upstream's `retry` for this operation. `"off"` disables retries. The retry budget is shared with
    /// the other calls of the upstream.
    #[serde(serialize_with = "overridden", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Or<Retry, types::Off>")]
    pub retry: Option<Option<Retry>>,
    /// Replaces the upstream's `hedge` for this operation. Only for calls that change nothing.
    #[serde(serialize_with = "overridden", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::HedgeText")]
    pub hedge: Option<Option<Hedge>>,
    /// How long one attempt of the call may take. Default: the upstream's `attempt_timeout`.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub attempt_timeout: Option<Duration>,
    /// How long the next part of the answer's body may take. Default: the upstream's `chunk_timeout`.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub chunk_timeout: Option<Duration>,
    /// Largest body of the answer, in bytes. Default: the upstream's `max_answer`.
    #[serde(serialize_with = "optional_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Size<1>")]
    pub max_answer: Option<usize>,
    /// Largest body that `stream(...)` passes on. Default: the upstream's `max_stream`.
    #[serde(serialize_with = "optional_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Size<1>")]
    pub max_stream: Option<usize>,
    /// How long the upstream may send nothing of a streamed answer. Default: the upstream's `stream_idle_timeout`.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::DurationText")]
    pub stream_idle_timeout: Option<Duration>,
}

fn overridden<T: Serialize, S: Serializer>(value: &Option<Option<T>>, to: S) -> Result<S::Ok, S::Error> {
    serialize::table_or_off(value.as_ref().unwrap_or(&None), to)
}

fn optional_size<S: Serializer>(value: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serialize::size(value, to),
        None => to.serialize_none(),
    }
}

fn shape<S: Serializer>(shape: &Option<Arc<Shape>>, to: S) -> Result<S::Ok, S::Error> {
    shape.as_deref().serialize(to)
}

fn statuses<S: Serializer>(statuses: &[StatusCode], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(statuses.iter().map(StatusCode::as_u16))
}

impl Operation {
    /// A GET of this path with all defaults.
    pub fn new(path: impl Into<String>) -> Operation {
        Operation {
            method: Method::GET,
            path: path.into(),
            params: None,
            safe: None,
            ok: Vec::new(),
            returns: None,
            timeout: None,
            batch: None,
            cache: None,
            single_flight: None,
            limit: None,
            max_waiting: None,
            retry: None,
            hedge: None,
            attempt_timeout: None,
            chunk_timeout: None,
            max_answer: None,
            max_stream: None,
            stream_idle_timeout: None,
        }
    }

    /// Whether a call changes nothing at the backend.
    pub fn is_safe(&self) -> bool {
        self.safe.unwrap_or(self.method.is_safe())
    }

    /// Whether identical concurrent calls are sent as one request.
    pub fn uses_single_flight(&self) -> bool {
        self.single_flight.unwrap_or(self.cache.is_some())
    }

    /// Reads one operation.
    fn read(mut table: Table<'_, '_>, upstream_timeout: Duration, slashes: EscapedSlashes) -> Option<Operation> {
        let method = table.method("method").unwrap_or(Method::GET);
        let path = table
            .parsed("path", "a path such as \"/products/{id}\"", |text| check_template(text).map(|()| text.to_owned()));
        if !table.has("path") {
            table.missing("path", "write path = \"/...\"");
        }
        if let Some(path) = &path
            && let Err(problem) = check_segments(&path.value, slashes)
        {
            let help = if problem == UnsafeSegment::Slash {
                "; set `escaped_slashes` of the upstream to \"encode\""
            } else {
                ""
            };
            table.error("path", format_args!("{problem}, which backends read in different ways{help}"));
        }
        let params = table.items("params");
        let params = table.span_of("params").map(|_| {
            params
                .into_iter()
                .filter_map(|(name, item)| Some((name.value.clone(), Param::read(&name, item)?)))
                .collect()
        });
        let safe = table.boolean("safe");
        let ok = table.numbers("ok", 100..=599).unwrap_or_default();
        // The range above holds status codes only, all of them below 600.
        let ok = ok.into_iter().filter_map(|code| StatusCode::from_u16(code as u16).ok()).collect();
        let returns = table.json("returns").and_then(|shape| match Shape::read(&shape) {
            Ok(shape) => Some(Arc::new(shape)),
            Err(problem) => {
                table.error("returns", problem);
                None
            }
        });
        if returns.is_some() && method == Method::HEAD {
            table.error("returns", "describes a body, but the answer to a HEAD has none; remove it");
        }
        let timeout = table.duration("timeout");
        let longest = timeout.unwrap_or(upstream_timeout);
        let limit = table.count("limit", 1..=u64::MAX);
        let max_waiting = table.count("max_waiting", 0..=u64::MAX);
        if limit.is_none() && !table.has("limit") && table.has("max_waiting") {
            table.error(
                "max_waiting",
                "has no effect, because this operation has no `limit`; add one or remove this key",
            );
        }
        let retry = Retry::read_override(&mut table);
        let hedge = Hedge::read_override(&mut table, longest);
        let is_safe = safe.unwrap_or(method.is_safe());
        if hedge.flatten().is_some() && !is_safe {
            let message = format!("would send a {method} twice; if the call changes nothing, add `safe = true`");
            table.error("hedge", message);
        }
        let attempt_timeout = read_shorter_timeout(&mut table, "attempt_timeout", longest);
        let chunk_timeout = read_shorter_timeout(&mut table, "chunk_timeout", longest);
        let max_answer = table.size("max_answer", 1);
        let max_stream = table.size("max_stream", 1);
        let stream_idle_timeout = table.duration("stream_idle_timeout");
        let batch = table.table("batch").and_then(Batch::read);
        let cache = table.table("cache").and_then(Cache::read);
        let single_flight = table.boolean("single_flight");
        let operation = Operation {
            method,
            path: path.map(|path| path.value).unwrap_or_default(),
            params,
            safe,
            ok,
            returns,
            timeout,
            batch,
            cache,
            single_flight,
            limit,
            max_waiting,
            retry,
            hedge,
            attempt_timeout,
            chunk_timeout,
            max_answer,
            max_stream,
            stream_idle_timeout,
        };
        operation.check(&table, longest);
        let complete = !operation.path.is_empty();
        table.finish();
        complete.then_some(operation)
    }

    /// Checks across keys. `longest` is the longest time that a call may take.
    fn check(&self, table: &Table<'_, '_>, longest: Duration) {
        if !self.is_safe() {
            for key in ["batch", "cache", "single_flight"] {
                if table.has(key) && (key != "single_flight" || self.uses_single_flight()) {
                    table.error(key, "is only for calls that change nothing; if this is one, set safe = true");
                }
            }
        }
        if let Some(params) = &self.params {
            self.check_params(table, params);
        }
        if let Some(batch) = &self.batch {
            self.check_batch(table, batch, longest);
        }
    }

    fn in_path(&self, name: &str) -> bool {
        self.path.contains(&format!("{{{name}}}"))
    }

    fn check_params(&self, table: &Table<'_, '_>, params: &IndexMap<String, Param>) {
        for name in placeholders(&self.path) {
            match params.get(name) {
                None => {
                    table.error("path", format_args!("contains {{{name}}}, which is not in `params`; add it there"))
                }
                Some(param) if param.kind.base == ParamType::List => {
                    table.error("path", format_args!("contains {{{name}}}, which is a list; use a string or a number"));
                }
                Some(param) if param.kind.optional => {
                    table.error(
                        "path",
                        format_args!("contains {{{name}}}, which is optional; remove the `?` of its type"),
                    );
                }
                Some(_) => {}
            }
        }
        let has_body = params.iter().any(|(name, param)| param.location == ParamLocation::Json && !self.in_path(name));
        if has_body && matches!(self.method, Method::GET | Method::HEAD) {
            table.error(
                "params",
                format_args!("`in = \"json\"` needs a body, but a {} has none; change `method` or `in`", self.method),
            );
        }
    }

    fn check_batch(&self, table: &Table<'_, '_>, batch: &Batch, longest: Duration) {
        if self.method == Method::HEAD {
            table.error("batch", "splits answers, but the answer to a HEAD has no body; use GET");
        }
        if batch.linger >= longest {
            table.error(
                "batch",
                format_args!("linger, {:?}, must be shorter than the timeout of the call, {longest:?}", batch.linger),
            );
        }
        for (what, name) in [("key", Some(&batch.key)), ("fields", batch.fields.as_ref())] {
            let Some(name) = name else { continue };
            if self.in_path(name) {
                table.error(
                    "batch",
                    format_args!(
                        "{what} = \"{name}\" is in the path, but all calls of a batch share one path; put it into the query"
                    ),
                );
            }
            match self.params.as_ref().map(|params| params.get(name)) {
                Some(None) => {
                    table.error("batch", format_args!("{what} = \"{name}\" is not in `params`; add it there"))
                }
                Some(Some(param)) if !matches!(param.kind.base, ParamType::List | ParamType::Any) => {
                    table.error(
                        "batch",
                        format_args!("{what} = \"{name}\" must have the type \"list\" or \"any\" in `params`"),
                    );
                }
                Some(Some(param)) if param.location == ParamLocation::Header => {
                    table.error("batch", format_args!("{what} = \"{name}\" must not be sent as a header"));
                }
                _ => {}
            }
        }
    }

    /// Reads all operations of an upstream.
    pub(super) fn read_all(
        upstream: &mut Table<'_, '_>,
        timeout: Duration,
        slashes: EscapedSlashes,
    ) -> IndexMap<String, Operation> {
        let tables = upstream.named_tables("operations").into_iter();
        tables
            .filter_map(|(name, table)| {
                if !is_identifier(&name.value) {
                    let message = format!("`{}` is not a valid name for an operation", name.value);
                    table.reader().error_hint(
                        &name.span,
                        message,
                        "use letters, digits and `_`; flows call it by this name",
                    );
                }
                Some((name.value, Operation::read(table, timeout, slashes)?))
            })
            .collect()
    }
}

/// The names in braces of a path template.
fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}
