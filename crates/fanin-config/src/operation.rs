//! `[upstreams.NAME.operations.NAME]`: named calls.

use std::time::Duration;

use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::table::Table;
use crate::{schema, text};

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
}

fn statuses<S: Serializer>(statuses: &[StatusCode], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(statuses.iter().map(StatusCode::as_u16))
}

impl Operation {
    /// Reads one; what is wrong is noted in its reader.
    pub(crate) fn read(mut table: Table<'_, '_>) -> Option<Operation> {
        let method = table.method("method").unwrap_or(Method::GET);
        let path = table.parsed("path", "a path such as \"/products/{id}\"", |text| {
            crate::route::check_template(text).map(|()| text.to_owned())
        });
        if table.at("path").is_none() {
            table.missing("path", "path = \"/...\"");
        }
        let safe = table.flag("safe");
        let ok = table.numbers("ok", 100..=599).unwrap_or_default();
        let timeout = table.duration("timeout");
        table.finish();
        // The range above holds status codes only, all of them below 600.
        let ok = ok.into_iter().filter_map(|code| StatusCode::from_u16(code as u16).ok()).collect();
        Some(Operation { method, path: path?.value, safe, ok, timeout })
    }
}
