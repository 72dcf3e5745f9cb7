//! `[[routes]]`: method and path bound to a flow.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use http::Method;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::{At, Reader};
use crate::table::Table;
use crate::upstream::is_identifier;
use crate::{Executor, FlowLimits, Position, Priority, Server, Threads, executor, overload, schema, text};

/// One of `[[routes]]`: a method and a path bound to a flow. A GET route answers HEAD as well.
///
/// A route may also carry any key of `[flow]`, which then holds for this route alone.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// HTTP method.
    #[serde(serialize_with = "text::display")]
    #[schemars(with = "schema::MethodText")]
    pub method: Method,
    /// Path pattern. `{name}` stands for one segment, `{*name}` at the end for all that is left: `"/products/{id}"`.
    #[schemars(with = "schema::PathPattern")]
    pub path: String,
    /// File and function, the file relative to the configuration's folder: `"flows/vacancies.star:search_vacancies"`.
    #[serde(serialize_with = "text::display")]
    #[schemars(with = "schema::FlowText")]
    pub flow: FlowRef,
    /// How long a request may take. Nothing of it outlives this deadline.
    #[serde(serialize_with = "text::duration")]
    #[schemars(with = "schema::DurationText")]
    pub timeout: Duration,
    /// Requests of this route in flight. Default: the server's `limit`.
    #[schemars(with = "schema::Count<1>")]
    pub limit: usize,
    /// Requests of this route that may wait for a place below `limit`. Default: the server's `max_waiting`.
    #[schemars(with = "schema::Count<0>")]
    pub max_waiting: usize,
    /// How important its requests are. Under overload, `"background"` is refused first, then `"low"`, `"normal"`, and
    /// `"critical"` last. Under which conditions a client may say otherwise: `[server] priority_header`.
    #[schemars(with = "schema::PriorityText")]
    pub priority: Priority,
    /// What happens when the client leaves: `"cancel"` ends the flow, `"finish"` lets it run to its end, `"effect"` cancels
    /// a flow that has only read and finishes one that has begun to change something.
    #[schemars(with = "schema::DisconnectText")]
    pub on_disconnect: OnDisconnect,
    /// Bytes of a request's body. Default: the server's `max_body`.
    #[serde(serialize_with = "text::size")]
    #[schemars(with = "schema::Size<0>")]
    pub max_body: usize,
    /// Whether a partial response that is a JSON object carries the list `errors`: which optional calls failed, and how.
    #[schemars(with = "schema::Flag")]
    pub errors: bool,
    /// What runs the flow: `"coroutines"`, where a flow that waits costs memory only, or `{ threads = 600, waiting = 200 }`, where
    /// it holds a thread.
    #[schemars(with = "schema::Or<schema::Coroutines, Threads>")]
    pub executor: Executor,
    /// What one request may use: `[flow]`, with what this route says otherwise.
    #[serde(flatten)]
    pub limits: FlowLimits,
}

impl Route {
    /// A route with the given flow and all defaults, as if nothing else stood in the file.
    pub fn new(method: Method, path: impl Into<String>, flow: FlowRef) -> Route {
        let server = Server::default();
        Route {
            method,
            path: path.into(),
            flow,
            timeout: Duration::from_secs(10),
            limit: server.limit,
            max_waiting: server.max_waiting,
            priority: Priority::Normal,
            on_disconnect: OnDisconnect::Effect,
            max_body: server.max_body,
            errors: false,
            executor: Executor::Coroutines,
            limits: FlowLimits::default(),
        }
    }
}

/// A function of a flow file.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRef {
    /// The file, relative to the configuration's folder and below it, with `/` between folders.
    pub file: PathBuf,
    /// The function's name.
    pub function: String,
    /// Where fanin.toml names it, for messages.
    pub at: Position,
}

impl FlowRef {
    /// A function of a flow file that no configuration file names.
    pub fn new(file: impl Into<PathBuf>, function: impl Into<String>) -> FlowRef {
        FlowRef { file: file.into(), function: function.into(), at: Position::default() }
    }
}

impl fmt::Display for FlowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.function)
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

/// Reads `[[routes]]`; no two may match the same request.
pub(crate) fn read_all(tables: Vec<Table<'_, '_>>, server: &Server, flow: &FlowLimits) -> Vec<Route> {
    let mut paths = Paths::default();
    let mut routes = Vec::new();
    for mut table in tables {
        let reader = table.reader();
        let path_at = table.at("path");
        let route = Route::read(&mut table, server, flow);
        table.finish();
        let (Some(route), Some(path_at)) = (route, path_at) else { continue };
        if let Err((message, hint)) = paths.add(&route, reader.position(&path_at).line) {
            reader.error_hint(&path_at, message, hint);
        }
        routes.push(route);
    }
    routes
}

/// Paths seen so far, as the server will route them.
#[derive(Default)]
struct Paths {
    seen: Vec<(Method, String, u32)>,
    router: matchit::Router<()>,
}

impl Paths {
    /// Adds a route's path, or says with which earlier one it collides, and what to do.
    fn add(&mut self, route: &Route, line: u32) -> Result<(), (String, String)> {
        let (method, path) = (&route.method, &route.path);
        let shape_of = shape(path);
        let alike = |(_, other, _): &&(Method, String, u32)| shape(other) == shape_of;
        if let Some((.., first)) = self.seen.iter().filter(alike).find(|(other, ..)| other == method) {
            return Err((
                format!("{method} {path} is there twice"),
                format!("the first stands in line {first}; names of parameters make no difference"),
            ));
        }
        match self.seen.iter().find(alike) {
            Some((_, other, first)) if other != path => {
                return Err((
                    format!("{path} matches the same paths as {other}, line {first}"),
                    "give the parameters the same names".to_owned(),
                ));
            }
            Some(_) => {}
            None => {
                if let Err(error) = self.router.insert(path.as_str(), ()) {
                    // The router may name the parameters in another way.
                    let with = match error {
                        matchit::InsertError::Conflict { with } => shape(&with),
                        other => return Err((format!("{path}: {other}"), "write it in another way".to_owned())),
                    };
                    let first = self.seen.iter().find(|(_, other, _)| shape(other) == with);
                    let place = first.map_or(String::new(), |(_, other, line)| format!(" with {other}, line {line}"));
                    return Err((
                        format!("{path} collides{place}"),
                        "a parameter for one segment and one for all that is left can't stand in the same place"
                            .to_owned(),
                    ));
                }
            }
        }
        self.seen.push((method.clone(), path.clone(), line));
        Ok(())
    }
}

/// A pattern without the names of its parameters: two patterns of one shape match the same paths.
fn shape(path: &str) -> String {
    let plain = |segment: &str| match segment.strip_prefix('{') {
        Some(inner) if inner.starts_with('*') => "{*}".to_owned(),
        Some(_) => "{}".to_owned(),
        None => segment.to_owned(),
    };
    path.split('/').map(plain).collect::<Vec<_>>().join("/")
}

impl Route {
    fn read(table: &mut Table<'_, '_>, server: &Server, flow: &FlowLimits) -> Option<Route> {
        let method = table.method("method").unwrap_or(Method::GET);
        let path = table
            .parsed("path", "a path such as \"/products/{id}\"", |text| check_pattern(text).map(|()| text.to_owned()));
        let flow_ref = table.parsed("flow", "a file and a function such as \"flows/page.star:page\"", flow_ref);
        if table.at("path").is_none() {
            table.missing("path", "path = \"/...\"");
        }
        if table.at("flow").is_none() {
            table.missing("flow", "flow = \"flows/file.star:function\"");
        }
        if let Some(flow) = &flow_ref {
            check_file(table.reader(), flow);
        }
        let (path, flow_ref) = (path.map(|at| at.value), flow_ref.map(|at| at_position(at, table.reader())));
        // The rest is read even when one of these is missing, so that all that is wrong is found.
        let stand_in = FlowRef::new("", "");
        let mut route = Route::new(method, path.clone().unwrap_or_default(), flow_ref.clone().unwrap_or(stand_in));
        route.timeout = table.duration("timeout").unwrap_or(route.timeout);
        route.limit = table.count("limit", 1..=u64::MAX).unwrap_or(server.limit);
        if route.limit > server.limit {
            let span = table.at("limit").unwrap_or(table.span().clone());
            let hint = "a route can't have more requests in flight than the server";
            let message = format!("{}: limit {} is above the server's, {}", table.name(), route.limit, server.limit);
            table.reader().warning(&span, message, hint);
        }
        route.max_waiting = table.count("max_waiting", 0..=u64::MAX).unwrap_or(server.max_waiting);
        route.priority = overload::read_priority(table).unwrap_or_default();
        let choices =
            [("effect", OnDisconnect::Effect), ("cancel", OnDisconnect::Cancel), ("finish", OnDisconnect::Finish)];
        route.on_disconnect = table.choice("on_disconnect", &choices).unwrap_or_default();
        route.max_body = table.size("max_body", 0).unwrap_or(server.max_body);
        route.errors = table.flag("errors").unwrap_or(false);
        route.executor = executor::read(table);
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
        route.limits = FlowLimits::read(table, flow);
        (path.is_some() && flow_ref.is_some()).then_some(route)
    }
}

fn at_position(at: At<FlowRef>, reader: &Reader<'_>) -> FlowRef {
    FlowRef { at: reader.position(&at.span), ..at.value }
}

/// Reads `file.star:function`.
fn flow_ref(text: &str) -> Result<FlowRef, String> {
    let Some((file, function)) = text.rsplit_once(':') else {
        return Err(format!("`{text}` names no function; write \"file.star:function\""));
    };
    if !is_identifier(function) {
        return Err(format!("`{function}` is not a function's name"));
    }
    if !file.ends_with(".star") {
        return Err(format!("`{file}` is not a .star file"));
    }
    let inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside || file.contains('\\') {
        return Err(format!("`{file}` is outside the configuration's folder; flows stand below it"));
    }
    let plain: PathBuf = Path::new(file).components().filter(|part| !matches!(part, Component::CurDir)).collect();
    Ok(FlowRef::new(plain, function))
}

/// The flow's file must be there, and links must not lead out of the folder.
fn check_file(reader: &Reader<'_>, flow: &At<FlowRef>) {
    let file = reader.dir().join(&flow.value.file);
    if !file.is_file() {
        reader.error(&flow.span, format!("there is no flow file {}", file.display()));
        return;
    }
    let real = |path: &Path| path.canonicalize().ok();
    if let (Some(file_at), Some(dir)) = (real(&file), real(reader.dir()))
        && !file_at.starts_with(&dir)
    {
        let message = format!("the flow file {} is a link to outside the configuration's folder", file.display());
        reader.error(&flow.span, message);
    }
}

/// Checks a route's path pattern.
fn check_pattern(path: &str) -> Result<(), String> {
    check_path(path, true)
}

/// Checks an operation's path template: as a route's, without `{*name}`.
pub(crate) fn check_template(path: &str) -> Result<(), String> {
    check_path(path, false)
}

fn check_path(path: &str, rest_allowed: bool) -> Result<(), String> {
    let Some(inner) = path.strip_prefix('/') else {
        return Err(format!("`{path}` must begin with /"));
    };
    if let Some(bad) = path.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '\\')) {
        return Err(format!("`{path}` must not hold {bad:?}"));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut segments = inner.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && (segments.peek().is_some() || path.ends_with("//")) {
            return Err(format!("`{path}` has an empty segment, //"));
        }
        if matches!(segment, "." | "..") {
            return Err(format!("`{path}` must not hold the segment {segment}"));
        }
        if !segment.contains(['{', '}']) {
            continue;
        }
        let name = segment
            .strip_prefix('{')
            .and_then(|segment| segment.strip_suffix('}'))
            .ok_or_else(|| format!("`{segment}`: a parameter is a whole segment, such as /{{id}}/"))?;
        let (name, rest) = match name.strip_prefix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if !is_identifier(name) {
            return Err(format!("`{segment}`: `{name}` is not a parameter's name"));
        }
        if rest && !rest_allowed {
            return Err(format!("`{segment}`: only a route's path can have a parameter for all that is left"));
        }
        if rest && segments.peek().is_some() {
            return Err(format!("`{segment}` takes all that is left, so it must come last"));
        }
        if names.contains(&name) {
            return Err(format!("`{path}` has the parameter `{name}` twice"));
        }
        names.push(name);
    }
    Ok(())
}
