//! What the program gives to the server: an application, its workers, and a loader that makes applications.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus_client::registry::Registry;

use crate::{Activity, LoadError, MemoryPressure, Request, Response, RouteSpec};

/// One loaded configuration with everything compiled. All workers share it; a reload replaces it as a whole, and requests
/// that run on the old one end there.
pub trait Application: Send + Sync + 'static {
    /// The application on one worker thread.
    type Worker: Worker;

    /// `[server]`. Read at the start and after each reload; `listen`, `admin` and `workers` only at the start.
    fn server(&self) -> &fanin_config::Server;

    /// The routes. The place in this list is [`Request::route`].
    fn routes(&self) -> Vec<RouteSpec>;

    /// Makes a worker's part. Called on that worker's thread, inside its runtime.
    fn worker(self: &Arc<Self>, context: WorkerContext) -> Self::Worker;

    /// Adds the application's metrics to a registry, which is a fresh one for each loaded application.
    fn register_metrics(&self, _registry: &mut Registry) {}

    /// The configuration as JSON for the admin page `/config`, with secrets masked.
    fn config(&self) -> String {
        "{}".into()
    }

    /// An admin page of the application's own, below `/debug/`: the work that makes it, which is done on a thread of its own, one at
    /// a time. `None` if there is no such page now.
    fn debug_page(&self, _path: &str, _query: Option<&str>) -> Option<DebugWork> {
        None
    }

    /// Words for a value that was given to [`Activity::set`], such as a flow with file and line. For the watchdog's message.
    fn describe(&self, activity: u64) -> String {
        format!("activity {activity}")
    }
}

/// Makes a page. It may take a second.
pub type DebugWork = Box<dyn FnOnce() -> DebugPage + Send>;

/// A page that shows the insides of a running program.
#[derive(Clone, Debug)]
pub struct DebugPage {
    /// Its `content-type`.
    pub kind: &'static str,
    /// What it holds.
    pub body: Vec<u8>,
}

/// The application on one worker thread. It need not be `Send`, and lives as long as it is current or one of its requests
/// runs.
pub trait Worker: 'static {
    /// The answer that is not there yet. A concrete type saves a box for each request.
    type Future: Future<Output = Response> + 'static;

    /// Answers a request that has been admitted and whose body is complete.
    ///
    /// `tokio::task::spawn_local` works here and in the future. The future is dropped when the client leaves; what must then
    /// run on is moved to a task of its own together with the request's [`permit`](Request::permit). It is also dropped
    /// 100 ms after [`Request::deadline`], as a backstop: the application is expected to end by itself at the deadline, and
    /// to say what it was waiting for.
    fn handle(&self, request: Request) -> Self::Future;

    /// How many requests compute for so long that they take turns, one of them each time that the worker looks at its sockets.
    /// Where requests queue for the worker, few more start meanwhile.
    fn computing(&self) -> usize {
        0
    }

    /// The server drains: what the application serves besides, on listeners of its own, should end as well.
    fn drain(&self) {}

    /// Whether it still does, so that the server waits for it, as it waits for its own connections.
    fn is_busy(&self) -> bool {
        false
    }
}

/// Makes applications: at the start, and for each reload.
pub trait Loader: Send + Sync + 'static {
    /// What it makes.
    type App: Application;

    /// Reads the configuration and makes the application aside, `old` being the one that runs. May block: it has a thread of
    /// its own. On an error `old` goes on as if nothing had happened.
    ///
    /// # Errors
    /// All diagnostics at once.
    fn load(&self, old: Option<&Arc<Self::App>>) -> Result<Self::App, LoadError>;

    /// The folder whose changed files cause a reload, where `[server] reload` is on.
    fn watch(&self) -> Option<PathBuf> {
        None
    }

    /// Whether a change of this file, somewhere below [`watch`](Self::watch), is a reason to reload. By default: TOML,
    /// Starlark, JSON, certificate and protobuf files, and the links by which Kubernetes switches mounted folders.
    fn concerns(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
        name.starts_with("..data")
            || (!name.starts_with('.')
                && matches!(extension, "toml" | "star" | "json" | "pem" | "crt" | "key" | "proto" | "binpb" | "desc"))
    }
}

/// Which worker an application's part is made for.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// The worker's number, from 0.
    pub index: usize,
    /// How many workers there are.
    pub workers: usize,
    /// Where the application says what the worker is running, for the watchdog.
    pub activity: Activity,
    /// For what the application serves on listeners of its own: requests on routes are refused by the server.
    pub memory: MemoryPressure,
}
