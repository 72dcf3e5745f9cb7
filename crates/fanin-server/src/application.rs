//! The interface to the program: an application, its workers, and a loader that makes applications.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fanin_tracecontext::Annotations;
use http::Method;
use prometheus_client::registry::Registry;

use crate::{
    Activity, GuardedHead, Incident, LoadError, MemoryPressure, Pass, Request, RequestEnd, Response, RouteSpec, Verdict,
};

/// One loaded configuration with everything compiled. All workers share it. A reload replaces it as a whole; requests that run on the
/// old one end there.
pub trait Application: Send + Sync + 'static {
    /// The application on one worker thread.
    type Worker: Worker;

    /// `[server]`. Read at the start and after each reload; `listen`, `admin` and `workers` only at the start.
    fn server(&self) -> &fanin_config::Server;

    /// `[tracing]`, if the configuration has it. Read as [`server`](Self::server).
    fn tracing(&self) -> Option<&fanin_config::Tracing> {
        None
    }

    /// Whether the calls of requests are recorded for [`Worker::request_ended`].
    fn records_traces(&self) -> bool {
        false
    }

    /// Files that a change of causes a reload, too, wherever they are: see [`Loader::watch`].
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The routes. [`Request::route`] is an index into this list.
    fn routes(&self) -> Vec<RouteSpec>;

    /// Makes a worker's part. Called on that worker's thread, inside its runtime.
    fn worker(self: &Arc<Self>, context: WorkerContext) -> Self::Worker;

    /// Adds the application's metrics to a registry, which is a fresh one for each loaded application.
    fn register_metrics(&self, _registry: &mut Registry) {}

    /// Adds the exemplars of the application's histograms.
    fn exemplars(&self, _to: &mut Annotations) {}

    /// The configuration as JSON for the admin page `/config`, with secrets masked.
    fn config(&self) -> String {
        "{}".into()
    }

    /// The work that makes the routes' plans as a JSON list, for the dashboard. `None` if there are none.
    fn plans(&self) -> Option<DebugWork> {
        None
    }

    /// An admin page of the application, below `/debug/` or `/requests`: the work that makes it, which runs on a thread of its own, few at a
    /// time. `None` if there is no such page now.
    fn debug_page(&self, _method: &Method, _path: &str, _query: Option<&str>) -> Option<DebugWork> {
        None
    }

    /// Those of these pages that exist now, for the index of the admin pages.
    fn debug_pages(&self) -> Vec<PageLink> {
        Vec::new()
    }

    /// The server has noticed something that deserves a look at the last requests. Called on a thread that must not wait.
    fn incident(&self, _incident: &Incident) {}

    /// Describes a value that was passed to [`Activity::set`], such as a flow with file and line. For the watchdog's message.
    fn describe(&self, activity: u64) -> String {
        format!("activity {activity}")
    }
}

/// Makes a page. It may take a second.
pub type DebugWork = Box<dyn FnOnce() -> DebugPage + Send>;

/// A link to an admin page. The text is plain: characters that HTML reserves are not escaped.
#[derive(Clone, Copy, Debug)]
pub struct PageLink {
    /// Path and query.
    pub href: &'static str,
    /// What the page shows, in one line.
    pub description: &'static str,
}

/// A page that shows the internals of the running program.
#[derive(Clone, Debug)]
pub struct DebugPage {
    /// Its `content-type`.
    pub kind: &'static str,
    /// Its body.
    pub body: Vec<u8>,
}

/// The application on one worker thread. It need not be `Send`. It lives while it is current or one of its requests runs.
pub trait Worker: 'static {
    /// The future of a response. A concrete type saves an allocation for each request.
    type Future: Future<Output = Response> + 'static;

    /// Answers a request that has been admitted and whose body is complete.
    ///
    /// `tokio::task::spawn_local` works here and in the future. The future is dropped when the client disconnects. Work that must go on
    /// then belongs in a task of its own, together with the request's [`permit`](Request::permit). The future is also dropped 100 ms
    /// after [`Request::deadline`]: the application should end by itself at the deadline and report what it was waiting for.
    fn handle(&self, request: Request) -> Self::Future;

    /// Decides about a request to a [guarded](crate::RouteSpec::guarded) route, before it is admitted and its body is read.
    fn guard(&self, _head: &GuardedHead<'_>) -> Verdict {
        Verdict::Pass(Pass::default())
    }

    /// A request has ended whose trace is recorded, whoever answered it. Whether its spans are sent.
    fn request_ended(&self, _end: &RequestEnd<'_>) -> bool {
        false
    }

    /// How many requests are CPU-bound and share the worker by time slices, one in each event loop iteration. While requests queue for
    /// the worker, few more start beside them.
    fn computing(&self) -> usize {
        0
    }

    /// The server drains: what the application serves on listeners of its own should end as well.
    fn drain(&self) {}

    /// Whether it still serves on listeners of its own. The server waits for that, as for its own connections.
    fn is_busy(&self) -> bool {
        false
    }
}

/// Makes applications: at the start, and for each reload.
pub trait Loader: Send + Sync + 'static {
    /// What it makes.
    type App: Application;

    /// Reads the configuration and makes an application, while `old` keeps running. May block: it has a thread of its own. On an error
    /// `old` stays in force.
    ///
    /// # Errors
    /// All diagnostics at once.
    fn load(&self, old: Option<&Arc<Self::App>>) -> Result<Self::App, LoadError>;

    /// The folder whose changed files cause a reload, where `[server] reload` is on.
    fn watch(&self) -> Option<PathBuf> {
        None
    }

    /// Whether a change of this file below [`watch`](Self::watch) causes a reload. By default: TOML,
    /// Starlark, JSON, certificate and protobuf files, and the links by which Kubernetes switches mounted folders.
    fn concerns(&self, path: &Path) -> bool {
        is_configuration(path)
    }
}

/// Whether a file is of a kind that configurations are made of: what [`Loader::concerns`] tells by default.
pub fn is_configuration(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    name.starts_with("..data")
        || (!name.starts_with('.')
            && matches!(
                extension,
                "toml" | "star" | "json" | "pem" | "crt" | "key" | "crl" | "proto" | "binpb" | "desc"
            ))
}

/// Which worker an application's part is made for.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// The worker's number, from 0.
    pub index: usize,
    /// How many workers there are.
    pub workers: usize,
    /// Where the application records what the worker is running, for the watchdog.
    pub activity: Activity,
    /// For what the application serves on listeners of its own. For requests on routes the server checks it.
    pub memory: MemoryPressure,
}
