//! `[upstreams.NAME.operations.NAME]`: named calls.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, StatusCode};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::merge::{Batch, Cache};
use crate::param::{Param, ParamLocation, ParamType};
use crate::policy::{read_operation_hedge, read_operation_retry, read_part};
use crate::table::Table;
use crate::{Hedge, Retry, schema, text};

/// `[upstreams.NAME.operations.NAME]`: a named call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// HTTP method.
    #[serde(serialize_with = "text::display")]
    #[schemars(with = "schema::MethodText")]
    pub method: Method,
    /// Path template; `{name}` is filled, percent-encoded, from the call's parameter of that name.
    #[schemars(with = "schema::PathTemplate")]
    pub path: String,
    /// What a call is told, by name and in this order: its types are checked, and no other is taken. Without it, whatever a
    /// call names fills the path or goes into the query.
    #[serde(serialize_with = "text::optional_named", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, schema::Or<schema::ParamTypeText, Param>>")]
    pub params: Option<IndexMap<String, Param>>,
    /// Whether the call changes nothing at the backend. Default: true for GET and HEAD, false for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Flag")]
    pub safe: Option<bool>,
    /// Statuses that are answers although they are not 2xx.
    #[serde(serialize_with = "statuses")]
    #[schemars(with = "Vec<schema::Count<100, 599>>")]
    pub ok: Vec<StatusCode>,
    /// How long the call may take. Default: the upstream's `timeout`.
    #[serde(serialize_with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DurationText")]
    pub timeout: Option<Duration>,
    /// Calls that look up different keys merge into one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Batch")]
    pub batch: Option<Batch>,
    /// Answers are used again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cache")]
    pub cache: Option<Cache>,
    /// Whether identical calls, of whatever requests, that are in flight at the same time share one. Default: true with
    /// `cache`, otherwise false: such an answer may have been made before the second call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Flag")]
    pub single_flight: Option<bool>,
    /// Calls of this operation in flight, over all workers, besides the upstream's `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Count<1>")]
    pub limit: Option<usize>,
    /// Calls that may wait for a place below this operation's `limit`. Default: the upstream's `max_waiting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Count<0>")]
    pub max_waiting: Option<usize>,
    /// Second tries of failed calls, in place of the upstream's `retry`; `"off"` makes none. Its budget is drawn on together
    /// with the upstream's other calls.
    #[serde(serialize_with = "overridden", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Or<Retry, schema::Off>")]
    pub retry: Option<Option<Retry>>,
    /// When a second request is sent beside a slow first one, in place of the upstream's `hedge`. Only where the call changes
    /// nothing.
    #[serde(serialize_with = "overridden", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::HedgeText")]
    pub hedge: Option<Option<Hedge>>,
    /// How long one try of the call may take, in place of the upstream's `attempt_timeout`.
    #[serde(serialize_with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DurationText")]
    pub attempt_timeout: Option<Duration>,
    /// How long the next part of the answer's body may take, in place of the upstream's `chunk_timeout`.
    #[serde(serialize_with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DurationText")]
    pub chunk_timeout: Option<Duration>,
    /// Bytes of the answer's body, in place of the upstream's `max_answer`.
    #[serde(serialize_with = "optional_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Size<1>")]
    pub max_answer: Option<usize>,
}

fn overridden<T: Serialize, S: Serializer>(value: &Option<Option<T>>, to: S) -> Result<S::Ok, S::Error> {
    text::table_or_off(value.as_ref().unwrap_or(&None), to)
}

fn optional_size<S: Serializer>(value: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => text::size(value, to),
        None => to.serialize_none(),
    }
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
        }
    }

    /// Whether a call of it changes nothing.
    pub fn is_safe(&self) -> bool {
        self.safe.unwrap_or(self.method.is_safe())
    }

    /// Whether identical calls in flight share one.
    pub fn uses_single_flight(&self) -> bool {
        self.single_flight.unwrap_or(self.cache.is_some())
    }

    /// Reads one; what is wrong is noted in its reader.
    pub(crate) fn read(mut table: Table<'_, '_>, upstream_timeout: Duration) -> Option<Operation> {
        let method = table.method("method").unwrap_or(Method::GET);
        let path = table.parsed("path", "a path such as \"/products/{id}\"", |text| {
            crate::route::check_template(text).map(|()| text.to_owned())
        });
        if table.at("path").is_none() {
            table.missing("path", "path = \"/...\"");
        }
        let params = table.items("params");
        let params = table.at("params").map(|_| {
            params
                .into_iter()
                .filter_map(|(name, item)| Some((name.value.clone(), Param::read(&name, item)?)))
                .collect()
        });
        let safe = table.flag("safe");
        let ok = table.numbers("ok", 100..=599).unwrap_or_default();
        // The range above holds status codes only, all of them below 600.
        let ok = ok.into_iter().filter_map(|code| StatusCode::from_u16(code as u16).ok()).collect();
        let timeout = table.duration("timeout");
        let longest = timeout.unwrap_or(upstream_timeout);
        let limit = table.count("limit", 1..=u64::MAX);
        let max_waiting = table.count("max_waiting", 0..=u64::MAX);
        if limit.is_none() && table.at("limit").is_none() && table.at("max_waiting").is_some() {
            table
                .error("max_waiting", "is about waiting for a place below a `limit` of this operation, which has none");
        }
        let retry = read_operation_retry(&mut table);
        let hedge = read_operation_hedge(&mut table, longest);
        let is_safe = safe.unwrap_or(method.is_safe());
        if hedge.flatten().is_some() && !is_safe {
            let message =
                format!("sends a {method} twice, and nothing says that it changes nothing; add `safe = true` if so");
            table.error("hedge", message);
        }
        let attempt_timeout = read_part(&mut table, "attempt_timeout", longest);
        let chunk_timeout = read_part(&mut table, "chunk_timeout", longest);
        let max_answer = table.size("max_answer", 1);
        let batch = table.table("batch").and_then(Batch::read);
        let cache = table.table("cache").and_then(Cache::read);
        let single_flight = table.flag("single_flight");
        let operation = Operation {
            method,
            path: path.map(|path| path.value).unwrap_or_default(),
            params,
            safe,
            ok,
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
        };
        operation.check(&table, longest);
        let complete = !operation.path.is_empty();
        table.finish();
        complete.then_some(operation)
    }

    /// What contradicts what. `longest` is what a call may take.
    fn check(&self, table: &Table<'_, '_>, longest: Duration) {
        if !self.is_safe() {
            for key in ["batch", "cache", "single_flight"] {
                if table.at(key).is_some() && (key != "single_flight" || self.uses_single_flight()) {
                    table.error(key, "needs calls that change nothing; set safe = true if that is so");
                }
            }
        }
        let in_path = |name: &str| self.path.contains(&format!("{{{name}}}"));
        if let Some(params) = &self.params {
            for name in placeholders(&self.path) {
                match params.get(name) {
                    None => table.error("path", format_args!("names {{{name}}}, which is not among params")),
                    Some(param) if param.kind.base == ParamType::List => {
                        table.error("path", format_args!("cannot hold {{{name}}}, which is a list"));
                    }
                    Some(param) if param.kind.optional => {
                        table.error("path", format_args!("needs {{{name}}}, which may be left out"));
                    }
                    Some(_) => {}
                }
            }
            let has_body = params.iter().any(|(name, param)| param.location == ParamLocation::Json && !in_path(name));
            if has_body && matches!(self.method, Method::GET | Method::HEAD) {
                table.error("params", format_args!("a {} has no body for `in = \"json\"`", self.method));
            }
        }
        let Some(batch) = &self.batch else { return };
        if self.method == Method::HEAD {
            table.error("batch", "takes answers apart, and the answer to a HEAD has no items");
        }
        if batch.linger >= longest {
            table.error(
                "batch",
                format_args!("linger is {:?}, and all that a call may take is {longest:?}", batch.linger),
            );
        }
        for (what, name) in [("key", Some(&batch.key)), ("fields", batch.fields.as_ref())] {
            let Some(name) = name else { continue };
            if in_path(name) {
                table.error(
                    "batch",
                    format_args!(
                        "{what} = \"{name}\" is a part of the path, which is the same for all calls of a batch"
                    ),
                );
            }
            match self.params.as_ref().map(|params| params.get(name)) {
                Some(None) => table.error("batch", format_args!("{what} = \"{name}\" is not among params")),
                Some(Some(param)) if !matches!(param.kind.base, ParamType::List | ParamType::Any) => {
                    table.error("batch", format_args!("{what} = \"{name}\" must be a list in params"));
                }
                Some(Some(param)) if param.location == ParamLocation::Header => {
                    table.error("batch", format_args!("{what} = \"{name}\" must not be a header"));
                }
                _ => {}
            }
        }
    }
}

/// Names between braces.
fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}
