//! `[response_headers]`: headers that every response gets, or must not have.

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Table, TableOrWord};
use crate::schema::types;
use crate::values::http::{FRAMING, header_name};
use crate::values::secret::is_secret;
use crate::values::serialize;

/// `[response_headers]`: rules for the headers of responses, errors included. A route can have its own `response_headers`, which replaces
/// all of this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderRules {
    /// Headers that responses get, in place of those of the flow with the same name: `{ "x-frame-options" = "DENY" }`.
    #[serde(serialize_with = "serialize::headers")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub set: HeaderMap,
    /// Headers of the flow that are not sent: `["x-powered-by"]`.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub remove: Vec<HeaderName>,
}

/// Headers that depend on the request. A fixed value would be wrong, and caches would give it to others.
const OF_THE_REQUEST: [&str; 3] = ["access-control-allow-origin", "content-encoding", "content-range"];

impl HeaderRules {
    /// Reads `[response_headers]`, or `response_headers` of a route.
    pub(crate) fn read(mut table: Table<'_, '_>) -> HeaderRules {
        let mut set = HeaderMap::new();
        for (name, text) in table.strings("set") {
            let read = settable(&name.value).and_then(|header| {
                if set.contains_key(&header) {
                    return Err(format!("`{header}` occurs twice; remove one"));
                }
                let problem =
                    |_| format!("the value of `{header}` contains characters that are not allowed in a header");
                let mut value = HeaderValue::from_str(&text.text).map_err(problem)?;
                // Keeps the value out of `/config`.
                value.set_sensitive(text.variable || is_secret(&header));
                set.insert(header, value);
                Ok(())
            });
            if let Err(problem) = read {
                table.reader().error(&name.span, format!("{}.set: {problem}", table.name()));
            }
        }
        let found = table.list("remove", "a header's name", false, removable).unwrap_or_default();
        let mut remove = Vec::new();
        for at in found {
            if set.contains_key(&at.value) {
                let message = format!("{}.remove: `{}` is set, too; remove one", table.name(), at.value);
                table.reader().error(&at.span, message);
            }
            remove.push(at.value);
        }
        if set.is_empty() && remove.is_empty() && !table.has("set") && !table.has("remove") {
            table.missing("set", "write set = { \"x-frame-options\" = \"DENY\" }, or remove the table");
        }
        table.finish();
        HeaderRules { set, remove }
    }

    /// Reads `response_headers` of a route. `default` are those of the file.
    pub(crate) fn of_route(table: &mut Table<'_, '_>, default: Option<&HeaderRules>) -> Option<HeaderRules> {
        match table.table_or_word(
            "response_headers",
            "a table such as { remove = [\"x-powered-by\"] }, or \"off\"",
            "off",
        ) {
            TableOrWord::Absent => default.cloned(),
            TableOrWord::Word => None,
            TableOrWord::Table(table) => Some(HeaderRules::read(table)),
        }
    }
}

fn settable(text: &str) -> Result<HeaderName, String> {
    let header = removable(text)?;
    match OF_THE_REQUEST.contains(&header.as_str()) {
        true => Err(format!("`{header}` depends on the request and cannot have a fixed value; remove it")),
        false => Ok(header),
    }
}

fn removable(text: &str) -> Result<HeaderName, String> {
    let header = header_name(text)?;
    match FRAMING.contains(&header.as_str()) || header == http::header::DATE {
        true => Err(format!("`{header}` is set by Fanin; remove it")),
        false => Ok(header),
    }
}
