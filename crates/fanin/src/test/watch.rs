//! Runs something again whenever a file of a folder changes.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use notify::{Event, EventKind, RecursiveMode, Watcher};

use crate::report;

/// Editors write a file in several steps: changes that follow each other within this belong together.
const PAUSE: Duration = Duration::from_millis(100);
/// Files whose changes matter.
const WATCHED: [&str; 4] = ["star", "toml", "proto", "json"];

/// Runs `what` at each change, until the process is ended. Returns only if the folder cannot be watched.
pub fn again(dir: &Path, mut what: impl FnMut()) -> ExitCode {
    let (changes, received) = channel();
    let dir = if dir.is_dir() { dir } else { dir.parent().unwrap_or(Path::new(".")) };
    let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| matters(&event)) {
            // The receiver lives as long as the process.
            let _ = changes.send(());
        }
    });
    let watched = watcher.and_then(|mut watcher| watcher.watch(dir, RecursiveMode::Recursive).map(|()| watcher));
    let _watcher = match watched {
        Ok(watcher) => watcher,
        Err(error) => {
            report::chain(&error);
            return ExitCode::FAILURE;
        }
    };
    eprintln!("waiting for changes below {} (Ctrl-C ends)", dir.display());
    while received.recv().is_ok() {
        while !matches!(received.recv_timeout(PAUSE), Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) {
        }
        eprintln!();
        what();
    }
    ExitCode::FAILURE
}

fn matters(event: &Event) -> bool {
    let is_change = matches!(event.kind, EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_));
    let is_ours = |path: &std::path::PathBuf| {
        path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| WATCHED.contains(&ending))
            // Written by a run itself.
            && !path.to_string_lossy().ends_with(".snapshots.json")
    };
    is_change && event.paths.iter().any(is_ours)
}
