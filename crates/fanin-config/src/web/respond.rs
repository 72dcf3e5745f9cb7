//! `respond` of a route: a response without a flow.

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::reader::Table;
use crate::schema::types;
use crate::values::http::{FRAMING, header_name};
use crate::values::serialize;

/// `respond` of a route: a response that is always the same.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// Status of the response.
    #[serde(serialize_with = "number")]
    #[schemars(with = "types::Count<200, 599>")]
    pub status: StatusCode,
    /// The body as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub text: Option<String>,
    /// The body as JSON: any value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Anything")]
    pub json: Option<serde_json::Value>,
    /// Headers: `{ content-type = "text/html" }`.
    #[serde(serialize_with = "serialize::headers")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub headers: HeaderMap,
}

fn number<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl Default for Respond {
    fn default() -> Respond {
        Respond { status: StatusCode::OK, text: None, json: None, headers: HeaderMap::new() }
    }
}

impl Respond {
    /// The body.
    pub fn body(&self) -> Vec<u8> {
        match (&self.text, &self.json) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(json)) => json.to_string().into_bytes(),
            (None, None) => Vec::new(),
        }
    }

    pub(crate) fn read(mut table: Table<'_, '_>) -> Respond {
        let status = table.number("status", 200..=599).and_then(|status| StatusCode::from_u16(status as u16).ok());
        let (text, json) = (table.string("text"), table.json("json"));
        if text.is_some() && json.is_some() {
            table.error("json", "cannot be combined with `text`; remove one of them");
        }
        let mut headers = HeaderMap::new();
        for (name, text) in table.strings("headers") {
            let read = header_name(&name.value).and_then(|header| {
                if FRAMING.contains(&header.as_str()) || header == http::header::DATE {
                    return Err(format!("`{header}` is set by Fanin; remove it"));
                }
                if header == LOCATION {
                    return Err("`location`: write redirect = { to = ... } in place of respond".to_owned());
                }
                let problem =
                    |_| format!("the value of `{header}` contains characters that are not allowed in a header");
                headers.insert(header.clone(), HeaderValue::from_str(&text.text).map_err(problem)?);
                Ok(())
            });
            if let Err(problem) = read {
                table.reader().error(&name.span, format!("{}.headers: {problem}", table.name()));
            }
        }
        let kind = match (&text, &json) {
            (Some(_), _) => Some("text/plain; charset=utf-8"),
            (None, Some(_)) => Some("application/json"),
            (None, None) => None,
        };
        if let Some(kind) = kind {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        }
        let status = status.unwrap_or(StatusCode::OK);
        if (text.is_some() || json.is_some()) && [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status) {
            table.error("status", format_args!("a response with status {} has no body", status.as_u16()));
        }
        table.finish();
        Respond { status, text, json, headers }
    }
}
