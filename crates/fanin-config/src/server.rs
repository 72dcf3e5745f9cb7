//! `[server]`: listeners, admission, timeouts, logs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::table::Table;
use crate::{MemoryBudget, Network, overload, schema, text};

/// `[server]`: where Fanin listens, how much it takes in, how long it waits for clients, what it logs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Addresses for clients, one or a list. Each worker listens on all of them with sockets of its own.
    #[serde(serialize_with = "text::list")]
    #[schemars(with = "schema::OneOrMore<schema::Address>")]
    pub listen: Vec<SocketAddr>,
    /// Address of the admin pages (`/health`, `/ready`, `/metrics`, `/config`, `/reload`, `/debug/heap`), or `"off"`. They have no
    /// password: keep them on loopback or on an inner network.
    #[serde(serialize_with = "text::or_off")]
    #[schemars(with = "schema::Or<schema::Address, schema::Off>")]
    pub admin: Option<SocketAddr>,
    /// Worker threads; 0 is one for each core that this process may use.
    #[schemars(with = "schema::Count<0, 1024>")]
    pub workers: usize,
    /// Certificate for TLS on `listen`; without it the listeners speak plain HTTP/1.1 and HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ServerTls")]
    pub tls: Option<ServerTls>,
    /// Requests in flight in the whole server. The excess waits; see `max_waiting`.
    #[schemars(with = "schema::Count<1>")]
    pub limit: usize,
    /// Requests that may wait for a place below `limit`. The next one is refused at once with 503.
    #[schemars(with = "schema::Count<0>")]
    pub max_waiting: usize,
    /// How long requests may wait in front of a worker that cannot keep up. Once as many requests came as were started, or
    /// more, for three to ten times as long, who would wait longer is refused with 503, the least important first; until
    /// then, as in a burst that is over sooner, each may wait ten times as long. It looks at this server's own work only,
    /// never at how long an upstream takes. `"off"`: requests wait as long as it takes.
    #[serde(serialize_with = "overload::duration_or_off")]
    #[schemars(with = "schema::Or<schema::DurationText, schema::Off>")]
    pub queueing: Option<Duration>,
    /// Memory that this process may use. From 85 % on, background requests are refused, from 90 % on low ones, from 94 % on
    /// normal ones, from 97 % on all. `"auto"`: what the cgroup allows, or else what the machine has; `"off"`: nothing is
    /// refused for it.
    #[schemars(with = "schema::MemoryText")]
    pub memory: MemoryBudget,
    /// Request header in which the peers of `trusted` say how important a request is: `critical`, `normal`, `low` or
    /// `background`. It wins over the route's `priority`. `"off"`: only the route says it.
    #[serde(serialize_with = "text::or_off")]
    #[schemars(with = "schema::Or<schema::Off, schema::Text>")]
    pub priority_header: Option<HeaderName>,
    /// Addresses and networks (`"10.0.0.0/8"`) whose `priority_header` is believed. The header of others is ignored.
    #[serde(serialize_with = "text::list")]
    #[schemars(with = "Vec<schema::NetworkText>")]
    pub trusted: Vec<Network>,
    /// Open client connections. The excess is closed at once.
    #[schemars(with = "schema::Count<1>")]
    pub max_connections: usize,
    /// How long a client may take to send a request's head, from its first byte.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub idle_timeout: Duration,
    /// How long a client may take to send a request's body.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub body_timeout: Duration,
    /// How long running requests get to end after SIGTERM.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub drain_timeout: Duration,
    /// Bytes of a request's head: request line and headers. The excess is answered 431.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<1024>")]
    pub max_header_size: usize,
    /// Bytes of a request's body, where its route does not say otherwise. The excess is answered 413.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<0>")]
    pub max_body: usize,
    /// Request header in which trusted clients send how many milliseconds they still wait; the deadline is then the
    /// earlier of that and the route's `timeout`. `"off"`: no client is trusted with it.
    #[serde(serialize_with = "text::or_off")]
    #[schemars(with = "schema::Or<schema::Off, schema::Text>")]
    pub timeout_header: Option<HeaderName>,
    /// Where the access log goes, one JSON object a line: `"stdout"`, `"off"`, or a file's path.
    #[schemars(with = "schema::Or<schema::Text, schema::Off>")]
    pub access_log: AccessLog,
    /// What the program logs to standard error: a level (`error`, `warn`, `info`, `debug`, `trace`) or directives as in
    /// `RUST_LOG`, which wins where set.
    pub log: String,
    /// A worker held longer than this by one piece of work is reported, with the flow and line that held it.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub stall: Duration,
    /// Notes one in about so many allocated bytes, by the calls that led to it, until it is released, so that `/debug/heap` shows
    /// where memory went: `"512KiB"` costs little. Read at the start only. Without it there is no such page.
    #[serde(serialize_with = "text::optional_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::Size<1024>")]
    pub heap_profile: Option<usize>,
    /// Whether a changed file below the configuration's folder is loaded by itself. SIGHUP reloads in any case.
    #[schemars(with = "schema::Flag")]
    pub reload: bool,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))],
            admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))),
            workers: 0,
            tls: None,
            limit: 10_000,
            max_waiting: 1_000,
            queueing: Some(Duration::from_millis(10)),
            memory: MemoryBudget::Auto,
            priority_header: None,
            trusted: Vec::new(),
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            max_header_size: 32 << 10,
            max_body: 1 << 20,
            timeout_header: None,
            access_log: AccessLog::Stdout,
            log: "info".into(),
            stall: Duration::from_millis(20),
            heap_profile: None,
            reload: true,
        }
    }
}

/// `[server.tls]`: the server's certificate.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// PEM file with the certificate chain, the server's own first.
    #[serde(serialize_with = "text::path")]
    #[schemars(with = "String")]
    pub cert: PathBuf,
    /// PEM file with the private key.
    #[serde(serialize_with = "text::path")]
    #[schemars(with = "String")]
    pub key: PathBuf,
}

/// Where access log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to a file, which is opened again on SIGHUP.
    File(PathBuf),
}

impl Serialize for AccessLog {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            AccessLog::Off => to.serialize_str("off"),
            AccessLog::Stdout => to.serialize_str("stdout"),
            AccessLog::File(path) => to.collect_str(&path.display()),
        }
    }
}

/// Reads `[server]`.
pub(crate) fn read(mut table: Table<'_, '_>) -> Server {
    let default = Server::default();
    let listen = table.list("listen", "an address such as \"0.0.0.0:8080\"", true, address);
    if listen.as_ref().is_some_and(Vec::is_empty) && table.is_empty_list("listen") {
        table.error("listen", "is empty; the server needs an address");
    }
    let admin = table.parsed("admin", "an address or \"off\"", |text| match text {
        "off" => Ok(None),
        text => address(text).map(Some),
    });
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for at in listen.iter().flatten() {
        // Port 0 asks for any free port, so it may stand more than once.
        if at.value.port() != 0 && addresses.contains(&at.value) {
            table.reader().error(&at.span, format!("server.listen: {} is there twice", at.value));
        }
        addresses.push(at.value);
    }
    let listen = if listen.is_some() { addresses } else { default.listen };
    let admin = admin.map_or(default.admin, |at| at.value);
    if admin.is_some_and(|admin| admin.port() != 0 && listen.contains(&admin)) {
        let key = if table.at("admin").is_some() { "admin" } else { "listen" };
        table.error(key, "the admin pages need an address of their own, or `admin = \"off\"`");
    }
    let access_log = table.parsed("access_log", "\"stdout\", \"off\" or a file's path", |text| match text {
        "" => Err("is empty; write \"off\" for no access log".into()),
        "off" => Ok(AccessLog::Off),
        "stdout" => Ok(AccessLog::Stdout),
        path => Ok(AccessLog::File(path.into())),
    });
    let access_log = match access_log.map(|at| at.value) {
        Some(AccessLog::File(path)) => AccessLog::File(table.reader().dir().join(path)),
        Some(other) => other,
        None => default.access_log,
    };
    let priority_header = table.header("priority_header").unwrap_or(default.priority_header);
    let trusted = table.list("trusted", "an address or a network such as \"10.0.0.0/8\"", false, str::parse);
    let trusted: Vec<Network> = trusted.into_iter().flatten().map(|network| network.value).collect();
    match (&priority_header, trusted.is_empty(), table.at("trusted").is_some()) {
        (Some(_), true, false) => {
            table.error(
                "priority_header",
                "is believed of nobody; name the addresses of those who may send it in `trusted`",
            );
        }
        (None, false, _) => {
            table.warning("trusted", "is of no use", "it says whose `priority_header` is believed; name that header");
        }
        _ => {}
    }
    let server = Server {
        listen,
        admin,
        workers: table.count("workers", 0..=1024).unwrap_or(default.workers),
        tls: table.table("tls").and_then(ServerTls::read),
        limit: table.count("limit", 1..=u64::MAX).unwrap_or(default.limit),
        max_waiting: table.count("max_waiting", 0..=u64::MAX).unwrap_or(default.max_waiting),
        queueing: overload::read_duration_or_off(&mut table, "queueing").unwrap_or(default.queueing),
        memory: overload::read_memory(&mut table).unwrap_or(default.memory),
        priority_header,
        trusted,
        max_connections: table.count("max_connections", 1..=u64::MAX).unwrap_or(default.max_connections),
        header_timeout: table.duration("header_timeout").unwrap_or(default.header_timeout),
        idle_timeout: table.duration("idle_timeout").unwrap_or(default.idle_timeout),
        body_timeout: table.duration("body_timeout").unwrap_or(default.body_timeout),
        drain_timeout: table.duration("drain_timeout").unwrap_or(default.drain_timeout),
        max_header_size: table.size("max_header_size", 1024).unwrap_or(default.max_header_size),
        max_body: table.size("max_body", 0).unwrap_or(default.max_body),
        timeout_header: table.header("timeout_header").unwrap_or(default.timeout_header),
        access_log,
        log: table.text("log").unwrap_or(default.log),
        stall: table.duration("stall").unwrap_or(default.stall),
        heap_profile: table.size("heap_profile", 1024),
        reload: table.flag("reload").unwrap_or(default.reload),
    };
    table.finish();
    server
}

pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => {
            format!("`{text}` is not an address; write an IP address and a port, such as \"0.0.0.0:{port}\"")
        }
        _ => format!("`{text}` is not an address; write an IP address and a port, such as \"127.0.0.1:8080\""),
    })
}

impl ServerTls {
    fn read(mut table: Table<'_, '_>) -> Option<ServerTls> {
        let (cert, key) = (table.path("cert"), table.path("key"));
        for name in ["cert", "key"] {
            if table.at(name).is_none() {
                table.missing(name, "a PEM file's path");
            }
        }
        table.finish();
        Some(ServerTls { cert: cert?, key: key? })
    }
}
