//! `redirect(location, status = 302, query = {}, hosts = [], cookies = [])`: sends the client elsewhere.
//!
//! A location that a client can choose is a way to lure others (an open redirect). So a location stays on this site, unless the flow names
//! the hosts that it may lead to.

use fanin_lang::value::view;
use fanin_lang::{Args, Argument, CallDiagnostic, Ctx, Failure, Kind, StaticCall, StaticValue, Stop, Value};
use http::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::call::text;
use crate::client_error::client_error;
use crate::flow_host::FlowHost;
use crate::response_object::ResponseObject;

/// The longest location.
const LONGEST: usize = 8 << 10;
/// What a location cannot have as it is. Escapes that are there already stay.
const UNSENT: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`').add(b'{').add(b'}').add(b'|').add(b'^');

/// Why a location is refused, and what would help.
type Refused = (String, Option<&'static str>);

const NAME_HOSTS: &str = "name the hosts that it may lead to: hosts = [\"accounts.example.com\"]";

/// Checks a location, and writes it with the characters that a header can have.
fn checked(location: &str, hosts: &[String]) -> Result<String, Refused> {
    let wrong = |what: &str| Err((format!("redirect(): the location {location:?} {what}"), None));
    if location.len() > LONGEST {
        return Err((format!("redirect(): the location has more than {LONGEST} bytes"), None));
    }
    if location.chars().any(char::is_control) {
        return wrong("has a control character");
    }
    if location.contains('\\') {
        // Browsers take it for a slash.
        return wrong("has a backslash");
    }
    let encoded = || utf8_percent_encode(location, UNSENT).to_string();
    if location.starts_with("//") {
        return Err((
            format!("redirect(): the location {location:?} begins with two slashes, which name a host"),
            Some("write one slash for a path, or the whole URL and its host into hosts"),
        ));
    }
    if location.starts_with(['/', '?']) {
        return Ok(encoded());
    }
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|scheme| location.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let Some(scheme) = scheme else {
        return wrong("is neither a path that begins with a slash nor a URL with https:// or http://");
    };
    let rest = &location[scheme.len()..];
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let host = match authority.rfind(':') {
        Some(colon) if !authority.ends_with(']') => &authority[..colon],
        _ => authority,
    };
    let host = host.to_ascii_lowercase();
    if host.is_empty() || authority.contains('@') || !authority.is_ascii() || authority.contains([' ', '%', '"', '<']) {
        return wrong("has no plain host");
    }
    let fits = |pattern: &String| {
        let pattern = pattern.to_ascii_lowercase();
        match pattern.strip_prefix('*') {
            Some("") => true,
            Some(domain) => domain.starts_with('.') && host.len() > domain.len() && host.ends_with(domain),
            None => pattern == host,
        }
    };
    if hosts.iter().any(fits) {
        return Ok(encoded());
    }
    let what = match hosts {
        [] => format!("redirect(): the location {location:?} leads to another host"),
        known => format!("redirect(): the host of {location:?} is none of {}", known.join(", ")),
    };
    Err((what, Some(NAME_HOSTS)))
}

pub(crate) fn redirect(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let names = ["location", "status", "query", "hosts", "cookies"];
    let [location, status, query, hosts, cookies] = args.bind("redirect", false, names, 1)?;
    let wrong = |what: &str| Stop::fail(Kind::Arguments, format!("redirect()'s {what}"));
    let location = location.map(Value::decide).transpose()?.unwrap_or_default();
    let Some(mut location) = text(&location).filter(|_| !matches!(location, Value::Bool(_))).map(|it| it.into_owned())
    else {
        return Err(wrong("location must be a string"));
    };
    let status = match status.map(Value::decide).transpose()? {
        None | Some(Value::None) => StatusCode::FOUND,
        Some(Value::Int(301)) => StatusCode::MOVED_PERMANENTLY,
        Some(Value::Int(302)) => StatusCode::FOUND,
        Some(Value::Int(303)) => StatusCode::SEE_OTHER,
        Some(Value::Int(307)) => StatusCode::TEMPORARY_REDIRECT,
        Some(Value::Int(308)) => StatusCode::PERMANENT_REDIRECT,
        Some(_) => return Err(wrong("status must be 301, 302, 303, 307 or 308")),
    };
    let mut allowed = Vec::new();
    if let Some(hosts) = hosts.map(Value::decide).transpose()?.filter(|hosts| !matches!(hosts, Value::None)) {
        if !matches!(hosts, Value::List(_) | Value::Tuple(_)) {
            return Err(wrong("hosts must be a list of names"));
        }
        for host in view::elements(&hosts)? {
            allowed.push(host.decide()?.as_str().map(str::to_owned).ok_or_else(|| wrong("hosts must be names"))?);
        }
    }
    let checked_location = checked(&location, &allowed);
    if let Err((what, hint)) = checked_location {
        let host = ctx.host.as_any().downcast_mut::<FlowHost>();
        if host.is_some_and(|host| host.req.has_value(&location)) {
            return Err(client_error(what));
        }
        let failure = Failure::new(Kind::Value, what);
        return Err(match hint {
            Some(hint) => failure.with_hint(hint).into(),
            None => failure.into(),
        });
    }
    location = checked_location.unwrap_or_default();
    if let Some(query) = query.map(Value::decide).transpose()?.filter(|query| !matches!(query, Value::None)) {
        let entries = view::entries(&query).ok_or_else(|| wrong("query must be a dict"))?;
        location = with_query(location, &entries).ok_or_else(|| wrong("query must have strings or numbers"))?;
    }
    Ok(Value::object(ResponseObject {
        status: Some(status),
        headers: Value::record([("location", Value::str(&location))]),
        body: Value::None,
        text: None,
        is_empty: true,
        cookies: cookies.cloned().unwrap_or_default(),
        rpc: None,
    }))
}

/// Appends a query, before the fragment.
fn with_query(location: String, entries: &[(Value, Value)]) -> Option<String> {
    let mut encoded = form_urlencoded::Serializer::new(String::new());
    for (key, value) in entries {
        if matches!(value.decide(), Ok(Value::None)) {
            continue;
        }
        encoded.append_pair(&text(key)?, &text(value)?);
    }
    let encoded = encoded.finish();
    if encoded.is_empty() {
        return Some(location);
    }
    let (before, fragment) = match location.split_once('#') {
        Some((before, fragment)) => (before, format!("#{fragment}")),
        None => (&*location, String::new()),
    };
    let joint = if before.contains('?') { '&' } else { '?' };
    Some(format!("{before}{joint}{encoded}{fragment}"))
}

/// What is certainly wrong with a location that is written out.
pub(crate) fn check(call: &StaticCall<'_>) -> Vec<CallDiagnostic> {
    let mut found = Vec::new();
    for argument in [Argument::Named("location".to_owned()), Argument::Position(0)] {
        let Some(location) = (call.literal)(&argument) else { continue };
        let Some(location) = location.as_str() else { continue };
        let is_given = call.names.contains(&"hosts") || call.positional > 3;
        let hosts = match (call.shape)(&Argument::Named("hosts".to_owned())) {
            StaticValue::List(items) => items
                .iter()
                .map(|item| match item {
                    StaticValue::Literal(host) => host.as_str().map(str::to_owned),
                    _ => None,
                })
                .collect::<Option<Vec<String>>>(),
            // Only the flow knows them.
            _ if is_given || call.spread => None,
            _ => Some(Vec::new()),
        };
        let hosts = hosts.unwrap_or_else(|| vec!["*".to_owned()]);
        if let Err((message, hint)) = checked(location, &hosts) {
            let hint = hint.map(str::to_owned);
            found.push(CallDiagnostic { argument: Some(argument), name_is_wrong: false, message, hint });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_stays_here_unless_its_host_is_named() {
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (location, names, expected) in [
            ("/a/b?c=d#e", &[][..], "/a/b?c=d#e"),
            ("?page=2", &[], "?page=2"),
            ("/ü x", &[], "/%C3%BC%20x"),
            ("/a%20b", &[], "/a%20b"),
            ("https://Accounts.example:8443/x", &["accounts.example"], "https://Accounts.example:8443/x"),
            ("https://a.b.example", &["*.example"], "https://a.b.example"),
            ("http://any.example/", &["*"], "http://any.example/"),
        ] {
            assert_eq!(checked(location, &hosts(names)), Ok(expected.to_owned()), "{location}");
        }
        for (location, names) in [
            ("//evil.example", &["*"][..]),
            ("/\\evil.example", &["*"]),
            ("https://evil.example", &[]),
            ("https://evil.example", &["accounts.example", "*.accounts.example"]),
            ("https://accounts.example@evil.example/", &["accounts.example"]),
            ("https://accounts.example.evil.example/", &["accounts.example"]),
            ("https://badexample", &["*.example"]),
            ("javascript:alert(1)", &["*"]),
            ("data:text/html,x", &["*"]),
            ("evil", &["*"]),
            ("", &["*"]),
            ("https:///x", &["*"]),
            ("/a\r\nset-cookie: b=c", &["*"]),
            ("/a\tb", &["*"]),
        ] {
            assert!(checked(location, &hosts(names)).is_err(), "{location:?}");
        }
    }
}
