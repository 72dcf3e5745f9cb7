//! `[request_headers]`: which headers of clients flows and upstreams see.

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::{Table, TableOrWord};
use crate::schema::types;
use crate::values::http::{FRAMING, REQUEST_ID_HEADERS, header_name};
use crate::values::secret::is_secret;
use crate::values::serialize;

/// `[request_headers]`: rules for the headers of requests, before flows and upstreams see them. Checks of clients (`auth`), CORS and
/// compression have seen the headers as they were sent. A route can have its own `request_headers`, which replaces all of this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestHeaderRules {
    /// Headers that requests get, in place of the client's: `{ x-from = "edge" }`.
    #[serde(serialize_with = "serialize::headers")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub set: HeaderMap,
    /// Headers of clients that flows and upstreams do not see: `["x-internal-user"]`.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub remove: Vec<HeaderName>,
    /// The only headers of clients that flows and upstreams see, besides those by which the server itself works (such as `host`, `accept`,
    /// `content-type`, `range`, conditions, traces and ids): `["accept-language", "authorization"]`. Without it, all of them.
    #[serde(serialize_with = "serialize::optional_list", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<types::Text>")]
    pub pass: Option<Vec<HeaderName>>,
}

/// Headers that `pass` need not name: routes would not work without them.
const ALWAYS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-type",
    "grpc-timeout",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "range",
    "traceparent",
    "tracestate",
];

impl RequestHeaderRules {
    /// Applies the rules to what a client has sent.
    pub fn apply(&self, headers: &mut HeaderMap) {
        if let Some(pass) = &self.pass {
            let hidden: Vec<HeaderName> = headers.keys().filter(|name| !passes(pass, name)).cloned().collect();
            for name in hidden {
                headers.remove(name);
            }
        }
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
    }

    /// Reads `[request_headers]`, or `request_headers` of a route.
    pub(crate) fn read(mut table: Table<'_, '_>) -> RequestHeaderRules {
        let mut set = HeaderMap::new();
        for (name, text) in table.strings("set") {
            let read = changeable(&name.value).and_then(|header| {
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
        let mut names = |key: &'static str, parse: fn(&str) -> Result<HeaderName, String>| {
            let found = table.list(key, "a header's name", false, parse)?;
            for at in found.iter().filter(|at| set.contains_key(&at.value)) {
                let message = format!("{}.{key}: `{}` is set, too; remove one", table.name(), at.value);
                table.reader().error(&at.span, message);
            }
            Some(found.into_iter().map(|at| at.value).collect::<Vec<HeaderName>>())
        };
        let remove = names("remove", changeable).unwrap_or_default();
        let pass = names("pass", header_name);
        if let Some(name) = pass.iter().flatten().find(|name| remove.contains(name)) {
            table.error("pass", format_args!("`{name}` is in `remove`, too; remove one"));
        }
        if set.is_empty() && remove.is_empty() && pass.is_none() && !table.has("set") && !table.has("remove") {
            table.missing("pass", "write pass = [\"accept-language\"], remove or set; or remove the table");
        }
        table.finish();
        RequestHeaderRules { set, remove, pass }
    }

    /// Reads `request_headers` of a route. `default` are those of the file.
    pub(crate) fn of_route(
        table: &mut Table<'_, '_>,
        default: Option<&RequestHeaderRules>,
    ) -> Option<RequestHeaderRules> {
        let what = "a table such as { remove = [\"x-internal-user\"] }, or \"off\"";
        match table.table_or_word("request_headers", what, "off") {
            TableOrWord::Absent => default.cloned(),
            TableOrWord::Word => None,
            TableOrWord::Table(table) => Some(RequestHeaderRules::read(table)),
        }
    }
}

fn passes(pass: &[HeaderName], name: &HeaderName) -> bool {
    let text = name.as_str();
    pass.contains(name)
        || ALWAYS.contains(&text)
        || FRAMING.contains(&text)
        || REQUEST_ID_HEADERS.contains(&text)
        || ["sec-websocket-", "connect-"].iter().any(|prefix| text.starts_with(prefix))
}

/// A header that does not belong to the connection.
fn changeable(text: &str) -> Result<HeaderName, String> {
    let header = header_name(text)?;
    match FRAMING.contains(&header.as_str()) {
        true => Err(format!("`{header}` belongs to the client's connection; remove it")),
        false => Ok(header),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_headers_pass_and_what_the_server_needs() {
        let mut headers = HeaderMap::new();
        for name in ["host", "accept", "x-request-id", "range", "sec-websocket-key", "cookie", "x-user", "x-seen"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("client"));
        }
        let of = |names: &[&'static str]| names.iter().map(|name| HeaderName::from_static(name)).collect::<Vec<_>>();
        let set = HeaderMap::from_iter([(HeaderName::from_static("x-user"), HeaderValue::from_static("edge"))]);
        let rules = RequestHeaderRules { set, remove: of(&["range"]), pass: Some(of(&["x-seen"])) };
        rules.apply(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "host", "sec-websocket-key", "x-request-id", "x-seen", "x-user"]);
        assert_eq!(headers["x-user"], "edge");
    }
}
