//! The queue between the threads that log and the thread that writes. Logging never waits for a reader of standard error: when the queue
//! is full, lines are dropped and counted.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::fmt::MakeWriter;

/// Bound of the queue in bytes. Bytes, because a flow chooses how long its lines are.
const CAPACITY: usize = 4 << 20;

thread_local! {
    /// Whether this is the thread that writes. What it logs itself is always accepted.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// The queue. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogQueue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    dropped: Counter,
}

#[derive(Default)]
struct State {
    /// Events in the order in which they were logged.
    pending: Vec<u8>,
    /// How many events `pending` has.
    events: u64,
    /// Events dropped since the log last reported any.
    unreported: u64,
    /// The thread is writing what it has taken.
    writing: bool,
}

impl LogQueue {
    /// Starts the thread that writes to `output`.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(super) fn start(output: impl Write + Send + 'static, dropped: Counter) -> io::Result<LogQueue> {
        let shared = Shared { state: Mutex::default(), changed: Condvar::new(), dropped };
        let queue = LogQueue(Arc::new(shared));
        let of_thread = queue.clone();
        thread::Builder::new().name("fanin-stderr".into()).spawn(move || of_thread.write_all(output))?;
        Ok(queue)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or counts it as dropped. Holds the lock for a copy of its bytes.
    fn push(&self, event: &[u8]) {
        let mut state = self.state();
        if state.pending.len() + event.len() > CAPACITY && !WRITES.get() {
            state.unreported += 1;
            self.0.dropped.inc();
            return;
        }
        let idle = state.pending.is_empty();
        state.pending.extend_from_slice(event);
        state.events += 1;
        drop(state);
        if idle {
            self.0.changed.notify_all();
        }
    }

    fn write_all(&self, mut output: impl Write) {
        WRITES.set(true);
        loop {
            let (taken, events) = {
                let mut state = self.state();
                state.writing = false;
                self.0.changed.notify_all();
                while state.pending.is_empty() {
                    state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.writing = true;
                (std::mem::take(&mut state.pending), std::mem::take(&mut state.events))
            };
            let written = output.write_all(&taken).and_then(|()| output.flush());
            let dropped = {
                let mut state = self.state();
                if written.is_err() {
                    state.unreported += events;
                    self.0.dropped.inc_by(events);
                    continue;
                }
                std::mem::take(&mut state.unreported)
            };
            if dropped > 0 {
                tracing::warn!(dropped, "lines of the log were dropped: standard error was not read fast enough");
            }
        }
    }

    /// Waits until everything is written, at most for `timeout`.
    pub(super) fn flush(&self, timeout: Duration) {
        let unwritten = |state: &mut State| !state.pending.is_empty() || state.writing;
        let _ = self.0.changed.wait_timeout_while(self.state(), timeout, unwritten);
    }
}

/// Passes an event to the queue. The formatter writes each event in one call.
pub(super) struct EventWriter<'a>(&'a LogQueue);

impl Write for EventWriter<'_> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.push(event);
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = EventWriter<'a>;

    fn make_writer(&'a self) -> EventWriter<'a> {
        EventWriter(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A reader that takes what is written when it is asked to.
    struct Slow {
        written: Sender<Vec<u8>>,
        go_on: Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.written.send(bytes.to_vec());
            self.go_on.recv().map_err(|_| io::Error::other("the reader is gone"))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (written, output) = channel();
        let (go, go_on) = channel();
        let dropped = Counter::default();
        let queue = LogQueue::start(Slow { written, go_on }, dropped.clone()).expect("started");
        queue.push(b"first\n");
        assert_eq!(output.recv().expect("written"), b"first\n");
        // The thread is stuck now.
        let event = vec![b'x'; CAPACITY / 4];
        (0..6).for_each(|_| queue.push(&event));
        assert_eq!(dropped.get(), 2);
        queue.flush(Duration::from_millis(1));
        go.send(()).expect("it waits");
        assert_eq!(output.recv().expect("written").len(), CAPACITY);
        queue.push(b"last\n");
        go.send(()).expect("it waits");
        assert_eq!(output.recv().expect("written"), b"last\n");
        go.send(()).expect("it waits");
        queue.flush(Duration::from_secs(60));
        // A write that fails loses its events.
        drop(go);
        queue.push(b"lost\n");
        assert_eq!(output.recv().expect("written"), b"lost\n");
        queue.flush(Duration::from_secs(60));
        assert_eq!(dropped.get(), 3);
    }
}
