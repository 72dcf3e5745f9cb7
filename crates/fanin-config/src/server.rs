//! `[server]`: listeners, admission, timeouts, logs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::memory_budget::{self, MemoryBudget};
use crate::network::{Network, networks};
use crate::reader::Table;
use crate::request_id;
use crate::schema::types;
use crate::server_tls::ServerTls;
use crate::values::http::address;
use crate::values::serialize;

/// `[server]`: addresses, limits, timeouts, load shedding and logs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Addresses for clients, one or a list: `"0.0.0.0:8080"`. Each worker listens on all of them with its own
    /// sockets.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "types::OneOrMore<types::Address>")]
    pub listen: Vec<SocketAddr>,
    /// Address of the admin pages: `/health`, `/ready`, `/metrics`, `/config`, `/reload`, `/debug/heap`. Keep them on
    /// loopback or on an internal network, and see `admin_token_file`. `"off"` disables them.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Or<types::Address, types::Off>")]
    pub admin: Option<SocketAddr>,
    /// Address that serves `/health` and `/ready` and nothing else, for probes from outside. `admin` serves them too.
    /// `"off"`: none.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Or<types::Address, types::Off>")]
    pub probes: Option<SocketAddr>,
    /// File with the bearer token that `/config`, `/reload` and `/debug/heap` ask for. It is read anew for each
    /// request. Without it, whoever reaches `admin` may use them.
    #[serde(serialize_with = "serialize::optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub admin_token_file: Option<PathBuf>,
    /// Names by which clients may address the admin pages in `Host`, without a port: `["fanin.internal"]`. IP
    /// addresses and `localhost` are always allowed. Other names are refused, as a browser may be made to send them.
    #[schemars(with = "Vec<types::Text>")]
    pub admin_hosts: Vec<String>,
    /// Number of worker threads. `0` means one for each core that this process may use.
    #[schemars(with = "types::Count<0, 1024>")]
    pub workers: usize,
    /// Certificate for TLS on `listen`. Without it, the listeners speak plain HTTP/1.1 and HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ServerTls")]
    pub tls: Option<ServerTls>,
    /// Most requests in flight in the whole server. Further requests wait; see `max_waiting`.
    #[schemars(with = "types::Count<1>")]
    pub limit: usize,
    /// Most requests that may wait for a permit of `limit`. Further requests are refused at once with 503.
    #[schemars(with = "types::Count<0>")]
    pub max_waiting: usize,
    /// Longest queueing delay in front of a worker that is overloaded. Requests that would wait longer are refused
    /// with 503, those of the lowest priority first. A worker counts as overloaded when requests arrive at least as
    /// fast as it starts them, for three to ten times this duration. Until then, as in a short burst, a request may
    /// wait ten times this duration. Slow upstreams do not count, only this server's own work. `"off"` disables load
    /// shedding by delay.
    #[serde(serialize_with = "serialize::optional_duration_or_off")]
    #[schemars(with = "types::Or<types::DurationText, types::Off>")]
    pub queueing: Option<Duration>,
    /// Memory budget of this process. Above 85 % of it, background requests are refused, above 90 % low ones, above 94
    /// % normal ones, and above 97 % all. `"auto"`: the memory limit of the cgroup, or else the memory of the machine.
    /// `"off"`: no limit.
    #[schemars(with = "types::MemoryText")]
    pub memory: MemoryBudget,
    /// Request header that sets the priority of a request: `critical`, `normal`, `low` or `background`. It overrides
    /// the `priority` of the route. Only clients in `trusted` may use it. `"off"`: no header does.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Or<types::Off, types::Text>")]
    pub priority_header: Option<HeaderName>,
    /// Addresses and networks of load balancers and services that are believed: `["10.0.0.0/8"]`. It concerns
    /// `proxy_protocol`, `forwarded_header`, `priority_header` and `timeout_header`. The same header from others is
    /// ignored. They have no bounds per client.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::NetworkText>")]
    pub trusted: Vec<Network>,
    /// Addresses and networks of clients that may use any route: `["10.0.0.0/8"]`. Others get 403. An empty list: all may. A route
    /// can demand more.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::NetworkText>")]
    pub allow: Vec<Network>,
    /// Addresses and networks of clients that may use no route, even if `allow` names them.
    #[serde(serialize_with = "serialize::list")]
    #[schemars(with = "Vec<types::NetworkText>")]
    pub deny: Vec<Network>,
    /// Requires a PROXY header (version 1 or 2) on each connection from `trusted`. It names the client; `req.remote`
    /// and the access log then show that one. It must come within `header_timeout`. A connection without a valid one
    /// is closed. Connections from others have none.
    #[schemars(with = "types::Flag")]
    pub proxy_protocol: bool,
    /// Request header in which load balancers in `trusted` name the client: `"x-forwarded-for"`, `"forwarded"` (RFC
    /// 7239), or another one with a list of addresses. The client is the rightmost address that is not in `trusted`.
    /// `req.remote` and the access log then show that one. `"off"`: no header does.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Or<types::Off, types::Text>")]
    pub forwarded_header: Option<HeaderName>,
    /// Header for the id of a request: `"x-request-id"`, `"request-id"`, `"x-correlation-id"` or `"correlation-id"`. The id that a
    /// client in `trusted` sends there is kept; any other request gets a new one. Flows, upstreams, logs and the client get it. `"off"`: none.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Or<types::Off, types::RequestIdText>")]
    pub request_id: Option<HeaderName>,
    /// Most open client connections. A further client gets 503 with the reason `max-connections`, and is disconnected.
    #[schemars(with = "types::Count<1>")]
    pub max_connections: usize,
    /// Most open connections of one client. Further ones are closed. A client is an IPv4 address or an IPv6 network of 64
    /// bits. Loopback and `trusted` have no such bound. Default: a quarter of `max_connections`. `"off"`: no bound.
    #[serde(serialize_with = "serialize::count_or_off")]
    #[schemars(with = "types::Or<types::Count<1>, types::Off>")]
    pub max_connections_per_client: Option<usize>,
    /// Most TLS handshakes of one client at a time. Further connections are closed. Loopback and `trusted` have no such
    /// bound. `"off"`: no bound.
    #[serde(serialize_with = "serialize::count_or_off")]
    #[schemars(with = "types::Or<types::Count<1>, types::Off>")]
    pub max_handshakes_per_client: Option<usize>,
    /// Most requests in progress of one client. Further ones are answered with 429. Behind a load balancer, the client is the
    /// one that `forwarded_header` or `proxy_protocol` names. Loopback and `trusted` have no such bound. `"off"`: no bound.
    #[serde(serialize_with = "serialize::count_or_off")]
    #[schemars(with = "types::Or<types::Count<1>, types::Off>")]
    pub max_in_progress_per_client: Option<usize>,
    /// Most HTTP/2 requests that a client may reset within ten seconds before it has their answers. Then its connection is
    /// closed with ENHANCE_YOUR_CALM, and its further HTTP/2 requests are answered with 429 until the ten seconds are over. For
    /// loopback it counts by connection; `trusted` has no such bound. `"off"`: no bound.
    #[serde(serialize_with = "serialize::count_or_off")]
    #[schemars(with = "types::Or<types::Count<1>, types::Off>")]
    pub max_resets_per_client: Option<usize>,
    /// How long a client may take to send the head of a request, from its first byte.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub idle_timeout: Duration,
    /// How long a client may take to send the body of a request. On a route with `stream_body`, how long it may be silent.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub body_timeout: Duration,
    /// How long a client may read a response slower than `min_read_rate` before its connection is closed. Answers to HTTP/2
    /// PING do not count as reading. `"off"`: for ever.
    #[serde(serialize_with = "serialize::optional_duration_or_off")]
    #[schemars(with = "types::Or<types::DurationText, types::Off>")]
    pub slow_reader_timeout: Option<Duration>,
    /// Bytes per second that a client must read of its responses, on average over `slow_reader_timeout`.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub min_read_rate: usize,
    /// How long a client may send the body of a request slower than `min_send_rate` before the request is answered with 408.
    /// Only the time counts in which the server waits for the client: an upstream that takes an upload slowly is not the
    /// client's fault. `"off"`: as long as `body_timeout` allows.
    #[serde(serialize_with = "serialize::optional_duration_or_off")]
    #[schemars(with = "types::Or<types::DurationText, types::Off>")]
    pub slow_sender_timeout: Option<Duration>,
    /// Bytes per second that a client must send of a request's body, on average over `slow_sender_timeout`.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub min_send_rate: usize,
    /// Most bytes of responses on one connection that the client has not read. Above it, further requests on this connection
    /// are refused with 503. A single response may be larger.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_unsent: usize,
    /// Most bytes of responses on all connections that clients have not read; each worker has an equal share. Above it, a
    /// connection gets no further response until its client has read the earlier ones, and `min_read_rate` is judged every
    /// second. Above twice as much, the connections with the most such bytes are closed.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1>")]
    pub max_unsent_total: usize,
    /// How long running requests may take to finish after SIGTERM.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub drain_timeout: Duration,
    /// Slashes and backslashes that are escaped in a request's path, `%2F` and `%5C`. `"refuse"`: such a request is answered
    /// with 400. `"keep"`: they are a part of their segment, and a path parameter has them decoded. `"decode"`: both become
    /// `/` before the route is found. A backslash that is not escaped counts like `%5C`.
    #[schemars(with = "types::RequestSlashesText")]
    pub escaped_slashes: RequestSlashes,
    /// Largest head of a request in bytes: request line and headers. A larger one is answered with 431, and so is one of more than
    /// 100 header lines.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<1024>")]
    pub max_header_size: usize,
    /// Largest body of a request in bytes. A larger one is answered with 413. A route can set its own.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<0>")]
    pub max_body: usize,
    /// Request header in which clients send how many milliseconds they still wait. The earlier of this and the route's
    /// `timeout` is the deadline. Clients can only shorten it. Only clients in `trusted` may
    /// use it. `"off"`: no header does.
    #[serde(serialize_with = "serialize::or_off")]
    #[schemars(with = "types::Or<types::Off, types::Text>")]
    pub timeout_header: Option<HeaderName>,
    /// Destination of the access log, one JSON object a line: `"stdout"`, a file's path, or `"off"`.
    #[schemars(with = "types::Or<types::Text, types::Off>")]
    pub access_log: AccessLog,
    /// Log level of messages on standard error: `error`, `warn`, `info`, `debug` or `trace`, or directives as in
    /// `RUST_LOG`. The environment variable `RUST_LOG` takes precedence.
    pub log: String,
    /// Format of the messages on standard error. `"text"`: an event begins with its time; its further lines begin with four
    /// spaces. `"json"`: one JSON object a line, for log collectors. Read at start only.
    #[schemars(with = "types::LogFormatText")]
    pub log_format: LogFormat,
    /// The watchdog reports a worker that one piece of work occupies for longer than this. The report names the flow
    /// and line.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub stall: Duration,
    /// Enables the heap profile at `/debug/heap`, which shows what the memory is used for. One allocation is sampled
    /// for about every so many bytes; `"512KiB"` costs little. It is read at start only.
    #[serde(serialize_with = "serialize::optional_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Size<1024>")]
    pub heap_profile: Option<usize>,
    /// Reloads the configuration when a file in its folder changes. SIGHUP reloads in any case.
    #[schemars(with = "types::Flag")]
    pub reload: bool,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))],
            admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))),
            probes: None,
            admin_token_file: None,
            admin_hosts: Vec::new(),
            workers: 0,
            tls: None,
            limit: 10_000,
            max_waiting: 1_000,
            queueing: Some(Duration::from_millis(10)),
            memory: MemoryBudget::Auto,
            priority_header: None,
            trusted: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            proxy_protocol: false,
            forwarded_header: None,
            request_id: None,
            max_connections: 10_000,
            max_connections_per_client: Some(share_of(10_000)),
            max_handshakes_per_client: Some(256),
            max_in_progress_per_client: None,
            max_resets_per_client: Some(1_000),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(10),
            slow_reader_timeout: Some(Duration::from_secs(10)),
            min_read_rate: 512,
            slow_sender_timeout: Some(Duration::from_secs(10)),
            min_send_rate: 512,
            max_unsent: 32 << 20,
            max_unsent_total: 256 << 20,
            drain_timeout: Duration::from_secs(30),
            escaped_slashes: RequestSlashes::Refuse,
            max_header_size: 32 << 10,
            max_body: 1 << 20,
            timeout_header: None,
            access_log: AccessLog::Stdout,
            log: "info".into(),
            log_format: LogFormat::Text,
            stall: Duration::from_millis(20),
            heap_profile: None,
            reload: true,
        }
    }
}

/// What becomes of escaped slashes in a request's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestSlashes {
    /// The request is refused: once decoded, they look like the slashes that separate segments.
    #[default]
    Refuse,
    /// They are a part of their segment.
    Keep,
    /// They separate segments.
    Decode,
}

/// How messages on standard error are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For log collectors: one object a line.
    Json,
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

/// How many of `max_connections` one client may have by default.
fn share_of(max_connections: usize) -> usize {
    (max_connections / 4).max(1)
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
            table.reader().error(&at.span, format!("server.listen: {} occurs twice; remove one", at.value));
        }
        addresses.push(at.value);
    }
    let listen = if listen.is_some() { addresses } else { default.listen };
    let admin = admin.map_or(default.admin, |at| at.value);
    if admin.is_some_and(|admin| admin.port() != 0 && listen.contains(&admin)) {
        let key = if table.has("admin") { "admin" } else { "listen" };
        table.error(key, "the admin pages need an address of their own, or `admin = \"off\"`");
    }
    let probes = table.parsed("probes", "an address or \"off\"", |text| match text {
        "off" => Ok(None),
        text => address(text).map(Some),
    });
    let probes = probes.map_or(default.probes, |at| at.value);
    if probes.is_some_and(|probes| probes.port() != 0 && (listen.contains(&probes) || admin == Some(probes))) {
        table.error("probes", "need an address of their own; `admin` serves them as well");
    }
    let admin_token_file = table.file("admin_token_file");
    let admin_hosts = table.list("admin_hosts", "a name such as \"fanin.internal\"", false, |text| {
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_');
        match !text.is_empty() && text.chars().all(is_name) {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` is not the name of a host; write it without a port")),
        }
    });
    let admin_hosts = admin_hosts.into_iter().flatten().map(|name| name.value).collect();
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
    let priority_header = table.header_or_off("priority_header").unwrap_or(default.priority_header);
    let trusted = networks(&mut table, "trusted");
    let forwarded_header = table.header_or_off("forwarded_header").unwrap_or(default.forwarded_header);
    let proxy_protocol = table.boolean("proxy_protocol").unwrap_or(default.proxy_protocol);
    let timeout_header = table.header_or_off("timeout_header").unwrap_or(default.timeout_header);
    let need_trust = [
        ("timeout_header", timeout_header.is_some()),
        ("priority_header", priority_header.is_some()),
        ("forwarded_header", forwarded_header.is_some()),
        ("proxy_protocol", proxy_protocol),
    ];
    if trusted.is_empty() && !table.has("trusted") {
        for (key, _) in need_trust.iter().filter(|(_, is_on)| *is_on) {
            table.error(key, "is believed of nobody; name the addresses of those who may send it in `trusted`");
        }
    }
    let max_connections = table.count("max_connections", 1..=u64::MAX).unwrap_or(default.max_connections);
    let server = Server {
        listen,
        admin,
        probes,
        admin_token_file,
        admin_hosts,
        workers: table.count("workers", 0..=1024).unwrap_or(default.workers),
        tls: table.table("tls").and_then(ServerTls::read),
        limit: table.count("limit", 1..=u64::MAX).unwrap_or(default.limit),
        max_waiting: table.count("max_waiting", 0..=u64::MAX).unwrap_or(default.max_waiting),
        queueing: table.duration_or_off("queueing").unwrap_or(default.queueing),
        memory: memory_budget::read(&mut table).unwrap_or(default.memory),
        priority_header,
        trusted,
        allow: networks(&mut table, "allow"),
        deny: networks(&mut table, "deny"),
        proxy_protocol,
        forwarded_header,
        request_id: request_id::read(&mut table).unwrap_or(default.request_id),
        max_connections,
        max_connections_per_client: table
            .count_or_off("max_connections_per_client")
            .unwrap_or(Some(share_of(max_connections))),
        max_handshakes_per_client: table
            .count_or_off("max_handshakes_per_client")
            .unwrap_or(default.max_handshakes_per_client),
        max_in_progress_per_client: table
            .count_or_off("max_in_progress_per_client")
            .unwrap_or(default.max_in_progress_per_client),
        max_resets_per_client: table.count_or_off("max_resets_per_client").unwrap_or(default.max_resets_per_client),
        header_timeout: table.duration("header_timeout").unwrap_or(default.header_timeout),
        idle_timeout: table.duration("idle_timeout").unwrap_or(default.idle_timeout),
        body_timeout: table.duration("body_timeout").unwrap_or(default.body_timeout),
        slow_reader_timeout: table.duration_or_off("slow_reader_timeout").unwrap_or(default.slow_reader_timeout),
        min_read_rate: table.size("min_read_rate", 1).unwrap_or(default.min_read_rate),
        slow_sender_timeout: table.duration_or_off("slow_sender_timeout").unwrap_or(default.slow_sender_timeout),
        min_send_rate: table.size("min_send_rate", 1).unwrap_or(default.min_send_rate),
        max_unsent: table.size("max_unsent", 1).unwrap_or(default.max_unsent),
        max_unsent_total: table.size("max_unsent_total", 1).unwrap_or(default.max_unsent_total),
        drain_timeout: table.duration("drain_timeout").unwrap_or(default.drain_timeout),
        escaped_slashes: table
            .choice(
                "escaped_slashes",
                &[
                    ("refuse", RequestSlashes::Refuse),
                    ("keep", RequestSlashes::Keep),
                    ("decode", RequestSlashes::Decode),
                ],
            )
            .unwrap_or_default(),
        max_header_size: table.size("max_header_size", 1024).unwrap_or(default.max_header_size),
        max_body: table.size("max_body", 0).unwrap_or(default.max_body),
        timeout_header,
        access_log,
        log: table.string("log").unwrap_or(default.log),
        log_format: table
            .choice("log_format", &[("text", LogFormat::Text), ("json", LogFormat::Json)])
            .unwrap_or_default(),
        stall: table.duration("stall").unwrap_or(default.stall),
        heap_profile: table.size("heap_profile", 1024),
        reload: table.boolean("reload").unwrap_or(default.reload),
    };
    table.finish();
    server
}
