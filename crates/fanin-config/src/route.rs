//! `[[routes]]`: method and path bound to a flow.

use std::ops::Range;
use std::time::Duration;

use http::{HeaderValue, Method};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{Access, Named};
use crate::budget::{self, Budget};
use crate::executor::{self, Executor, Threads};
use crate::flow_limits::FlowLimits;
use crate::flow_ref::{FlowRef, read_flow};
use crate::grpc::full_method;
use crate::objective::{Objective, parse_objective};
use crate::path_pattern::{check_pattern, colon_segment};
use crate::priority::{self, Priority};
use crate::reader::{Reader, Table};
use crate::route_conflicts::Paths;
use crate::route_kind::InPlace;
use crate::schema::types;
use crate::server::Server;
use crate::upstream::keys::Upstream;
use crate::upstream::kind::UpstreamKind;
use crate::values::duration::format_duration;
use crate::values::host::HostPattern;
use crate::values::origin::web_origin;
use crate::values::serialize;
use crate::web::cache_control;
use crate::web::compression::Compression;
use crate::web::cors::Cors;
use crate::web::folder::Folder;
use crate::web::redirect::Redirect;
use crate::web::request_headers::RequestHeaderRules;
use crate::web::respond::Respond;
use crate::web::response_cache::ResponseCache;
use crate::web::response_headers::HeaderRules;

/// One of `[[routes]]`: a method and a path bound to a flow, or to what answers in its place. A GET route answers HEAD, too.
///
/// A route may also have every key of `[flow]`, which then applies to this route only.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// HTTP method, or a list of methods: `["GET", "POST"]`. A GET route answers HEAD, too. With `proxy`, the default is all, and other
    /// methods such as `"PROPFIND"` may be named.
    #[serde(rename = "method", serialize_with = "serialize::one_or_more")]
    #[schemars(with = "types::OneOrMore<types::MethodText>")]
    pub methods: Vec<Method>,
    /// Path pattern, needed unless `grpc` is set. `{name}` matches one segment, `{*name}` at the end matches the rest of the path:
    /// `"/products/{id}"`.
    #[schemars(with = "types::PathPattern")]
    pub path: String,
    /// Host of the request, or a list of hosts: `"shop.example.com"`. `"*.example.com"` is every host below that domain. A request takes
    /// the route with the most exact host that has its path and method; a route without `host` is for every host.
    #[serde(rename = "host", skip_serializing_if = "Vec::is_empty", serialize_with = "serialize::one_or_more")]
    #[schemars(with = "types::OneOrMore<types::HostText>")]
    pub hosts: Vec<HostPattern>,
    /// Name of an HTTP upstream to which requests are passed on as they are, and whose answers are passed back, without a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub proxy: Option<String>,
    /// Where that is written.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) proxy_at: Option<Range<usize>>,
    /// File and function of the flow: `"flows/vacancies.star:search_vacancies"`. The file is relative to the folder of
    /// `fanin.toml`.
    #[serde(serialize_with = "serialize::optional_display", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::FlowText")]
    pub flow: Option<FlowRef>,
    /// Sends clients elsewhere, without a flow: `{ to = "https://new.example.com/{path}", status = 308 }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Redirect")]
    pub redirect: Option<Redirect>,
    /// A response that is always the same, without a flow: `{ text = "User-agent: *\n" }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Respond")]
    pub respond: Option<Respond>,
    /// A folder whose files are served, without a flow: `"public"`, or a table. The path must end with the rest of the path:
    /// `"/assets/{*file}"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Or<types::Text, Folder>")]
    pub folder: Option<Folder>,
    /// How long a request may take. It sets the deadline of everything that the request does.
    #[serde(serialize_with = "serialize::duration")]
    #[schemars(with = "types::DurationText")]
    pub timeout: Duration,
    /// Most requests of this route in flight. Default: the server's `limit`.
    #[schemars(with = "types::Count<1>")]
    pub limit: usize,
    /// Most requests of this route that may wait for a permit of `limit`. Default: the server's `max_waiting`.
    #[schemars(with = "types::Count<0>")]
    pub max_waiting: usize,
    /// Priority of the requests. Under overload, `"background"` is refused first, then `"low"`, `"normal"`, and
    /// `"critical"` last. Trusted clients can override it; see `priority_header` of `[server]`.
    #[schemars(with = "types::PriorityText")]
    pub priority: Priority,
    /// What happens to the flow when the client disconnects. `"cancel"` ends it, `"finish"` lets it run to its end.
    /// `"effect"` ends it unless it has begun to change something.
    #[schemars(with = "types::DisconnectText")]
    pub on_disconnect: OnDisconnect,
    /// Largest body of a request, in bytes. Default: the server's `max_body`.
    #[serde(serialize_with = "serialize::size")]
    #[schemars(with = "types::Size<0>")]
    pub max_body: usize,
    /// Does not collect the request's body, but lets the flow pass it on while it comes: `body = req.stream` of one call. The flow cannot
    /// look at it. `max_body` and the server's `body_timeout` (between two parts) and
    /// `min_send_rate` still apply.
    #[schemars(with = "types::Flag")]
    pub stream_body: bool,
    /// Adds the member `errors` to a partial response that is a JSON object. It lists the optional calls that failed,
    /// and why; then those that were not sent because of them (`because`).
    #[schemars(with = "types::Flag")]
    pub errors: bool,
    /// Answers in parts, to clients whose `Accept` names `text/event-stream`, `application/jsonl` or `application/x-ndjson`: first
    /// all but the optional calls that have not ended, then each of these as it comes. Other clients get one answer.
    #[schemars(with = "types::Flag")]
    pub progressive: bool,
    /// Origins from whose pages browsers may open a WebSocket to this route, besides the server's own: `["https://shop.example"]`, or
    /// `["*"]` for all. A page of another origin gets 403. Clients that send no `Origin` are no browsers, and always may.
    #[schemars(with = "Vec<types::OriginText>")]
    pub allowed_origins: Vec<String>,
    /// Which pages of other origins may use this route: a table with the keys of `[cors]`, which replaces that section here. `"off"`: none.
    #[serde(serialize_with = "serialize::table_or_off")]
    #[schemars(with = "types::Or<Cors, types::Off>")]
    pub cors: Option<Cors>,
    /// Which responses of this route are compressed: a table with the keys of `[compression]`, which replaces that section here. `"off"`:
    /// none.
    #[serde(serialize_with = "serialize::table_or_off")]
    #[schemars(with = "types::Or<Compression, types::Off>")]
    pub compression: Option<Compression>,
    /// Responses with status 200 to GET and HEAD get an `ETag`, a hash of the body, and a client that has the body already gets 304 without
    /// one. An `ETag` or `Last-Modified` of the flow counts, too. Streams, and bodies above 1 MiB, get no hash.
    #[schemars(with = "types::Flag")]
    pub etag: bool,
    /// `Cache-Control` of successful responses for which the flow sets none: `"public, max-age=60"`.
    #[serde(serialize_with = "serialize::optional_header", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub cache_control: Option<HeaderValue>,
    /// Which headers of clients flows and upstreams see: a table with the keys of `[request_headers]`, which replaces that section here.
    /// `"off"`: all of them.
    #[serde(serialize_with = "serialize::table_or_off")]
    #[schemars(with = "types::Or<RequestHeaderRules, types::Off>")]
    pub request_headers: Option<RequestHeaderRules>,
    /// Headers that responses of this route get, or must not have: a table with the keys of `[response_headers]`, which replaces that
    /// section here. `"off"`: no rules.
    #[serde(serialize_with = "serialize::table_or_off")]
    #[schemars(with = "types::Or<HeaderRules, types::Off>")]
    pub response_headers: Option<HeaderRules>,
    /// Which responses are kept, and sent again without the flow. Without this table, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ResponseCache")]
    pub cache: Option<ResponseCache>,
    /// The gRPC method that the route serves, as `"package.Service/Method"`, in place of `method` and `path`. `[grpc]` describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Text")]
    pub grpc: Option<String>,
    /// What the route promises: `"99 % < 200ms"`. A request is good if it is answered without a 5xx within the time. Metrics count the
    /// good ones, and the ready alert rules watch how fast the rest is used up. The deadline stays `timeout`.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize::optional_display")]
    #[schemars(with = "types::ObjectiveText")]
    pub objective: Option<Objective>,
    /// What the flow may do at worst: `{ rounds = 2, calls = "2 + 3n", effects = 1 }`. The plan of `fanin check --plan` must prove it.
    /// Otherwise the configuration is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Budget")]
    pub budget: Option<Budget>,
    /// What runs the flow. With `"coroutines"`, a suspended flow costs memory only. With `{ threads = 600, waiting =
    /// 200 }`, each request holds a thread.
    #[schemars(with = "types::Or<types::Coroutines, Threads>")]
    pub executor: Executor,
    /// Who may use the route, and how often.
    #[serde(flatten)]
    pub access: Access,
    /// Limits of one request: those of `[flow]`, overridden by keys of this route.
    #[serde(flatten)]
    pub limits: FlowLimits,
}

impl Route {
    /// A route with the given flow and all defaults, as if nothing else stood in the file.
    pub fn new(method: Method, path: impl Into<String>, flow: FlowRef) -> Route {
        let server = Server::default();
        Route {
            methods: vec![method],
            path: path.into(),
            hosts: Vec::new(),
            proxy: None,
            proxy_at: None,
            flow: Some(flow),
            redirect: None,
            respond: None,
            folder: None,
            timeout: Duration::from_secs(10),
            limit: server.limit,
            max_waiting: server.max_waiting,
            priority: Priority::Normal,
            on_disconnect: OnDisconnect::Effect,
            max_body: server.max_body,
            stream_body: false,
            errors: false,
            progressive: false,
            allowed_origins: Vec::new(),
            cors: None,
            compression: None,
            etag: false,
            cache_control: None,
            request_headers: None,
            response_headers: None,
            cache: None,
            grpc: None,
            objective: None,
            budget: None,
            executor: Executor::Coroutines,
            access: Access::open(),
            limits: FlowLimits::default(),
        }
    }
}

/// What happens to a flow when its client leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// Cancel a flow that has only read, finish one that has begun to change something.
    #[default]
    Effect,
    /// Cancel it, whatever it has done.
    Cancel,
    /// Let it run to its end.
    Finish,
}

/// The methods of a route with `proxy` that names none.
const PROXIED: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// The sections whose keys apply to all routes that do not have their own.
pub(crate) struct ForAll<'a> {
    pub server: &'a Server,
    pub flow: &'a FlowLimits,
    pub cors: Option<&'a Cors>,
    pub compression: Option<&'a Compression>,
    pub request_headers: Option<&'a RequestHeaderRules>,
    pub response_headers: Option<&'a HeaderRules>,
    pub named: Named<'a>,
}

/// Reads `[[routes]]`; no two may match the same request.
pub(crate) fn read_all(tables: Vec<Table<'_, '_>>, for_all: &ForAll<'_>) -> Vec<Route> {
    let mut paths = Paths::default();
    let mut routes = Vec::new();
    for mut table in tables {
        let reader = table.reader();
        let path_at = table.span_of("path").or_else(|| table.span_of("grpc"));
        let route = Route::read(&mut table, for_all);
        table.finish();
        let (Some(route), Some(path_at)) = (route, path_at) else { continue };
        for method in &route.methods {
            if let Err((message, hint)) = paths.add(&route.hosts, method, &route.path, reader.position(&path_at).line) {
                reader.error_hint(&path_at, message, hint);
                break;
            }
        }
        routes.push(route);
    }
    routes
}

impl Route {
    /// The name of the route in logs, metrics and messages: `"GET /products/{id}"`, `"GET,POST /products"`, or with a host
    /// `"GET shop.example.com/products"`.
    pub fn label(&self) -> String {
        format!("{} {}", self.methods_text(), self.place())
    }

    /// Its hosts, separated by commas, and its path.
    pub fn place(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(HostPattern::to_string).collect();
        format!("{}{}", hosts.join(","), self.path)
    }

    /// The methods, separated by commas.
    pub fn methods_text(&self) -> String {
        self.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(",")
    }
}

impl Route {
    /// The upstream of `proxy` must be one of HTTP.
    pub(crate) fn check_proxy(&self, reader: &Reader<'_>, upstreams: &IndexMap<String, Upstream>) {
        let (Some(name), Some(at)) = (&self.proxy, &self.proxy_at) else { return };
        let problem = match upstreams.get(name).map(Upstream::kind) {
            Some(UpstreamKind::Http) => return,
            Some(kind) => format!("{name} is {kind}; requests are passed on to HTTP upstreams"),
            None => format!("there is no section [upstreams.{name}]"),
        };
        reader.error(at, format!("proxy: {problem}"));
    }

    fn read(table: &mut Table<'_, '_>, for_all: &ForAll<'_>) -> Option<Route> {
        let ForAll { server, flow, cors, compression, request_headers, response_headers, named } = *for_all;
        let proxy = table.parsed("proxy", "the name of an upstream", |text| Ok(text.to_owned()));
        let methods = table.methods("method", proxy.is_some());
        let methods = methods.unwrap_or_else(|| if proxy.is_some() { PROXIED.to_vec() } else { vec![Method::GET] });
        let grpc = table.parsed("grpc", "a method such as \"shop.v1.Products/Page\"", full_method).map(|at| at.value);
        for key in ["path", "method", "stream_body", "allowed_origins"]
            .into_iter()
            .filter(|key| grpc.is_some() && table.has(key))
        {
            table.error(key, "cannot be combined with `grpc`; remove one of them");
        }
        let path = table
            .parsed("path", "a path such as \"/products/{id}\"", |text| check_pattern(text).map(|()| text.to_owned()));
        let flow_ref = read_flow(table, "flow");
        if !table.has("path") && !table.has("grpc") {
            table.missing("path", "path = \"/...\"");
        }
        if let Some(segment) = path.as_ref().and_then(|at| colon_segment(&at.value)) {
            let message = format!("the segment `{segment}` is literal text");
            table.warning("path", &message, &format!("a parameter is written {{{}}}", &segment[1..]));
        }
        let in_place = InPlace::read(table, path.as_ref().map(|at| &*at.value));
        let is_answered = flow_ref.is_some()
            || in_place.redirect.is_some()
            || in_place.respond.is_some()
            || in_place.folder.is_some()
            || proxy.is_some();
        let path = path.map(|at| at.value).or_else(|| grpc.as_ref().map(|method| format!("/{method}")));
        // The rest is read even when one of these is missing, so that all that is wrong is found.
        let mut route = Route::new(Method::GET, path.clone().unwrap_or_default(), FlowRef::new("", ""));
        route.flow = flow_ref;
        InPlace { redirect: route.redirect, respond: route.respond, folder: route.folder } = in_place;
        route.methods = if grpc.is_some() { vec![Method::POST] } else { methods };
        route.grpc = grpc;
        route.hosts = read_hosts(table);
        (route.proxy_at, route.proxy) = proxy.map(|at| (at.span, at.value)).unzip();
        route.timeout = table.duration("timeout").unwrap_or(route.timeout);
        route.limit = table.count("limit", 1..=u64::MAX).unwrap_or(server.limit);
        if route.limit > server.limit {
            let span = table.span_of("limit").unwrap_or(table.span().clone());
            let hint = "a route can't have more requests in flight than the server";
            let message = format!("{}: limit {} is above the server's, {}", table.name(), route.limit, server.limit);
            table.reader().warning(&span, message, hint);
        }
        route.max_waiting = table.count("max_waiting", 0..=u64::MAX).unwrap_or(server.max_waiting);
        route.priority = priority::read(table).unwrap_or_default();
        let choices =
            [("effect", OnDisconnect::Effect), ("cancel", OnDisconnect::Cancel), ("finish", OnDisconnect::Finish)];
        route.on_disconnect = table.choice("on_disconnect", &choices).unwrap_or_default();
        route.max_body = table.size("max_body", 0).unwrap_or(server.max_body);
        route.stream_body = table.boolean("stream_body").unwrap_or(false);
        route.errors = table.boolean("errors").unwrap_or(false);
        route.progressive = table.boolean("progressive").unwrap_or(false);
        let origins =
            table.list("allowed_origins", "an origin such as \"https://shop.example\"", false, allowed_origin);
        route.allowed_origins = origins.unwrap_or_default().into_iter().map(|at| at.value).collect();
        route.cors = Cors::of_route(table, route.grpc.is_none().then_some(&*route.methods), cors);
        route.compression = Compression::of_route(table, compression);
        route.request_headers = RequestHeaderRules::of_route(table, request_headers);
        route.response_headers = HeaderRules::of_route(table, response_headers);
        route.cache = ResponseCache::of_route(table);
        if route.cache.is_some() && route.grpc.is_none() && !route.methods.contains(&Method::GET) {
            table.error("cache", "only responses to GET are kept; add that method, or remove the table");
        }
        route.etag = table.boolean("etag").unwrap_or(false);
        let what = "directives such as \"public, max-age=60\"";
        route.cache_control = table.parsed("cache_control", what, cache_control::parse).map(|at| at.value);
        for key in ["compression", "etag", "cache_control", "cache"]
            .into_iter()
            .filter(|key| route.grpc.is_some() && table.has(key))
        {
            table.error(key, "does not apply to methods; remove it or `grpc`");
        }
        let what = "a part and a time such as \"99 % < 200ms\"";
        route.objective = table.parsed("objective", what, parse_objective).map(|at| at.value);
        if let Some(objective) = route.objective.filter(|objective| objective.within > route.timeout) {
            let message = format!("{} is above the route's timeout", format_duration(objective.within));
            let hint =
                format!("requests end after {}; lower the time of the objective", format_duration(route.timeout));
            table.warning("objective", &message, &hint);
        }
        route.budget = budget::read(table);
        route.executor = executor::read(table);
        if route.progressive && matches!(route.executor, Executor::Threads(_)) {
            let span = table.span_of("progressive").unwrap_or(table.span().clone());
            table.reader().error(&span, "an answer in parts needs `executor = \"coroutines\"`".to_owned());
        }
        if let Executor::Threads(Threads { threads, waiting }) = route.executor
            && route.limit < threads.saturating_add(waiting)
        {
            let hint = "raise the route's limit (and the server's) to threads + waiting, or lower these";
            table.warning(
                "executor",
                &format!("admission lets only {} requests in, fewer than threads and waiting together", route.limit),
                hint,
            );
        }
        if route.stream_body && matches!(route.executor, Executor::Threads(_)) {
            table.error("stream_body", "does not work with threads; remove `executor` from this route");
        }
        route.access = Access::read(table, &named);
        route.limits = FlowLimits::read(table, flow);
        (path.is_some() && is_answered).then_some(route)
    }
}

fn read_hosts(table: &mut Table<'_, '_>) -> Vec<HostPattern> {
    if table.is_empty_list("host") {
        table.error("host", "needs at least one host; leave it out for all");
    }
    let found = table.list("host", "a host such as \"shop.example.com\"", true, HostPattern::parse).unwrap_or_default();
    let mut hosts = Vec::new();
    for at in found {
        if hosts.contains(&at.value) {
            table.reader().error(&at.span, format!("{}.host: {} occurs twice", table.name(), at.value));
            continue;
        }
        hosts.push(at.value);
    }
    hosts
}

fn allowed_origin(text: &str) -> Result<String, String> {
    match text {
        "*" => Ok(text.to_owned()),
        _ => web_origin(text).ok_or_else(|| {
            format!("`{text}` is no origin; write scheme, host and perhaps port, and nothing behind them")
        }),
    }
}
