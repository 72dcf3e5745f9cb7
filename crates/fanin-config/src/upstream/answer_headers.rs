//! `answer_headers` of an upstream: which headers of its answers clients get.

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Serialize;

use crate::reader::Table;
use crate::schema::types;
use crate::values::http::{FRAMING, header_name};
use crate::values::secret::is_secret;
use crate::values::serialize;

/// `answer_headers` of an upstream: headers of an answer that a flow passes on, streamed or returned by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerHeaders {
    /// Headers that clients get, besides those that pass in any case: `["etag", "set-cookie"]`.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub pass: Vec<HeaderName>,
    /// Headers that clients do not get, although they would pass: `["cache-control"]`.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::Text>")]
    pub remove: Vec<HeaderName>,
    /// Headers that clients get in place of the upstream's: `{ cache-control = "private" }`.
    #[serde(serialize_with = "serialize::headers")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub set: HeaderMap,
}

/// Headers that say how the bytes of the body are to be read.
const OF_THE_BODY: [&str; 3] = ["content-encoding", "content-range", "content-type"];

impl AnswerHeaders {
    pub(super) fn read(mut table: Table<'_, '_>) -> AnswerHeaders {
        let mut set = HeaderMap::new();
        for (name, text) in table.strings("set") {
            let read = passable(&name.value).and_then(|header| {
                let problem =
                    |_| format!("the value of `{header}` contains characters that are not allowed in a header");
                let mut value = HeaderValue::from_str(&text.text).map_err(problem)?;
                value.set_sensitive(text.variable || is_secret(&header));
                set.insert(header, value);
                Ok(())
            });
            if let Err(problem) = read {
                table.reader().error(&name.span, format!("{}.set: {problem}", table.name()));
            }
        }
        let mut names = |key: &'static str| {
            let found = table.list(key, "a header's name", false, passable).unwrap_or_default();
            for at in found.iter().filter(|at| set.contains_key(&at.value)) {
                let message = format!("{}.{key}: `{}` is set, too; remove one", table.name(), at.value);
                table.reader().error(&at.span, message);
            }
            found.into_iter().map(|at| at.value).collect::<Vec<HeaderName>>()
        };
        let (pass, remove) = (names("pass"), names("remove"));
        if let Some(name) = pass.iter().find(|name| remove.contains(name)) {
            table.error("pass", format_args!("`{name}` is in `remove`, too; remove one"));
        }
        table.finish();
        AnswerHeaders { pass, remove, set }
    }
}

fn passable(text: &str) -> Result<HeaderName, String> {
    let header = header_name(text)?;
    if FRAMING.contains(&header.as_str()) || header == http::header::DATE {
        return Err(format!("`{header}` is set by Fanin; remove it"));
    }
    match OF_THE_BODY.contains(&header.as_str()) {
        true => Err(format!("`{header}` belongs to the body and always passes with it; remove it")),
        false => Ok(header),
    }
}
