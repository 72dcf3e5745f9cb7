//! The whole file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;
use toml::de::DeTable;

use crate::env::Env;
use crate::read::Reader;
use crate::table::Table;
use crate::{ConfigError, Diagnostic, FlowLimits, Route, Server, Severity, Source, Upstream, route, server, text};

/// The configuration file's name in its folder.
pub const FILE_NAME: &str = "fanin.toml";

/// Larger files are refused unread.
const MAX_FILE: u64 = 4 << 20;

/// A checked configuration: `fanin.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Listeners, admission, timeouts, logs.
    pub server: Server,
    /// What one request may use, for all routes.
    pub flow: FlowLimits,
    /// Backend services, by the name that flows load them with.
    #[serde(serialize_with = "text::named")]
    #[schemars(with = "std::collections::BTreeMap<String, Upstream>")]
    pub upstreams: IndexMap<String, Upstream>,
    /// Methods and paths, each bound to a flow.
    pub routes: Vec<Route>,
    /// The folder that the file stands in. Flow files are below it.
    #[serde(skip)]
    pub dir: PathBuf,
    /// What looks wrong without being an error.
    #[serde(skip)]
    pub warnings: Vec<Diagnostic>,
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
    pub fn load_with(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_path_buf() };
        let name = file.display().to_string();
        let text = read_text(&file).map_err(|problem| ConfigError {
            diagnostics: vec![
                Diagnostic::file(&name, problem)
                    .hint(format!("name a folder that has a {FILE_NAME}, or the file itself")),
            ],
        })?;
        let dir = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Config::parse(&text, &name, dir, env)
    }

    /// Reads and checks the text of a configuration file. `name` is what messages call the file, `dir` the folder that its
    /// paths start from.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(text: &str, name: &str, dir: &Path, env: Env<'_>) -> Result<Config, ConfigError> {
        let source = Arc::new(Source::new(name, text));
        let (root, problems) = DeTable::parse_recoverable(text);
        if !problems.is_empty() {
            // What else is wrong may follow from these.
            let diagnostics = problems
                .iter()
                .map(|problem| {
                    let span = problem.span().unwrap_or(0..0);
                    let part = text.get(span.clone()).unwrap_or_default();
                    Diagnostic::error(&source, span, syntax(problem.message(), part))
                })
                .collect();
            return Err(ConfigError { diagnostics });
        }
        let reader = Reader::new(source, dir.to_path_buf(), env);
        let mut config = read(Table::root(&reader, root.get_ref()));
        config.dir = dir.to_path_buf();
        let mut found = reader.finish();
        found.sort_by_key(|diagnostic| diagnostic.at.start);
        if found.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
            return Err(ConfigError { diagnostics: found });
        }
        config.warnings = found;
        Ok(config)
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
    let routes = route::read_all(root.tables("routes"), &server, &flow);
    let longest = routes.iter().map(|route| route.timeout).max();
    let upstreams = root
        .named_tables("upstreams")
        .into_iter()
        .filter_map(|(name, table)| Upstream::read(name, table, longest))
        .map(|upstream| (upstream.name.clone(), upstream))
        .collect();
    root.finish();
    Config { server, flow, upstreams, routes, ..Config::default() }
}
