//! Builds origins from an upstream's configuration: checks its URLs and prepares what transports need.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fanin_config::{HttpVersion, UpstreamKind};
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, Scheme};
use url::{Host, Url};

use super::files::{Folder, FolderData};
use super::http1;
use super::model::ModelName;
use super::sql::{Access, Mysql, Postgres, Server};
use super::tls::{self, Tls};
use crate::endpoint::{Origin, Target, TransportData};
use crate::error::BuildError;

/// The origins of an upstream's URLs.
///
/// # Errors
/// All mistakes, each with its key.
pub(crate) fn origins(config: &fanin_config::Upstream) -> Result<Vec<Arc<Origin>>, Vec<BuildError>> {
    let mut errors = Vec::new();
    if let Some(path) = &config.files {
        let folder = FolderData(Folder::new(path));
        return Ok(vec![Arc::new(local(config, Authority::from_static("files"), Box::new(folder)))]);
    }
    if let Some(model) = &config.model {
        let name = ModelName(model.as_str().into());
        return Ok(vec![Arc::new(local(config, Authority::from_static("model"), Box::new(name)))]);
    }
    let urls = config.endpoints();
    let mut origins = Vec::with_capacity(urls.len());
    let mut tls = None;
    if urls.is_empty() {
        errors.push(error(config, "url", "missing"));
    }
    for url in urls {
        match remote(config, url, &mut tls) {
            Ok(origin) => origins.push(Arc::new(origin)),
            Err((key, detail)) => errors.push(error(config, key, detail)),
        }
    }
    if errors.is_empty() { Ok(origins) } else { Err(errors) }
}

/// The origin of a folder or a model, which is always there. Its address is only shown in messages.
fn local(config: &fanin_config::Upstream, authority: Authority, data: Box<dyn TransportData>) -> Origin {
    Origin {
        target: Target::Address(SocketAddr::from(([0, 0, 0, 0], 0))),
        protocol: HttpVersion::Http1,
        scheme: Scheme::HTTP,
        authority,
        base_path: String::new(),
        tls: None,
        default_headers: HeaderMap::new(),
        header_lines: Vec::new(),
        kind: config.kind(),
        data: Some(data),
        connect_timeout: config.connect_timeout,
        idle_timeout: config.idle_timeout,
        max_connections: 1,
        max_connecting: 1,
        ping_interval: config.keepalive,
        ping_idle: config.keepalive_idle,
        pong_timeout: config.keepalive_timeout,
    }
}

fn remote(
    config: &fanin_config::Upstream,
    url: &Url,
    tls_config: &mut Option<Arc<rustls::ClientConfig>>,
) -> Result<Origin, (&'static str, String)> {
    let bad = |what: &str| ("url", format!("{}://{}: {what}", url.scheme(), url.host_str().unwrap_or_default()));
    let kind = config.kind();
    let (scheme, secure) = match url.scheme() {
        "http" => (Scheme::HTTP, false),
        "https" => (Scheme::HTTPS, true),
        _ if kind.is_sql() => (Scheme::HTTP, false),
        _ => return Err(bad("only http and https are supported")),
    };
    let usual = match kind {
        UpstreamKind::Postgres => Some(5432),
        UpstreamKind::Mysql => Some(3306),
        _ => None,
    };
    let port = url.port_or_known_default().or(usual).ok_or_else(|| bad("no port"))?;
    let target = match url.host().ok_or_else(|| bad("no host"))? {
        Host::Ipv4(ip) => Target::Address(SocketAddr::new(IpAddr::V4(ip), port)),
        Host::Ipv6(ip) => Target::Address(SocketAddr::new(IpAddr::V6(ip), port)),
        // The URL parser recognizes addresses only in URLs of HTTP.
        Host::Domain(name) => match name.parse() {
            Ok(ip) => Target::Address(SocketAddr::new(ip, port)),
            Err(_) => Target::Name(name.to_owned(), port),
        },
    };
    let access = || Access::new(config, url, url.host_str().unwrap_or_default());
    let data: Option<Box<dyn TransportData>> = match kind {
        UpstreamKind::Postgres => Some(Box::new(Server::<Postgres>::new(access()?))),
        UpstreamKind::Mysql => Some(Box::new(Server::<Mysql>::new(access()?))),
        _ => None,
    };
    let host = url.host_str().unwrap_or_default();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let host_header = HeaderValue::from_str(&authority).map_err(|_| bad("host cannot be sent"))?;
    let authority = Authority::try_from(authority).map_err(|_| bad("host cannot be sent"))?;
    let mut default_headers = HeaderMap::new();
    match config.http {
        HttpVersion::Http1 => {
            default_headers.insert(header::HOST, host_header);
        }
        HttpVersion::Http2 => {}
    }
    if !url.username().is_empty() || url.password().is_some() {
        default_headers
            .insert(header::AUTHORIZATION, basic(url).ok_or_else(|| bad("user name or password cannot be sent"))?);
    }
    for name in config.headers.keys() {
        if *name == header::HOST && config.http == HttpVersion::Http2 {
            continue;
        }
        default_headers.remove(name);
        for value in config.headers.get_all(name) {
            default_headers.append(name.clone(), value.clone());
        }
    }
    let tls = if secure {
        let settings = config.tls.as_ref();
        let client = match tls_config {
            Some(client) => client.clone(),
            None => tls_config.insert(tls::client_config(settings, config.http)?).clone(),
        };
        let name = settings.and_then(|tls| tls.server_name.as_deref());
        Some(Tls::new(client, name.unwrap_or(host.trim_matches(['[', ']'])), config.http)?)
    } else {
        None
    };
    Ok(Origin {
        target,
        protocol: config.http,
        scheme,
        authority,
        base_path: url.path().trim_end_matches('/').to_owned(),
        tls,
        header_lines: http1::header_lines(&default_headers),
        default_headers,
        kind,
        data,
        connect_timeout: config.connect_timeout,
        idle_timeout: config.idle_timeout,
        max_connections: config.max_connections.max(1),
        max_connecting: if kind.is_sql() { usize::MAX } else { config.max_connecting.max(1) },
        ping_interval: config.keepalive,
        ping_idle: config.keepalive_idle,
        pong_timeout: config.keepalive_timeout,
    })
}

fn error(config: &fanin_config::Upstream, key: &'static str, detail: impl Into<String>) -> BuildError {
    BuildError { upstream: config.name.clone(), key, detail: detail.into() }
}

/// `Authorization: Basic` of a URL's user name and password (RFC 7617).
fn basic(url: &Url) -> Option<HeaderValue> {
    let mut plain: Vec<u8> = percent_encoding::percent_decode_str(url.username()).collect();
    plain.push(b':');
    plain.extend(percent_encoding::percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(&plain))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> fanin_config::Upstream {
        fanin_config::Upstream::new("u", url.parse().unwrap())
    }

    #[test]
    fn a_url_becomes_host_base_path_and_authorization() {
        let found = origins(&config("http://user:p%40ss@catalog.internal:8080/api/")).unwrap();
        let origin = &found[0];
        assert_eq!(origin.target, Target::Name("catalog.internal".into(), 8080));
        assert_eq!(origin.base_path, "/api");
        assert_eq!(origin.default_headers[header::HOST], "catalog.internal:8080");
        assert_eq!(origin.default_headers[header::AUTHORIZATION], "Basic dXNlcjpwQHNz");
        let found = origins(&config("http://[::1]:80")).unwrap();
        assert_eq!(found[0].target, Target::Address("[::1]:80".parse().unwrap()));
        assert_eq!(found[0].default_headers[header::HOST], "[::1]");
    }

    #[test]
    fn mistakes_are_reported_with_upstream_and_key() {
        let mut config = config("https://a.internal");
        config.tls = Some(fanin_config::ClientTls { ca: Some("no/such.pem".into()), ..Default::default() });
        let errors = origins(&config).unwrap_err();
        assert_eq!(errors.len(), 1);
        let text = errors[0].to_string();
        assert!(text.starts_with("upstream u: tls.ca: no/such.pem: "), "{text}");
    }
}
