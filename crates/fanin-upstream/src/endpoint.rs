//! Endpoints: the instances of an upstream, found by the URLs of its configuration.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fanin_config::{HttpVersion, UpstreamKind};
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, Scheme};
use url::{Host, Url};

use crate::error::BuildError;
use crate::policy::choice::Load;
use crate::policy::outlier::Health;
use crate::transport::budget::Budget;
use crate::transport::files::Folder;
use crate::transport::http1;
use crate::transport::sql;
use crate::transport::sql::access::Access;
use crate::transport::sql::mysql::Mysql;
use crate::transport::sql::postgres::Postgres;
use crate::transport::tls::{self, Tls};

/// What all endpoints behind one URL have in common.
#[derive(Debug)]
pub(crate) struct Origin {
    pub target: Target,
    pub protocol: HttpVersion,
    pub scheme: Scheme,
    pub authority: Authority,
    /// The URL's path without a final slash; put before every call's path.
    pub base_path: String,
    pub tls: Option<Tls>,
    /// Headers of every request: `host` and the configured ones.
    pub template: HeaderMap,
    /// The same as they stand in a request over HTTP/1.1.
    pub lines: Vec<u8>,
    pub backend: Backend,
    pub connect_timeout: Duration,
    pub idle_timeout: Duration,
    /// HTTP/1.1: in the process; HTTP/2: of each worker.
    pub max_connections: usize,
    pub max_connecting: usize,
    pub ping_every: Duration,
    /// Whether connections without calls are pinged too.
    pub ping_idle: bool,
    pub pong_within: Duration,
}

/// What a transport other than HTTP needs to know.
#[derive(Debug)]
pub(crate) enum Backend {
    Http,
    Grpc,
    Postgres(Access),
    Mysql(Access),
    Files(Arc<Folder>),
    /// The model's name.
    Model(Arc<str>),
}

impl Backend {
    /// Who to sign on as, for databases.
    pub fn access(&self) -> Option<&Access> {
        match self {
            Backend::Postgres(access) | Backend::Mysql(access) => Some(access),
            Backend::Http | Backend::Grpc | Backend::Files(_) | Backend::Model(_) => None,
        }
    }
}

/// Where a URL points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Address(SocketAddr),
    Name(String, u16),
}

impl Origin {
    /// The origins of an upstream's URLs, or everything that is wrong with them.
    pub fn all(config: &fanin_config::Upstream) -> Result<Vec<Arc<Origin>>, Vec<BuildError>> {
        let mut errors = Vec::new();
        if let Some(path) = &config.files {
            let backend = Backend::Files(Folder::new(path));
            return Ok(vec![Arc::new(Origin::here(config, Authority::from_static("files"), backend))]);
        }
        if let Some(model) = &config.model {
            let backend = Backend::Model(model.as_str().into());
            return Ok(vec![Arc::new(Origin::here(config, Authority::from_static("model"), backend))]);
        }
        let urls = config.endpoints();
        let mut origins = Vec::with_capacity(urls.len());
        let mut tls = None;
        if urls.is_empty() {
            errors.push(error(config, "url", "missing"));
        }
        for url in urls {
            match Origin::new(config, url, &mut tls) {
                Ok(origin) => origins.push(Arc::new(origin)),
                Err((key, detail)) => errors.push(error(config, key, detail)),
            }
        }
        if errors.is_empty() { Ok(origins) } else { Err(errors) }
    }

    /// A folder or a model is an endpoint that is always there; its address is shown in messages and never used.
    fn here(config: &fanin_config::Upstream, authority: Authority, backend: Backend) -> Origin {
        Origin {
            target: Target::Address(SocketAddr::from(([0, 0, 0, 0], 0))),
            protocol: HttpVersion::Http1,
            scheme: Scheme::HTTP,
            authority,
            base_path: String::new(),
            tls: None,
            template: HeaderMap::new(),
            lines: Vec::new(),
            backend,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            max_connections: 1,
            max_connecting: 1,
            ping_every: config.keepalive,
            ping_idle: config.keepalive_idle,
            pong_within: config.keepalive_timeout,
        }
    }

    fn new(
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
            // Only in URLs of HTTP are addresses told from names.
            Host::Domain(name) => match name.parse() {
                Ok(ip) => Target::Address(SocketAddr::new(ip, port)),
                Err(_) => Target::Name(name.to_owned(), port),
            },
        };
        let backend = match kind {
            UpstreamKind::Postgres => Backend::Postgres(Access::new(config, url, url.host_str().unwrap_or_default())?),
            UpstreamKind::Grpc => Backend::Grpc,
            UpstreamKind::Mysql => Backend::Mysql(Access::new(config, url, url.host_str().unwrap_or_default())?),
            _ => Backend::Http,
        };
        let host = url.host_str().unwrap_or_default();
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let host_header = HeaderValue::from_str(&authority).map_err(|_| bad("host cannot be sent"))?;
        let authority = Authority::try_from(authority).map_err(|_| bad("host cannot be sent"))?;
        let mut template = HeaderMap::new();
        match config.http {
            HttpVersion::Http1 => {
                template.insert(header::HOST, host_header);
            }
            HttpVersion::Http2 => {}
        }
        if !url.username().is_empty() || url.password().is_some() {
            template
                .insert(header::AUTHORIZATION, basic(url).ok_or_else(|| bad("user name or password cannot be sent"))?);
        }
        for name in config.headers.keys() {
            if *name == header::HOST && config.http == HttpVersion::Http2 {
                continue;
            }
            template.remove(name);
            for value in config.headers.get_all(name) {
                template.append(name.clone(), value.clone());
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
            lines: http1::lines(&template),
            template,
            backend,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            max_connections: config.max_connections.max(1),
            max_connecting: if kind.is_sql() { usize::MAX } else { config.max_connecting.max(1) },
            ping_every: config.keepalive,
            ping_idle: config.keepalive_idle,
            pong_within: config.keepalive_timeout,
        })
    }
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

/// What the workers share at an endpoint besides its [`Budget`].
#[derive(Debug)]
pub(crate) enum Shared {
    Nothing,
    Postgres(Arc<sql::Pool<Postgres>>),
    Mysql(Arc<sql::Pool<Mysql>>),
}

/// One instance of an upstream, known to the whole process.
pub(crate) struct Endpoint {
    /// Never used again, so that a worker's connections find the endpoint they belong to.
    pub id: u64,
    pub origin: Arc<Origin>,
    pub address: SocketAddr,
    pub budget: Arc<Budget>,
    pub shared: Shared,
    pub load: Load,
    pub health: Health,
    retired: AtomicBool,
    /// It has closed a connection because of too many pings.
    rarely: AtomicBool,
}

/// How often servers of gRPC's C core bear a ping, as they are without settings.
const RARELY: Duration = Duration::from_secs(300);

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint {} at {}", self.id, self.address)
    }
}

impl Endpoint {
    pub fn new(origin: Arc<Origin>, address: SocketAddr) -> Arc<Endpoint> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let shared = match &origin.backend {
            Backend::Http | Backend::Grpc | Backend::Files(_) | Backend::Model(_) => Shared::Nothing,
            Backend::Postgres(_) => Shared::Postgres(sql::Pool::new(origin.max_connections)),
            Backend::Mysql(_) => Shared::Mysql(sql::Pool::new(origin.max_connections)),
        };
        let max_open = match origin.protocol {
            HttpVersion::Http1 => origin.max_connections,
            HttpVersion::Http2 => usize::MAX,
        };
        Arc::new(Endpoint {
            id: NEXT.fetch_add(1, Relaxed),
            budget: Budget::new(max_open, origin.max_connecting),
            shared,
            address,
            origin,
            load: Load::default(),
            health: Health::default(),
            retired: AtomicBool::new(false),
            rarely: AtomicBool::new(false),
        })
    }

    /// The endpoint is not asked any more: connections are closed as they fall free.
    pub fn retire(&self) {
        self.retired.store(true, Relaxed);
        self.budget.wake_all();
        match &self.shared {
            Shared::Nothing => {}
            Shared::Postgres(pool) => pool.close_idle(None),
            Shared::Mysql(pool) => pool.close_idle(None),
        }
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// How often its HTTP/2 connections are pinged.
    pub fn ping_every(&self) -> Duration {
        match self.rarely.load(Relaxed) {
            true => self.origin.ping_every.max(RARELY),
            false => self.origin.ping_every,
        }
    }

    /// From now on it is pinged rarely. Whether that is new.
    pub fn ping_rarely(&self) -> bool {
        !self.rarely.swap(true, Relaxed)
    }

    /// Whether this is the endpoint of that origin at that address.
    pub fn is(&self, origin: &Arc<Origin>, address: SocketAddr) -> bool {
        self.address == address && Arc::ptr_eq(&self.origin, origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> fanin_config::Upstream {
        fanin_config::Upstream::new("u", url.parse().unwrap())
    }

    #[test]
    fn a_url_becomes_host_base_path_and_authorization() {
        let origins = Origin::all(&config("http://user:p%40ss@catalog.internal:8080/api/")).unwrap();
        let origin = &origins[0];
        assert_eq!(origin.target, Target::Name("catalog.internal".into(), 8080));
        assert_eq!(origin.base_path, "/api");
        assert_eq!(origin.template[header::HOST], "catalog.internal:8080");
        assert_eq!(origin.template[header::AUTHORIZATION], "Basic dXNlcjpwQHNz");
        let origins = Origin::all(&config("http://[::1]:80")).unwrap();
        assert_eq!(origins[0].target, Target::Address("[::1]:80".parse().unwrap()));
        assert_eq!(origins[0].template[header::HOST], "[::1]");
    }

    #[test]
    fn what_is_wrong_is_said_with_upstream_and_key() {
        let mut config = config("https://a.internal");
        config.tls = Some(fanin_config::ClientTls { ca: Some("no/such.pem".into()), ..Default::default() });
        let errors = Origin::all(&config).unwrap_err();
        assert_eq!(errors.len(), 1);
        let text = errors[0].to_string();
        assert!(text.starts_with("upstream u: tls.ca: no/such.pem: "), "{text}");
    }
}
