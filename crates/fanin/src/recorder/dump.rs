//! Writes the last requests to a file when something deserves a look at them.
//!
//! Whoever notices it only starts a thread, which waits for a moment, so that the requests that suffered are in the file, and writes.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fanin_trace::Cause;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde_json::json;

use super::{Recorder, STEP};

/// One file at most in this time, for each kind of cause.
const EVERY: Duration = Duration::from_secs(60);
/// From the cause to the file.
const AFTER: Duration = Duration::from_secs(2);
/// Computing time of the explanations in a file.
const BUDGET: Duration = Duration::from_secs(2);
/// Longest text of a cause.
const MAX_DETAIL: usize = 1000;
/// What the names of files begin and end with. A reload watches other endings.
const NAME: (&str, &str) = ("requests-", ".dump");

/// What a file is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A panic.
    Panic,
    /// A worker is stalled.
    Stall,
    /// A route has missed its objective.
    Objective,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Panic, Kind::Stall, Kind::Objective];

    fn name(self) -> &'static str {
        match self {
            Kind::Panic => "panic",
            Kind::Stall => "stall",
            Kind::Objective => "objective",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    cause: &'static str,
    outcome: &'static str,
}

/// The files of a recorder.
#[derive(Debug, Default)]
pub(super) struct Dumps {
    /// When one was last written for each kind.
    last: Mutex<[Option<Instant>; Kind::ALL.len()]>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process ends: those that wait write at once.
    ending: Mutex<bool>,
    ended: Condvar,
    counts: Family<Labels, Counter>,
}

impl Dumps {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Files with the last requests, by what they were written for";
        registry.register("fanin_recorder_dumps", help, self.counts.clone());
        for kind in Kind::ALL {
            for outcome in ["written", "failed", "skipped"] {
                drop(self.counts.get_or_create(&Labels { cause: kind.name(), outcome }));
            }
        }
    }

    fn count(&self, kind: Kind, outcome: &'static str) {
        self.counts.get_or_create(&Labels { cause: kind.name(), outcome }).inc();
    }

    /// Whether a file may be written now.
    fn admits(&self, kind: Kind) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut last[kind as usize];
        let is_due = last.is_none_or(|last| last.elapsed() >= EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    fn wait(&self) {
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_timeout_while(ending, AFTER, |ending| !*ending));
    }
}

impl Recorder {
    /// Something deserves a look at the last requests. Returns at once; a thread of its own writes a file, if the configuration wants that.
    #[cold]
    pub fn dump(self: &Arc<Recorder>, kind: Kind, mut detail: String) {
        let config = self.config.load_full();
        let Some(folder) = config.dump.clone() else { return };
        if !self.dumps.admits(kind) {
            return self.dumps.count(kind, "skipped");
        }
        detail.truncate((0..=MAX_DETAIL.min(detail.len())).rev().find(|at| detail.is_char_boundary(*at)).unwrap_or(0));
        let cause = Cause { kind: kind.name().to_owned(), detail };
        let recorder = self.clone();
        let write = move || {
            recorder.dumps.wait();
            match recorder.write(&folder, &cause, config.dump_size, config.dump_files) {
                Ok((file, requests)) => {
                    recorder.dumps.count(kind, "written");
                    let (file, cause) = (file.display(), &cause.kind);
                    tracing::warn!(target: "fanin::recorder", cause, %file, requests, "the last requests are in a file");
                }
                Err(error) => {
                    recorder.dumps.count(kind, "failed");
                    let (folder, cause) = (folder.display(), &cause.kind);
                    tracing::error!(target: "fanin::recorder", cause, %folder, %error, "the last requests cannot be written");
                }
            }
        };
        match thread::Builder::new().name("fanin-dump".to_owned()).spawn(write) {
            Ok(thread) => {
                let mut threads = self.dumps.threads.lock().unwrap_or_else(PoisonError::into_inner);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(_) => self.dumps.count(kind, "failed"),
        }
    }

    /// The process ends: waits for the files that are being written.
    pub fn end_dumps(&self) {
        *self.dumps.ending.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.dumps.ended.notify_all();
        let threads = std::mem::take(&mut *self.dumps.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One that panicked has been logged.
            let _ = thread.join();
        }
    }

    /// Writes a file, and deletes the oldest ones. Gives its name, and how many requests are in it.
    fn write(&self, folder: &Path, cause: &Cause, size: usize, files: usize) -> io::Result<(PathBuf, usize)> {
        let (bytes, requests) = self.contents(cause, size);
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let date = fanin_trace::date(at.as_micros() as u64).replace([':', '-'], "");
        let name = format!("{}{date}-{}{}", NAME.0, cause.kind, NAME.1);
        let (part, file) = (folder.join(format!(".{name}")), folder.join(name));
        let written = private(&part).and_then(|mut to| to.write_all(&bytes)).and_then(|()| fs::rename(&part, &file));
        if written.is_err() {
            drop(fs::remove_file(&part));
        }
        written?;
        delete_oldest(folder, files)?;
        Ok((file, requests))
    }

    /// The newest requests that fit into so many bytes, and their number. Those that were recorded in full are explained, while there is time.
    fn contents(&self, cause: &Cause, size: usize) -> (Vec<u8>, usize) {
        let end = Instant::now() + BUDGET;
        let all = self.requests();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let head = json!({"version": env!("CARGO_PKG_VERSION"), "written_unix_us": now, "cause": cause});
        let mut text = head.to_string();
        // The rest of the object follows.
        text.pop();
        text.push_str(",\"requests\":[");
        let mut written = 0;
        for request in &all {
            let left = end.saturating_duration_since(Instant::now());
            let step = (request.is_full() && !left.is_zero()).then_some(STEP);
            // A trace is numbers and texts, which can always be written.
            let one = serde_json::to_string(&request.trace(step, left)).unwrap_or_default();
            if text.len() + one.len() + 64 > size {
                break;
            }
            if written > 0 {
                text.push_str(",\n");
            }
            text.push_str(&one);
            written += 1;
        }
        text.push_str(&format!("],\"left_out\":{}}}\n", all.len() - written));
        (text.into_bytes(), written)
    }
}

/// A new file that only its owner may read: paths and queries may be nobody else's business.
fn private(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Keeps the newest files. Their names say when they were written.
fn delete_oldest(folder: &Path, files: usize) -> io::Result<()> {
    let mut ours: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(NAME.0) && name.ends_with(NAME.1) {
            ours.push(path);
        }
    }
    ours.sort();
    let surplus = ours.len().saturating_sub(files);
    ours[..surplus].iter().try_for_each(fs::remove_file)
}

#[cfg(test)]
mod tests {
    use fanin_config::Config;
    use fanin_trace::Dump;

    use super::*;

    fn recorder(folder: &Path) -> Arc<Recorder> {
        let mut config = Config::default();
        config.recorder.dump = Some(folder.to_owned());
        config.recorder.dump_files = 2;
        Recorder::new(&config)
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        all.sort();
        all
    }

    fn counted(recorder: &Recorder, cause: &'static str, outcome: &'static str) -> u64 {
        recorder.dumps.counts.get_or_create(&Labels { cause, outcome }).get()
    }

    #[test]
    fn a_panic_of_any_thread_is_a_cause() {
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = recorder(folder.path());
        let before = std::panic::take_hook();
        super::super::dump_on_panic(recorder.clone());
        let panicked = thread::spawn(|| panic!("expected by this test")).join();
        std::panic::set_hook(before);
        assert!(panicked.is_err());
        recorder.end_dumps();
        let [file] = &files(folder.path())[..] else { panic!("{:?}", files(folder.path())) };
        let dump = Dump::read(&fs::read(file).expect("it can be read")).expect("it is one");
        let cause = dump.cause.expect("there is one");
        assert_eq!(cause.kind, "panic");
        assert!(cause.detail.contains("expected by this test") && cause.detail.contains("dump.rs"), "{}", cause.detail);
        assert_eq!(counted(&recorder, "panic", "written"), 1);
    }

    #[test]
    fn files_are_few_and_rare() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("mine.txt"), "").expect("written");
        for name in ["requests-20200101T000000.000Z-stall.dump", "requests-20200102T000000.000Z-panic.dump"] {
            fs::write(folder.path().join(name), "").expect("written");
        }
        let recorder = recorder(folder.path());
        recorder.end_dumps();
        recorder.dump(Kind::Stall, "é".repeat(1000));
        recorder.dump(Kind::Stall, "again".to_owned());
        recorder.end_dumps();
        assert_eq!((counted(&recorder, "stall", "written"), counted(&recorder, "stall", "skipped")), (1, 1));
        let files = files(folder.path());
        let names: Vec<&str> =
            files.iter().map(|path| path.file_name().and_then(|name| name.to_str()).expect("a name")).collect();
        assert_eq!((names.len(), names[0]), (3, "mine.txt"), "{names:?}");
        assert!(names[1].starts_with("requests-20200102") && names[2].ends_with("Z-stall.dump"), "{names:?}");
        let dump = Dump::read(&fs::read(&files[2]).expect("it can be read")).expect("it is one");
        assert_eq!(dump.cause.map(|cause| cause.detail.len()), Some(MAX_DETAIL));
    }

    #[test]
    fn a_folder_that_is_gone_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let recorder = recorder(folder.path());
        drop(folder);
        recorder.dump(Kind::Objective, String::new());
        recorder.end_dumps();
        assert_eq!(counted(&recorder, "objective", "failed"), 1);
        // Without a folder, nothing happens.
        let off = Recorder::new(&Config::default());
        off.dump(Kind::Stall, String::new());
        assert_eq!(counted(&off, "stall", "skipped") + counted(&off, "stall", "failed"), 0);
    }
}
