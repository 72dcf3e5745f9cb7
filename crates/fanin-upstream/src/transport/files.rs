//! A local folder: reads files as text, JSON or lines, counts lines, lists folders.
//!
//! Reading a file blocks its thread, so a few threads of the process do it, never a worker. The upstream's `limit`
//! bounds the calls that reach them. A call that was dropped is stopped at the next part of its file.
//!
//! No path leads outside. `cap-std` has the kernel resolve each path below the folder (`openat2` with
//! `RESOLVE_BENEATH`, or step by step on older kernels), so neither `..` nor a link escapes. The folder is opened for
//! each call, so that a folder replaced by a deployment is seen.

use std::io::{BufRead, BufReader, ErrorKind as IoKind, Read};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use fanin_json::{Doc, Writer, write_str};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::attempt::{Attempt, Phase, Received};
use crate::endpoint::TransportData;
use crate::error::{ERROR_HEADER, ErrorKind, Failure, error_header_value};
use crate::metrics::Extra;

/// Threads that read files, for all upstreams.
const THREADS: usize = 4;
/// Most calls that wait for them. Limits of upstreams are far below.
const QUEUE: usize = 1024;
const CHUNK: usize = 64 * 1024;

/// The folder of an upstream.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// The folder, as its origin keeps it.
#[derive(Debug)]
pub(super) struct FolderData(pub Arc<Folder>);

impl TransportData for FolderData {}

type Reply = oneshot::Sender<Result<Received, Failure>>;

/// Why a file has no answer.
enum ReadError {
    Io(std::io::Error),
    /// A file or name that cannot be read, such as a pipe.
    BadRequest(String),
    Failed(Failure),
    /// The call was dropped.
    Abandoned,
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

impl Folder {
    pub fn new(path: &std::path::Path) -> Arc<Folder> {
        Arc::new(Folder { path: path.to_owned() })
    }

    /// Runs the method that the attempt's path names.
    pub async fn send(self: &Arc<Self>, attempt: &Attempt<'_>) -> Result<Received, Failure> {
        let body = Doc::parse(attempt.request.body.clone(), 2).ok();
        let path = body.as_ref().and_then(|doc| doc.root().index(0)?.as_str());
        let Some(path) = path else { return Ok(error_answer(StatusCode::BAD_REQUEST, "a path must be a string")) };
        let (reply, answer) = oneshot::channel();
        let job = Job {
            folder: self.clone(),
            method: attempt.request.path.path().trim_start_matches('/').to_owned(),
            path: path.into_owned(),
            max_answer: attempt.max_answer,
            reply,
        };
        attempt.phase.set(Phase::Sent);
        attempt.metrics.count(Extra::Sent);
        if !enqueue(job) {
            return Err(Failure::new(ErrorKind::Limit, "too many files are being read"));
        }
        answer.await.unwrap_or_else(|_| Err(Failure::ours("a thread that reads files has ended")))
    }
}

struct Job {
    folder: Arc<Folder>,
    method: String,
    path: String,
    max_answer: usize,
    reply: Reply,
}

/// Queues a job. The threads start with the first one. `false` if the queue is full.
fn enqueue(job: Job) -> bool {
    static THREADS_QUEUE: OnceLock<SyncSender<Job>> = OnceLock::new();
    let queue = THREADS_QUEUE.get_or_init(|| {
        let (sender, jobs) = sync_channel::<Job>(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        for number in 0..THREADS {
            let jobs = jobs.clone();
            let spawned = std::thread::Builder::new().name(format!("fanin-files-{number}")).spawn(move || work(&jobs));
            if let Err(error) = spawned {
                tracing::error!(%error, "no thread for reading files");
            }
        }
        sender
    });
    queue.try_send(job).is_ok()
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // Nothing that can panic runs under the lock.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        if job.reply.is_closed() {
            continue;
        }
        let result = match job.run() {
            Ok(received) => Ok(received),
            Err(ReadError::Abandoned) => continue,
            Err(ReadError::Failed(failure)) => Err(failure),
            Err(ReadError::BadRequest(what)) => Ok(error_answer(StatusCode::BAD_REQUEST, &what)),
            Err(ReadError::Io(error)) => Ok(error_answer(status(&error), &format!("{}: {error}", job.path))),
        };
        let _ = job.reply.send(result);
    }
}

fn status(error: &std::io::Error) -> StatusCode {
    match error.kind() {
        IoKind::NotFound => StatusCode::NOT_FOUND,
        // `cap-std` reports a path that leads outside in this way.
        IoKind::PermissionDenied => StatusCode::FORBIDDEN,
        IoKind::NotADirectory | IoKind::IsADirectory | IoKind::InvalidInput | IoKind::InvalidFilename => {
            StatusCode::BAD_REQUEST
        }
        // A loop of links (ELOOP) has no stable error kind.
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl Job {
    fn run(&self) -> Result<Received, ReadError> {
        let root = Dir::open_ambient_dir(&self.folder.path, ambient_authority()).map_err(|error| {
            let detail = format!("the folder {} cannot be opened: {error}", self.folder.path.display());
            ReadError::Failed(Failure::new(ErrorKind::Connect, detail))
        })?;
        if self.method == "list" {
            return self.list(&root);
        }
        let file = self.open(&root)?;
        match self.method.as_str() {
            "read" => self.read(&file, "text/plain; charset=utf-8"),
            "json" => self.read(&file, "application/json"),
            "lines" => self.lines(&file),
            "count_lines" => self.count_lines(&file),
            other => Err(ReadError::BadRequest(format!("there is no method {other}"))),
        }
    }

    fn open(&self, root: &Dir) -> Result<File, ReadError> {
        let mut options = OpenOptions::new();
        // Otherwise a pipe without a writer would block the thread for ever.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = root.open_with(&self.path, &options)?;
        if !file.metadata()?.is_file() {
            return Err(ReadError::BadRequest(format!("{} is not a file", self.path)));
        }
        Ok(file)
    }

    fn check_abandoned(&self) -> Result<(), ReadError> {
        if self.reply.is_closed() { Err(ReadError::Abandoned) } else { Ok(()) }
    }

    fn check_size(&self, size: u64) -> Result<(), ReadError> {
        if size <= self.max_answer as u64 {
            return Ok(());
        }
        let detail = format!("{} is larger than {} bytes (max_answer)", self.path, self.max_answer);
        Err(ReadError::Failed(Failure::new(ErrorKind::TooLarge, detail)))
    }

    fn not_utf8(&self) -> ReadError {
        ReadError::Failed(Failure::new(ErrorKind::Decode, format!("{} is not UTF-8 text", self.path)))
    }

    fn read(&self, file: &File, kind: &'static str) -> Result<Received, ReadError> {
        let size = file.metadata()?.len();
        self.check_size(size)?;
        let mut bytes = Vec::with_capacity(size as usize);
        loop {
            self.check_abandoned()?;
            let read = file.take(CHUNK as u64).read_to_end(&mut bytes)?;
            // The file may have grown.
            self.check_size(bytes.len() as u64)?;
            if read == 0 {
                break;
            }
        }
        if std::str::from_utf8(&bytes).is_err() {
            return Err(self.not_utf8());
        }
        // An empty text is JSON's empty string: an answer without a body would not be a text.
        if bytes.is_empty() && kind.starts_with("text") {
            return Ok(json(b"\"\"".to_vec()));
        }
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        Ok(with_headers(StatusCode::OK, headers, bytes))
    }

    fn lines(&self, file: &File) -> Result<Received, ReadError> {
        // One byte more, to detect a line that exceeds the bound.
        let mut reader = BufReader::with_capacity(CHUNK, file.take(self.max_answer as u64 + 1));
        let mut out = vec![b'['];
        let mut line = Vec::new();
        let mut total = 0;
        for count in 0_u64.. {
            if count % 256 == 0 {
                self.check_abandoned()?;
            }
            line.clear();
            total += reader.read_until(b'\n', &mut line)?;
            if line.is_empty() {
                break;
            }
            self.check_size(total.max(out.len()) as u64)?;
            let text = line.strip_suffix(b"\n").map_or(&*line, |line| line.strip_suffix(b"\r").unwrap_or(line));
            if count > 0 {
                out.push(b',');
            }
            write_str(&mut out, std::str::from_utf8(text).map_err(|_| self.not_utf8())?);
        }
        out.push(b']');
        Ok(json(out))
    }

    /// Counts as many lines as `lines` would return, of a file of any size.
    fn count_lines(&self, mut file: &File) -> Result<Received, ReadError> {
        let mut buffer = vec![0; CHUNK];
        let (mut count, mut last) = (0_u64, b'\n');
        loop {
            self.check_abandoned()?;
            let read = file.read(&mut buffer)?;
            let Some(end) = buffer[..read].last() else { break };
            last = *end;
            count += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
        }
        Ok(json((count + u64::from(last != b'\n')).to_string().into_bytes()))
    }

    fn list(&self, root: &Dir) -> Result<Received, ReadError> {
        let folder = if self.path.is_empty() { root.try_clone()? } else { root.open_dir(&self.path)? };
        let mut entries = Vec::new();
        let mut size = 0;
        for entry in folder.entries()? {
            self.check_abandoned()?;
            let entry = entry?;
            // A name that is not UTF-8 cannot be requested either.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type()?;
            let length = if kind.is_file() { entry.metadata().map_or(0, |it| it.len()) } else { 0 };
            let word = match kind {
                kind if kind.is_file() => "file",
                kind if kind.is_dir() => "folder",
                kind if kind.is_symlink() => "link",
                _ => "other",
            };
            size += name.len() + 48;
            self.check_size(size as u64)?;
            entries.push((name, word, length));
        }
        entries.sort_unstable();
        let mut body = Vec::with_capacity(size);
        let mut out = Writer::new(&mut body);
        out.begin_array();
        for (name, kind, length) in &entries {
            out.begin_object();
            out.key("name");
            out.str(name);
            out.key("kind");
            out.str(kind);
            if *kind == "file" {
                out.key("size");
                out.int(i64::try_from(*length).unwrap_or(i64::MAX));
            }
            out.end_object();
        }
        out.end_array();
        Ok(json(body))
    }
}

fn json(body: Vec<u8>) -> Received {
    with_headers(StatusCode::OK, HeaderMap::new(), body)
}

fn with_headers(status: StatusCode, headers: HeaderMap, body: Vec<u8>) -> Received {
    Received { status, headers: headers.into(), body: Bytes::from(body), at: Instant::now() }
}

#[cold]
fn error_answer(status: StatusCode, message: &str) -> Received {
    let mut body = Vec::new();
    let mut out = Writer::new(&mut body);
    out.begin_object();
    out.key("message");
    out.str(message);
    out.end_object();
    with_headers(status, HeaderMap::from_iter([(ERROR_HEADER, error_header_value(message))]), body)
}
