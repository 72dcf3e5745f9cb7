//! `redirect` of a route.

use http::StatusCode;
use schemars::{JsonSchema, json_schema};
use serde::{Serialize, Serializer};

use crate::reader::Table;
use crate::schema::types::{self, leaf, variable};

leaf!(
    /// A status of redirects.
    RedirectStatusText,
    json_schema!({ "anyOf": [{ "enum": [301, 302, 303, 307, 308] }, variable()], "x-type": "301, 302, 303, 307 or 308" })
);

/// `redirect` of a route: where clients find what they ask for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// A path, or a URL with `http` or `https`: `"https://new.example.com/{path}"`. `{name}` is a parameter of the route's path, and can stand
    /// behind the host only.
    #[schemars(with = "types::Text")]
    pub to: String,
    /// Status: 301 and 308 are kept by clients, 302 and 307 are not; 307 and 308 keep the method; 303 makes it GET.
    #[serde(serialize_with = "number")]
    #[schemars(with = "RedirectStatusText")]
    pub status: StatusCode,
    /// Appends the query of the request.
    #[schemars(with = "types::Flag")]
    pub keep_query: bool,
}

fn number<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl Redirect {
    /// A redirect with all defaults.
    pub fn new(to: impl Into<String>) -> Redirect {
        Redirect { to: to.into(), status: StatusCode::FOUND, keep_query: true }
    }

    /// Reads the table. `params` are the names in the route's path.
    pub(crate) fn read(mut table: Table<'_, '_>, params: &[&str]) -> Option<Redirect> {
        let to = table.parsed("to", "a path or a URL", |text| check(text, params).map(|()| text.to_owned()));
        if !table.has("to") {
            table.missing("to", "write to = \"https://new.example.com/{path}\", or a path");
        }
        let status = table.number("status", 301..=308).and_then(|status| match status {
            301 | 302 | 303 | 307 | 308 => StatusCode::from_u16(status as u16).ok(),
            other => {
                table.error("status", format_args!("{other} is no redirect; write 301, 302, 303, 307 or 308"));
                None
            }
        });
        let keep_query = table.boolean("keep_query").unwrap_or(true);
        table.finish();
        Some(Redirect { status: status.unwrap_or(StatusCode::FOUND), keep_query, ..Redirect::new(to?.value) })
    }
}

/// The part of a target that a client's values can be in: all behind the host.
fn behind_host(to: &str) -> Result<usize, String> {
    let Some(scheme) = ["https://", "http://"].into_iter().find(|scheme| to.starts_with(scheme)) else {
        if !to.starts_with('/') || to.starts_with("//") || to.starts_with("/{") && to.len() == 1 {
            return Err(format!("`{to}` must be a path such as \"/new\", or begin with https:// or http://"));
        }
        return Ok(1);
    };
    let rest = &to[scheme.len()..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if url::Url::parse(&to[..scheme.len() + end]).is_err() || rest[..end].contains('@') {
        return Err(format!("`{}` is no host", &rest[..end]));
    }
    // A value right behind the host would be a part of its name.
    Ok(scheme.len() + end + 1)
}

fn check(to: &str, params: &[&str]) -> Result<(), String> {
    if let Some(bad) =
        to.chars().find(|char| char.is_whitespace() || char.is_control() || *char == '\\' || !char.is_ascii())
    {
        return Err(format!("`{to}` must not hold {bad:?}; write it percent-encoded"));
    }
    let begin = behind_host(to)?;
    let mut rest = to;
    let mut at = 0;
    while let Some(open) = rest.find(['{', '}']) {
        let close = rest[open..].find('}').filter(|_| rest[open..].starts_with('{'));
        let Some(close) = close else { return Err(format!("`{to}` has a brace without its partner")) };
        let name = &rest[open + 1..open + close];
        if at + open < begin {
            return Err(format!("{{{name}}} must stand behind the host: a client must not choose where it is sent"));
        }
        if !params.contains(&name) {
            return Err(match params {
                [] => format!("{{{name}}}: the route's path has no parameters"),
                known => format!("{{{name}}} is no parameter of the route's path; there is {}", known.join(", ")),
            });
        }
        at += open + close + 1;
        rest = &rest[open + close + 1..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_clients_stay_behind_the_host() {
        for to in
            ["/", "/new/{path}", "https://a.example", "https://a.example/{path}", "http://a:8080/x?y={path}", "/a#b"]
        {
            assert_eq!(check(to, &["path"]), Ok(()), "{to}");
        }
        for to in [
            "",
            "new",
            "//a.example/",
            "https://{path}/",
            "https://a.example{path}",
            "https://u@a.example/",
            "ftp://a/",
            "/{other}",
            "/{path",
            "/path}",
            "/a b",
            "/\\a",
            "/\u{e9}",
            "https:///",
            "/a\r\nb",
        ] {
            assert!(check(to, &["path"]).is_err(), "{to}");
        }
    }
}
