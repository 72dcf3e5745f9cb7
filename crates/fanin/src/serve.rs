//! `fanin serve`: loads, serves, and maps the end to an exit status.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fanin_server::{BuildInfo, Exit, Handle, Options, StartError};

use crate::app::{App, AppLoader, Origin};
use crate::recorder::dump_on_panic;
use crate::{logging, report};

/// How long the end of the process waits for the last export of spans.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// Loads a configuration, or prints every error.
pub fn load(origin: &Origin) -> Result<App, ExitCode> {
    origin.load(None).map_err(|found| {
        report::to_people(&found);
        ExitCode::FAILURE
    })
}

/// Starts the server with a configuration that has been loaded.
///
/// # Errors
/// An address or a thread is not available.
pub fn start(origin: Origin, app: App, signals: bool) -> Result<Handle, StartError> {
    let build = BuildInfo { version: env!("CARGO_PKG_VERSION") };
    fanin_server::start(AppLoader::new(origin, app), Options { signals, build })
}

/// Serves a folder until a signal ends it.
pub fn serve(dir: &Path) -> ExitCode {
    let origin = Origin::folder(dir);
    let app = match load(&origin) {
        Ok(app) => app,
        Err(code) => return code,
    };
    report::to_people(app.warnings());
    let _flush = match logging::start(&app.config().server.log, app.config().server.log_format) {
        Ok(flush) => flush,
        Err(error) => return failure(&error),
    };
    let (broker, export, recorder) = (app.broker(), app.export(), app.recorder().clone());
    dump_on_panic(recorder.clone());
    match start(origin, app, true) {
        Ok(handle) => {
            let addresses: Vec<String> = handle.addresses().iter().map(ToString::to_string).collect();
            let admin = handle.admin().map_or("off".to_owned(), |admin| admin.to_string());
            tracing::info!(listen = addresses.join(", "), admin, "serving");
            if let Some(probes) = handle.probes() {
                tracing::info!(%probes, "health and readiness");
            }
            let metrics = handle.metrics();
            export.measure(move || metrics.read().unwrap_or_default());
            let exit = handle.wait();
            // What flows have published to the last goes to other instances, too.
            broker.end();
            export.end(LAST_EXPORT);
            recorder.end_dumps();
            end(exit)
        }
        Err(error) => failure(&error),
    }
}

/// The exit status for the way in which a server ended.
pub fn end(exit: Exit) -> ExitCode {
    match exit {
        Exit::Drained => ExitCode::SUCCESS,
        Exit::DrainTimeout => {
            tracing::warn!("some requests were still running at the end of [server] drain_timeout");
            ExitCode::FAILURE
        }
        Exit::Forced | Exit::Failed => ExitCode::FAILURE,
    }
}

/// Prints an error with all its causes.
pub fn failure(error: &dyn std::error::Error) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    eprintln!("error: {text}");
    ExitCode::FAILURE
}
