//! One thread that parses large JSON bodies, so that they do not hold a worker.

use std::cell::Cell;
use std::pin::Pin;

use bytes::Bytes;
use fanin_io::job_thread::JobThread;
use fanin_json::{Doc, JsonError};

static THREAD: JobThread = JobThread::new("fanin-json");

/// What will be done with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Perhaps it is only passed on.
    Unknown,
    /// It is read: its indexes are built, too.
    Expected,
}

/// A body that is parsed. `None`: whoever waits parses it. Dropped, it leaves the queue.
pub(crate) type Parsing = Pin<Box<dyn Future<Output = Option<Result<Doc, JsonError>>>>>;

thread_local! {
    static IS_INLINE: Cell<bool> = const { Cell::new(false) };
}

/// From now on flows of this thread parse all bodies themselves: virtual time would pass while another thread works.
pub fn parse_inline() {
    IS_INLINE.set(true);
}

/// Parses a body on the thread. As long as others are in front, it waits: the deadline of its request bounds that.
pub(crate) fn parse(body: Bytes, max_depth: usize, reading: Reading) -> Parsing {
    if IS_INLINE.get() {
        return Box::pin(std::future::ready(None));
    }
    Box::pin(async move {
        let parsed = THREAD.slot().await?.run(move |_| match reading {
            Reading::Unknown => Doc::parse(body, max_depth),
            // A worker on the same core goes first, also in the middle of its time slice.
            Reading::Expected => Doc::parse_for_reading(body, max_depth, std::thread::yield_now),
        });
        parsed.await
    })
}
