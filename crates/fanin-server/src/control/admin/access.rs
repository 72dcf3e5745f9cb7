//! Who may use the admin pages: the `Host` and `Origin` of browsers, and the bearer token.
//!
//! A page that a user visits can make the user's browser send requests to loopback. `Host` and `Origin` tell such requests from the
//! operator's: a browser sends the name that it looked up, and the page that it shows.

use std::hint::black_box;
use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::{Problem, Response, host};

/// Whether a page is for everybody who reaches the listener. It reveals and changes nothing but the state of the process.
pub(super) fn is_public(path: &str) -> bool {
    matches!(path, "/health" | "/ready")
}

/// Whether a page changes something, or shows more than numbers. The page of the dashboard itself shows nothing before it has data.
fn needs_token(path: &str) -> bool {
    matches!(path, "/config" | "/reload" | "/requests" | "/cache/purge")
        || path.starts_with("/debug/")
        || path.starts_with("/requests/")
        || path.starts_with("/dashboard/")
}

/// Checks a request.
///
/// # Errors
/// The response that refuses it.
pub(super) fn check(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    server: &fanin_config::Server,
) -> Result<(), Box<Response>> {
    if is_public(path) {
        return Ok(());
    }
    let host = host_of(headers).ok_or_else(|| refused("the request needs exactly one valid Host header"))?;
    let name = name_of(host);
    if !is_local(name) && !server.admin_hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Err(refused(
            "the Host is neither an IP address nor localhost; name it in `admin_hosts` of [server] if it is this server's",
        ));
    }
    let reads = *method == Method::GET || *method == Method::HEAD;
    if !reads && headers.get_all(ORIGIN).iter().any(|origin| !is_same(origin, host)) {
        return Err(refused("the Origin is another site"));
    }
    match &server.admin_token_file {
        Some(file) if needs_token(path) => check_token(headers, file),
        _ => Ok(()),
    }
}

fn check_token(headers: &HeaderMap, file: &std::path::Path) -> Result<(), Box<Response>> {
    // Read each time, so that a new token needs no reload. A file that cannot be read allows nobody.
    let token = std::fs::read(file).unwrap_or_else(|error| {
        tracing::error!(%error, "the token of the admin pages cannot be read");
        Vec::new()
    });
    let token = token.trim_ascii();
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let sent = match (given.next(), given.next()) {
        (Some(one), None) => bearer(one.as_bytes()),
        _ => None,
    };
    if !token.is_empty() && sent.is_some_and(|sent| same(sent, token)) {
        return Ok(());
    }
    let problem =
        Problem::new(StatusCode::UNAUTHORIZED, "token", "This page needs the bearer token of `admin_token_file`");
    let mut response = Response::from(problem);
    response.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(response))
}

/// The token of `Bearer TOKEN`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that depends on the lengths only.
fn same(sent: &[u8], token: &[u8]) -> bool {
    let different = sent.iter().zip(token).fold(0, |different, (a, b)| black_box(different | (a ^ b)));
    sent.len() == token.len() && different == 0
}

fn refused(detail: &'static str) -> Box<Response> {
    let title = "The request does not come from this server's operator";
    Box::new(Problem::new(StatusCode::FORBIDDEN, "foreign-request", title).detail(detail).into())
}

fn host_of(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none())?;
    host.to_str().ok().filter(|host| host::is_valid(host.as_bytes()))
}

/// The host without port and brackets.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or(address),
        None => host.split(':').next().unwrap_or(host),
    }
}

fn is_local(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Whether a page of this origin comes from this host and port.
fn is_same(origin: &HeaderValue, host: &str) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(
        method: Method,
        path: &str,
        headers: &[(&'static str, &'static str)],
        server: &fanin_config::Server,
    ) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        check(&method, path, &map, server).map_or_else(|response| response.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_known_hosts_and_no_foreign_origin() {
        let server = fanin_config::Server { admin_hosts: vec!["fanin.internal".into()], ..Default::default() };
        let get = |host| status(Method::GET, "/metrics", &[("host", host)], &server);
        for host in ["127.0.0.1:9090", "10.1.2.3", "[::1]:9090", "localhost", "LOCALHOST:1", "fanin.internal:80"] {
            assert_eq!(get(host), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9090", "127.0.0.1.evil.example", "a b", ""] {
            assert_eq!(get(host), 403, "{host}");
        }
        assert_eq!(status(Method::GET, "/metrics", &[], &server), 403);
        assert_eq!(status(Method::GET, "/metrics", &[("host", "localhost"), ("host", "localhost")], &server), 403);
        assert_eq!(status(Method::GET, "/ready", &[("host", "evil.example")], &server), 200);

        let post = |origin| status(Method::POST, "/reload", &[("host", "localhost:9090"), ("origin", origin)], &server);
        assert_eq!(post("http://localhost:9090"), 200);
        for origin in ["null", "http://evil.example", "http://localhost:9091", "http://localhost", "localhost:9090"] {
            assert_eq!(post(origin), 403, "{origin}");
        }
    }

    #[test]
    fn a_token_is_needed_for_what_changes_or_reveals() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        let server = fanin_config::Server { admin_token_file: Some(file.path().to_owned()), ..Default::default() };
        let get = |path, token| status(Method::GET, path, &[("host", "localhost"), ("authorization", token)], &server);
        for path in ["/config", "/reload", "/cache/purge", "/debug/heap", "/dashboard/data", "/dashboard/plans"] {
            assert_eq!(get(path, "Bearer s3cret"), 200, "{path}");
            assert_eq!(get(path, "bearer s3cret"), 200, "{path}");
            for token in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Bearer S3cret", "Basic s3cret"] {
                assert_eq!(get(path, token), 401, "{path} {token}");
            }
        }
        for path in ["/", "/metrics", "/health", "/ready", "/other", "/dashboard"] {
            assert_eq!(get(path, ""), 200, "{path}");
        }
        std::fs::write(file.path(), "\n").unwrap();
        assert_eq!(get("/config", "Bearer "), 401, "an empty token is none");
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(get("/config", "Bearer s3cret"), 401);
    }
}
