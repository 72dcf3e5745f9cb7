//! One thread that parses large JSON bodies, so that they do not hold a worker.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use bytes::Bytes;
use fanin_json::{Doc, JsonError};
use tokio::sync::oneshot;

/// Bodies that may wait for the thread. If it is full, the worker parses them itself.
const QUEUE: usize = 64;

/// What will be done with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Perhaps it is only passed on.
    Unknown,
    /// It is read: its indexes are built, too.
    Expected,
}

/// A body that is parsed.
pub(crate) type Parsing = oneshot::Receiver<Result<Doc, JsonError>>;

struct Job {
    body: Bytes,
    max_depth: usize,
    reading: Reading,
    reply: oneshot::Sender<Result<Doc, JsonError>>,
}

/// Sends a body to the thread; `None` if its queue is full.
pub(crate) fn parse(body: Bytes, max_depth: usize, reading: Reading) -> Option<Parsing> {
    static THREAD: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (sender, jobs) = sync_channel::<Job>(QUEUE);
        let run = move || {
            for Job { body, max_depth, reading, reply } in jobs {
                // Nobody waits for a body whose request has ended.
                if reply.is_closed() {
                    continue;
                }
                let _ = reply.send(match reading {
                    Reading::Unknown => Doc::parse(body, max_depth),
                    Reading::Expected => Doc::parse_for_reading(body, max_depth),
                });
            }
        };
        std::thread::Builder::new().name("fanin-json".to_owned()).spawn(run).ok().map(|_| sender)
    });
    let (reply, receiver) = oneshot::channel();
    thread.as_ref()?.try_send(Job { body, max_depth, reading, reply }).ok()?;
    Some(receiver)
}
