//! The whole file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use toml::de::DeTable;

use crate::access::Named;
use crate::auth::Auth;
use crate::rate_limit::RateLimit;
use crate::reader::Reader;
use crate::reader::Table;
use crate::route::ForAll;
use crate::upstream::kind::has_key;
use crate::values::env::Env;
use crate::values::serialize;
use crate::{
    Compression, ConfigError, Cors, Diagnostic, Editing, FlowLimits, Grpc, HeaderRules, Models, Otlp, Push, Recorder,
    RequestHeaderRules, Route, Server, Severity, Signing, Source, Tracing, Upstream, request_id, route, server,
};

/// The configuration file's name in its folder.
pub const FILE_NAME: &str = "fanin.toml";

/// Larger files are refused unread.
const MAX_FILE: u64 = 4 << 20;

/// A valid configuration: the content of `fanin.toml` with all defaults filled in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Addresses, limits, timeouts, load shedding and logs.
    pub server: Server,
    /// Limits of one request, for all routes.
    pub flow: FlowLimits,
    /// Backend services, by the name under which flows load them.
    #[serde(serialize_with = "serialize::named")]
    #[schemars(with = "std::collections::BTreeMap<String, Upstream>")]
    pub upstreams: IndexMap<String, Upstream>,
    /// Models in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Models")]
    pub models: Option<Models>,
    /// Channels and their subscribers.
    pub push: Push,
    /// The last requests, for the admin pages.
    pub recorder: Recorder,
    /// The gRPC services of which routes serve methods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Grpc")]
    pub grpc: Option<Grpc>,
    /// Traces that requests take part in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Tracing")]
    pub tracing: Option<Tracing>,
    /// Where spans and metrics are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Otlp")]
    pub otlp: Option<Otlp>,
    /// Which pages of other origins may use the routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cors")]
    pub cors: Option<Cors>,
    /// Which responses are compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Compression")]
    pub compression: Option<Compression>,
    /// Which headers of clients flows and upstreams see.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RequestHeaderRules")]
    pub request_headers: Option<RequestHeaderRules>,
    /// Headers that responses get, or must not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HeaderRules")]
    pub response_headers: Option<HeaderRules>,
    /// Keys by which flows sign what clients keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Signing")]
    pub signing: Option<Signing>,
    /// How clients prove who they are, by the name under which routes use it.
    #[serde(serialize_with = "serialize::named")]
    #[schemars(with = "std::collections::BTreeMap<String, Auth>")]
    pub auth: IndexMap<String, Auth>,
    /// How many requests in how much time, by the name under which routes use it.
    #[serde(serialize_with = "serialize::named")]
    #[schemars(with = "std::collections::BTreeMap<String, RateLimit>")]
    pub rate_limits: IndexMap<String, RateLimit>,
    /// Methods and paths, each bound to a flow.
    pub routes: Vec<Route>,
    /// The folder of the file. Flow files are below it.
    #[serde(skip)]
    pub dir: PathBuf,
    /// Warnings about the file.
    #[serde(skip)]
    pub warnings: Vec<Diagnostic>,
    /// What an editor has open.
    #[serde(skip)]
    pub editing: Editing,
}

impl Config {
    /// Reads and checks `fanin.toml` of a folder (or the file itself, if `path` is one), with this process's environment.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        Config::load_with(path, &|name| std::env::var(name).ok())
    }

    /// As [`Config::load`], with environment variables from elsewhere.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load_with(path: &Path, env: Env<'_>) -> Result<Config, ConfigError> {
        Config::inspect(path, env).into_result()
    }

    /// Reads and checks the file of [`Config::load`], and gives what could be read of it even if
    /// something is wrong: what it names can then be checked too.
    #[must_use]
    pub fn inspect(path: &Path, env: Env<'_>) -> Inspection {
        Config::inspect_edited(path, env, &Editing::default())
    }

    /// The same with texts of an editor in place of files.
    #[must_use]
    pub fn inspect_edited(path: &Path, env: Env<'_>, editing: &Editing) -> Inspection {
        let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_path_buf() };
        let name = file.display().to_string();
        let edited = editing.text(&file).map(|text| Ok(text.to_owned()));
        let text = match edited.unwrap_or_else(|| read_text(&file)) {
            Ok(text) => text,
            Err(problem) => {
                let hint = format!("name a folder that has a {FILE_NAME}, or the file itself");
                let found = vec![Diagnostic::file(&name, problem).hint(hint)];
                return Inspection { config: None, invalid_upstreams: Vec::new(), diagnostics: found };
            }
        };
        let dir = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut inspection = Config::inspect_text(&text, &name, dir, env);
        if let Some(config) = &mut inspection.config {
            config.editing = editing.clone();
        }
        inspection
    }

    /// Reads and checks the text of a configuration file. `name` is what messages call the file, `dir` the folder that its
    /// paths start from.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(text: &str, name: &str, dir: &Path, env: Env<'_>) -> Result<Config, ConfigError> {
        Config::inspect_text(text, name, dir, env).into_result()
    }

    fn inspect_text(text: &str, name: &str, dir: &Path, env: Env<'_>) -> Inspection {
        let source = Arc::new(Source::new(name, text));
        let (root, problems) = DeTable::parse_recoverable(text);
        let reader = Reader::new(source.clone(), dir.to_path_buf(), env);
        let mut config = read(Table::root(&reader, root.get_ref()));
        config.dir = dir.to_path_buf();
        let mut found = reader.finish();
        if !problems.is_empty() {
            // What else is wrong may follow from these.
            found = problems
                .iter()
                .map(|problem| {
                    let span = problem.span().unwrap_or(0..0);
                    let part = text.get(span.clone()).unwrap_or_default();
                    Diagnostic::error(&source, span, syntax(problem.message(), part))
                })
                .collect();
        }
        found.sort_by_key(|diagnostic| diagnostic.at.start);
        let mut invalid_upstreams: Vec<String> = Vec::new();
        let tables = root.get_ref().get("upstreams").and_then(|upstreams| upstreams.get_ref().as_table());
        for name in tables.into_iter().flat_map(|tables| tables.keys()).map(|key| key.get_ref().to_string()) {
            let table = format!("upstreams.{name}");
            let tells = |one: &Diagnostic| {
                one.severity == Severity::Error
                    && one.message.match_indices(&table).any(|(at, _)| {
                        one.message[at + table.len()..]
                            .chars()
                            .next()
                            .is_none_or(|next| !next.is_alphanumeric() && next != '_')
                    })
            };
            if !problems.is_empty() || !config.upstreams.contains_key(&name) || found.iter().any(tells) {
                invalid_upstreams.push(name);
            }
        }
        Inspection { config: Some(config), invalid_upstreams, diagnostics: found }
    }
}

/// A configuration file as far as it could be read.
#[derive(Debug)]
pub struct Inspection {
    /// What could be read; `None` if the file could not. Where something is wrong, a default stands.
    pub config: Option<Config>,
    /// Upstreams that the file names and of which something is wrong.
    pub invalid_upstreams: Vec<String>,
    /// All that is wrong, in the file's order; errors, and warnings between them.
    pub diagnostics: Vec<Diagnostic>,
}

impl Inspection {
    /// Whether there is more than warnings.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|one| one.severity == Severity::Error)
    }

    fn into_result(self) -> Result<Config, ConfigError> {
        match self.config {
            Some(mut config) if !self.diagnostics.iter().any(|one| one.severity == Severity::Error) => {
                config.warnings = self.diagnostics;
                Ok(config)
            }
            _ => Err(ConfigError { diagnostics: self.diagnostics }),
        }
    }
}

fn syntax(message: &str, part: &str) -> String {
    // The parser's messages may have several lines: what is wrong, then what it expected.
    let message = message.lines().collect::<Vec<_>>().join(", ");
    if message == "duplicate key" { format!("{message} `{part}`") } else { format!("invalid TOML: {message}") }
}

fn read_text(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("is larger than {MAX_FILE} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        format!("line {line} is not UTF-8")
    })
}

fn read(mut root: Table<'_, '_>) -> Config {
    let server = root.table("server").map(server::read).unwrap_or_default();
    let flow = match root.table("flow") {
        Some(mut table) => {
            let limits = FlowLimits::read(&mut table, &FlowLimits::default());
            table.finish();
            limits
        }
        None => FlowLimits::default(),
    };
    let ((auth, named_upstreams), rate_limits) = (Auth::read_all(&mut root), RateLimit::read_all(&mut root));
    let cors = root.table("cors").and_then(Cors::read);
    let compression = root.table("compression").map(Compression::read);
    let signing = root.table("signing").and_then(Signing::read);
    let request_headers = root.table("request_headers").map(RequestHeaderRules::read);
    let response_headers = root.table("response_headers").map(HeaderRules::read);
    let for_all = ForAll {
        server: &server,
        flow: &flow,
        cors: cors.as_ref(),
        compression: compression.as_ref(),
        request_headers: request_headers.as_ref(),
        response_headers: response_headers.as_ref(),
        named: Named { auth: &auth, rate_limits: &rate_limits, tls: server.tls.as_ref() },
    };
    let routes = route::read_all(root.tables("routes"), &for_all);
    let longest = routes.iter().map(|route| route.timeout).max();
    let models = root.table("models").and_then(Models::read);
    let push = root.table("push").map(Push::read).unwrap_or_default();
    let recorder = root.table("recorder").map(Recorder::read).unwrap_or_default();
    let grpc = root.table("grpc").map(Grpc::read);
    let tracing = root.table("tracing").map(Tracing::read);
    let otlp = root.table("otlp").map(Otlp::read);
    // Spans belong to traces.
    let tracing = tracing.or_else(|| otlp.as_ref().map(|_| Tracing::default()));
    let upstreams: IndexMap<String, Upstream> = root
        .named_tables("upstreams")
        .into_iter()
        .filter_map(|(name, table)| Upstream::read(name, table, longest, models.as_ref()))
        .map(|mut upstream| {
            request_id::forward(server.request_id.as_ref(), &mut upstream);
            upstream
        })
        .map(|upstream| (upstream.name.clone(), upstream))
        .collect();
    for at in &named_upstreams {
        auth[&at.0].check_upstream(at, root.reader(), &upstreams);
    }
    for route in &routes {
        route.check_proxy(root.reader(), &upstreams);
    }
    root.finish();
    Config {
        auth,
        rate_limits,
        server,
        flow,
        upstreams,
        models,
        push,
        recorder,
        grpc,
        tracing,
        otlp,
        cors,
        compression,
        signing,
        request_headers,
        response_headers,
        routes,
        ..Config::default()
    }
}

impl Config {
    /// The whole configuration as a JSON value in the shape of the file, every default filled in, for `/config`.
    ///
    /// Masked are: users and passwords in URLs, and values of headers that carry secrets by their name or that were taken
    /// from the environment. Private keys appear by their file's path only.
    pub fn masked(&self) -> serde_json::Value {
        // Every type here serialises to strings, numbers, lists and tables with text keys, which can't fail.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        for (name, upstream) in &self.upstreams {
            if let Some(keys) = value["upstreams"][name.as_str()].as_object_mut() {
                keys.retain(|key, _| has_key(upstream.kind(), key));
            }
        }
        value
    }
}
