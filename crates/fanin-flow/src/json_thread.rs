//! One thread that parses large JSON bodies, so that they do not hold a worker.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::OnceLock;

use bytes::Bytes;
use fanin_json::{Doc, JsonError};
use tokio::sync::{mpsc, oneshot};

/// Bodies in the thread's queue. Further ones wait for a place in it, in order of age.
const QUEUE: usize = 64;

/// What will be done with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Perhaps it is only passed on.
    Unknown,
    /// It is read: its indexes are built, too.
    Expected,
}

/// A body that is parsed. `None`: the thread has ended, and whoever waits parses it. Dropped, it leaves the queue.
pub(crate) type Parsing = Pin<Box<dyn Future<Output = Option<Result<Doc, JsonError>>>>>;

struct Job {
    body: Bytes,
    max_depth: usize,
    reading: Reading,
    reply: oneshot::Sender<Result<Doc, JsonError>>,
}

thread_local! {
    static IS_INLINE: Cell<bool> = const { Cell::new(false) };
}

/// From now on flows of this thread parse all bodies themselves: virtual time would pass while another thread works.
pub fn parse_inline() {
    IS_INLINE.set(true);
}

/// Parses a body on the thread; `None` if there is no thread. As long as others are in front, it waits: the deadline of its request bounds that.
pub(crate) fn parse(body: Bytes, max_depth: usize, reading: Reading) -> Option<Parsing> {
    static THREAD: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();
    if IS_INLINE.get() {
        return None;
    }
    let jobs = THREAD.get_or_init(start).as_ref()?;
    Some(Box::pin(async move {
        let place = jobs.reserve().await.ok()?;
        let (reply, parsed) = oneshot::channel();
        place.send(Job { body, max_depth, reading, reply });
        parsed.await.ok()
    }))
}

fn start() -> Option<mpsc::Sender<Job>> {
    let (sender, mut jobs) = mpsc::channel::<Job>(QUEUE);
    let run = move || {
        fanin_upstream::lower_priority();
        while let Some(Job { body, max_depth, reading, reply }) = jobs.blocking_recv() {
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
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn more_bodies_than_the_queue_holds_are_all_parsed_and_dropped_ones_leave_it() {
        let mut cx = Context::from_waker(Waker::noop());
        let body = |number: usize| Bytes::from(format!("{{\"number\":{number}}}"));
        let start = |number| parse(body(number), 8, Reading::Expected).expect("a thread");
        let mut all: Vec<_> = (0..4 * QUEUE).map(start).collect();
        // Each has its place, or waits for one.
        let done: Vec<_> = all.iter_mut().map(|parsing| parsing.as_mut().poll(&mut cx)).collect();
        for (number, (parsing, done)) in all.into_iter().zip(done).enumerate() {
            if number % 2 == 1 {
                continue;
            }
            let parsed = match done {
                Poll::Ready(parsed) => parsed,
                Poll::Pending => parsing.await,
            };
            let doc = parsed.expect("the thread runs").expect("JSON");
            assert_eq!(doc.root().get("number").and_then(|node| node.as_i64()), Some(number as i64));
        }
    }
}
