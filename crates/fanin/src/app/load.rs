//! Makes applications from a folder: at start, at each reload, and for `check`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};

use fanin_auth::Guards;
use fanin_broker::{Broker, Target};
use fanin_config::{Auth, Config, Diagnostic, Editing, Inspection, ServerTls, Source};
use fanin_flow::{Flows, Module, RoutePlan};
use fanin_push::Channels;
use fanin_server::{LoadError, Loader, is_configuration};
use fanin_static::Static;
use fanin_tls::Listener;
use fanin_upstream::Upstreams;

use super::models::{self, ModelService};
use super::proxy::Proxied;
use super::rpc;
use super::spans::Names;
use super::{App, param_names};
use crate::logging;
use crate::recorder::Recorder;

/// Where configurations come from, and how each is loaded.
#[derive(Clone, Default)]
pub struct Origin {
    /// The folder that holds fanin.toml, or the file itself.
    pub path: PathBuf,
    /// Environment variables that take precedence over those of the process.
    pub variables: Vec<(String, String)>,
    /// Replaces `[server]` of the file.
    pub server: Option<fanin_config::Server>,
    /// Replaces `[recorder]` of the file.
    pub recorder: Option<fanin_config::Recorder>,
    /// For `check`: models are scanned, not loaded, and no address is bound.
    pub dry_run: bool,
    /// For `lsp`: what the editor has open.
    pub editing: Editing,
}

impl Origin {
    /// A folder as it is.
    pub fn folder(path: impl Into<PathBuf>) -> Origin {
        Origin { path: path.into(), ..Origin::default() }
    }

    /// Reads the configuration and makes an application from it. `old` is the running one, if any.
    ///
    /// # Errors
    /// Every error, at once.
    pub fn load(&self, old: Option<&App>) -> Result<App, Vec<Diagnostic>> {
        let (app, found) = self.inspect(old);
        app.ok_or(found)
    }

    /// The same, with warnings. If fanin.toml has errors, the flows are checked with what could be read of it.
    pub fn inspect(&self, old: Option<&App>) -> (Option<App>, Vec<Diagnostic>) {
        self.examine(old, &mut Seen::default())
    }

    /// The same for `check` and editors, with everything that was seen.
    pub fn dry_run(&self) -> DryRun {
        let mut seen = Seen::default();
        let (app, diagnostics) = self.examine(None, &mut seen);
        DryRun { app, diagnostics, seen }
    }

    fn examine(&self, old: Option<&App>, seen: &mut Seen) -> (Option<App>, Vec<Diagnostic>) {
        let variable = |name: &str| {
            let ours = self.variables.iter().find(|(ours, _)| ours == name).map(|(_, value)| value.clone());
            ours.or_else(|| std::env::var(name).ok())
        };
        let inspection = Config::inspect_edited(&self.path, &variable, &self.editing);
        let mut broken = inspection.has_errors();
        let Inspection { config, mut invalid_upstreams, mut diagnostics } = inspection;
        let Some(mut config) = config else { return (None, diagnostics) };
        if let Some(server) = &self.server {
            config.server = server.clone();
        }
        if let Some(recorder) = &self.recorder {
            config.recorder = recorder.clone();
        }
        let file = self.file().display().to_string();
        if let Some(problem) = logging::check(&config.server.log) {
            diagnostics.push(Diagnostic::file(&file, problem));
            broken = true;
        }
        if let (Some(every), false, None) = (config.server.heap_profile, self.dry_run, old) {
            // Before flows and models are loaded, so that the profile includes them.
            fanin_heap::start(every);
        }
        if config.models.is_some() && !self.dry_run {
            // The models' many HTTP/2 connections need it; flows that allocate much would become slower.
            fanin_heap::return_soon();
        }
        let before = old.map(|old| old.upstreams.clone());
        let upstreams = loop {
            let usable = config.upstreams.values().filter(|upstream| !invalid_upstreams.contains(&upstream.name));
            let made = match &before {
                Some(before) => before.reload(usable),
                None => Upstreams::new(usable),
            };
            match made {
                Ok(upstreams) => break upstreams,
                Err(errors) => {
                    broken = true;
                    let known = invalid_upstreams.len();
                    for error in &errors {
                        let message = format!("upstreams.{}.{}: {}", error.upstream, error.key, error.detail);
                        diagnostics.push(Diagnostic::file(&file, message));
                        if !invalid_upstreams.iter().any(|name| *name == *error.upstream) {
                            invalid_upstreams.push(error.upstream.to_string());
                        }
                    }
                    if invalid_upstreams.len() == known {
                        return (None, diagnostics);
                    }
                }
            }
        };
        let more = modules_of_editors(&config);
        let checked = Flows::check_with(&config, &upstreams, &invalid_upstreams, broken, &more);
        seen.files = checked.files;
        seen.over_budget = checked.over_budget.filter(|_| !broken);
        diagnostics.extend(checked.diagnostics);
        let (Some(mut flows), false) = (checked.flows, broken) else { return (None, diagnostics) };
        if let Some(old) = old {
            flows.keep_threads(&old.flows);
        }
        let models_tls = config.models.as_ref().and_then(|models| models.tls.as_ref());
        let before_tls = old.and_then(|old| old.models_tls.as_deref());
        // The server loads its own once more, with the sessions of the one before.
        let listeners = [("server", config.server.tls.as_ref(), None), ("models", models_tls, before_tls)];
        let mut loaded = [None, None];
        for ((section, tls, before), loaded) in listeners.into_iter().zip(&mut loaded) {
            match tls.map(|tls| Listener::load(tls, before)).transpose() {
                Ok(listener) => {
                    let warnings = listener.iter().flat_map(Listener::warnings);
                    diagnostics.extend(
                        warnings.map(|what| Diagnostic::file(&file, format!("{section}.tls: {what}")).warning()),
                    );
                    *loaded = listener;
                }
                Err(error) => {
                    broken = true;
                    diagnostics.push(Diagnostic::file(&file, format!("{section}.tls.{error}")));
                }
            }
        }
        if broken {
            return (None, diagnostics);
        }
        let [_, models_tls] = loaded;
        let side = match &config.models {
            Some(models) if self.dry_run => {
                diagnostics.extend(models::check_repository(models, &file));
                Ok(None)
            }
            Some(models) => ModelService::load(models, &file, old.and_then(|old| old.models.as_ref())).map(Some),
            None => Ok(None),
        };
        let models = match side {
            Ok(models) => models,
            Err(problems) => {
                diagnostics.extend(problems);
                return (None, diagnostics);
            }
        };
        let methods = match rpc::load(&config, &file) {
            Ok(methods) => methods,
            Err(problems) => {
                diagnostics.extend(problems);
                return (None, diagnostics);
            }
        };
        let target = match Target::new(&config.push) {
            Ok(target) => target,
            Err(problem) => {
                diagnostics.push(Diagnostic::file(&file, problem));
                return (None, diagnostics);
            }
        };
        let spans = match fanin_otlp::check(config.otlp.as_ref(), config.tracing.as_ref()) {
            Ok(spans) => spans,
            Err(problem) => {
                diagnostics.push(Diagnostic::file(&file, problem));
                return (None, diagnostics);
            }
        };
        let guards_before = old.map(|old| old.guards.clone());
        let guards = match Guards::load(&config, guards_before.as_deref()) {
            Ok(guards) => Arc::new(guards),
            Err(problems) => {
                diagnostics.extend(problems.into_iter().map(|problem| Diagnostic::file(&file, problem)));
                return (None, diagnostics);
            }
        };
        let channels = old.map_or_else(|| Channels::new(config.push.clone()), |old| old.channels.clone());
        let broker = old.map_or_else(|| Broker::new(channels.clone()), |old| old.broker.clone());
        flows.set_channels(&channels);
        let proxied = config.routes.iter().map(|route| {
            let upstream = upstreams.iter().find(|upstream| Some(&**upstream.name()) == route.proxy.as_deref())?;
            Some(Proxied::new(upstream, config.server.tls.is_some()))
        });
        let proxied = proxied.collect();
        let mut version = DefaultHasher::new();
        for file in &seen.files {
            file.text.hash(&mut version);
        }
        let health = old.map(|old| old.health.clone()).unwrap_or_else(|| {
            let health = rpc::Health::default();
            health.serves(&methods.services);
            Arc::new(health)
        });
        let app = App {
            channels,
            broker,
            target,
            begin: Once::new(),
            fetch: Once::new(),
            methods,
            statics: Static::of_routes(&config),
            health,
            masked: config.masked().to_string(),
            version: version.finish(),
            proxied,
            params: config.routes.iter().map(|route| param_names(&route.path)).collect(),
            flows: Arc::new(flows),
            upstreams: Arc::new(upstreams),
            guards,
            guards_before: Mutex::new(guards_before),
            models,
            models_tls: models_tls.map(Arc::new),
            before: Mutex::new(before),
            recordings: old.map_or_else(Arc::default, |old| old.recordings.clone()),
            recorder: old.map_or_else(|| Recorder::new(&config), |old| old.recorder.clone()),
            labels: config.routes.iter().map(|route| route.label().into()).collect(),
            export: old.map(|old| old.export.clone()).unwrap_or_default(),
            spans,
            names: Names::of(&config),
            warnings: diagnostics.clone(),
            config,
        };
        (Some(app), diagnostics)
    }

    fn file(&self) -> PathBuf {
        if self.path.is_dir() { self.path.join(fanin_config::FILE_NAME) } else { self.path.clone() }
    }

    fn dir(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !self.path.is_dir() && !parent.as_os_str().is_empty() => parent,
            Some(_) if !self.path.is_dir() => Path::new("."),
            _ => &self.path,
        }
    }
}

/// What an examination comes by.
#[derive(Default)]
struct Seen {
    /// The flow files that were read.
    files: Vec<Arc<Source>>,
    /// Flows that are not served because routes exceed their budgets, and for nothing else.
    over_budget: Option<Flows>,
}

/// What is found in a folder that is not served.
pub struct DryRun {
    app: Option<App>,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    seen: Seen,
}

impl DryRun {
    /// The plan of each route, if nothing is wrong but budgets: the plan shows why one is exceeded.
    pub fn plans(&self) -> Option<Vec<RoutePlan>> {
        self.app.as_ref().map(App::flows).or(self.seen.over_budget.as_ref()).map(Flows::plans)
    }

    /// The flow files that were read.
    pub fn files(self) -> Vec<Arc<Source>> {
        self.seen.files
    }
}

/// Gives the server its applications: first the one that was loaded and checked before the start, then a new one at each reload.
pub struct AppLoader {
    origin: Origin,
    first: Mutex<Option<App>>,
    /// Files of any name that the configuration uses.
    files: Mutex<Vec<PathBuf>>,
}

impl AppLoader {
    /// A loader whose first application is loaded already.
    pub fn new(origin: Origin, first: App) -> AppLoader {
        let files = Mutex::new(files_of(&first.config));
        AppLoader { origin, first: Mutex::new(Some(first)), files }
    }
}

impl Loader for AppLoader {
    type App = App;

    fn load(&self, old: Option<&Arc<App>>) -> Result<App, LoadError> {
        // The lock is held for a `take` only, which can't panic.
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(first), None) = (first, old) {
            return Ok(first);
        }
        let loaded = self.origin.load(old.map(|old| &**old));
        let app = loaded.map_err(|found| LoadError::from(found.iter().map(ToString::to_string).collect::<Vec<_>>()))?;
        // The locks are held for a moment, which can't panic.
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = files_of(&app.config);
        for warning in &app.warnings {
            tracing::warn!("{warning}");
        }
        Ok(app)
    }

    fn watch(&self) -> Option<PathBuf> {
        Some(self.origin.dir().to_path_buf())
    }

    fn concerns(&self, path: &Path) -> bool {
        let is_used = || {
            let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.iter().any(|file| file.file_name() == path.file_name())
        };
        is_configuration(path) || is_used()
    }
}

/// The files of `[auth]`, of `[signing]` and of TLS.
pub(super) fn files_of(config: &Config) -> Vec<PathBuf> {
    let listeners = config.server.tls.iter().chain(config.models.iter().filter_map(|models| models.tls.as_ref()));
    let upstreams = config.upstreams.values().filter_map(|upstream| upstream.tls.as_ref());
    let of_upstreams = upstreams.flat_map(|tls| [&tls.ca, &tls.cert, &tls.key]).flatten();
    let of_auth = config.auth.values().flat_map(Auth::files);
    let of_signing = config.signing.iter().flat_map(|signing| &signing.key_files);
    of_auth.chain(of_signing).chain(listeners.flat_map(ServerTls::files)).chain(of_upstreams).cloned().collect()
}

/// What files that an editor has open may load besides flows' own modules: they may be tests.
fn modules_of_editors(config: &Config) -> Vec<Module> {
    match config.editing.flows() {
        #[cfg(feature = "test")]
        [_, ..] => vec![fanin_test::module()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(toml: &str, flow: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
        std::fs::write(dir.path().join("page.star"), flow).expect("written");
        dir
    }

    const TOML: &str = "[upstreams.a]\nurl = '${A_URL}'\n[[routes]]\npath = '/{id}'\nflow = 'page.star:page'\n";
    const FLOW: &str = "load('@upstreams', 'a')\ndef page(req):\n    return a.get('/')\n";

    fn origin(dir: &tempfile::TempDir) -> Origin {
        Origin { variables: vec![("A_URL".into(), "http://127.0.0.1:1".into())], ..Origin::folder(dir.path()) }
    }

    #[test]
    fn given_variables_take_precedence_and_files_are_found() {
        let dir = folder(TOML, FLOW);
        let app = origin(&dir).load(None).unwrap_or_else(|found| panic!("{found:?}"));
        assert_eq!(app.config.upstreams["a"].urls[0].as_str(), "http://127.0.0.1:1/");
        assert_eq!(app.params[0].iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["id"]);
        assert_eq!(origin(&dir).dir(), dir.path());
        let file = Origin::folder(dir.path().join("fanin.toml"));
        assert_eq!((file.dir(), file.file()), (dir.path(), dir.path().join("fanin.toml")));
        assert_eq!(Origin::folder("fanin.toml").dir(), Path::new("."));
    }

    #[test]
    fn an_error_of_a_flow_has_its_position() {
        let dir = folder(TOML, "load('@upstreams', 'b')\ndef page(req):\n    return 1 +\n");
        let Err(found) = origin(&dir).load(None) else { panic!("it is wrong") };
        assert!(found.iter().any(|found| found.to_string().contains("page.star:3:")), "{found:?}");
        let dir = folder(TOML, "def pages(req):\n    return 1\n");
        let Err(found) = origin(&dir).load(None) else { panic!("it is wrong") };
        assert!(found[0].to_string().contains("fanin.toml:5:8: "), "{found:?}");
    }

    #[test]
    fn a_reload_keeps_upstreams_that_did_not_change() {
        let dir = folder(TOML, FLOW);
        let loader = AppLoader::new(origin(&dir), origin(&dir).load(None).unwrap_or_else(|found| panic!("{found:?}")));
        let first = Arc::new(loader.load(None).expect("the first"));
        let second = loader.load(Some(&first)).expect("a reload");
        let upstream = |app: &App| app.upstreams.get("a").expect("there").clone();
        assert!(Arc::ptr_eq(&upstream(&first), &upstream(&second)));
        std::fs::write(dir.path().join("fanin.toml"), "[[routes]]\n").expect("written");
        let error = loader.load(Some(&first)).err().expect("it is wrong now");
        assert!(error.to_string().contains("fanin.toml:1:1: routes[0] needs `path`"), "{error}");
    }
}
