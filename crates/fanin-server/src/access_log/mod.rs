//! The access log. Workers format lines into their own buffers and pass them in large chunks to one thread, which writes them.
//!
//! - `line`: one line. `writer`: the thread.

mod line;
mod writer;

use std::sync::Arc;

pub(crate) use line::Line;
pub(crate) use writer::{LogSender, LogThread};

use crate::metrics::WorkerStats;
use crate::wall_clock::WallClock;

/// The status of a request whose client disconnected before the response.
pub(crate) const CLIENT_DISCONNECTED: u16 = 499;

/// A buffer is handed over at this many bytes, or at the next tick.
const CHUNK: usize = 64 << 10;

/// The access log of one worker.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    sender: LogSender,
    clock: WallClock,
    buffer: Vec<u8>,
    lines: u64,
    enabled: bool,
    stats: Arc<WorkerStats>,
}

impl WorkerLog {
    pub(crate) fn new(sender: LogSender, stats: Arc<WorkerStats>) -> WorkerLog {
        WorkerLog { sender, clock: WallClock::new(), buffer: Vec::new(), lines: 0, enabled: true, stats }
    }

    pub(crate) fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    #[inline]
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn write(&mut self, line: &Line<'_>) {
        if self.buffer.capacity() == 0 {
            // A line has a few hundred bytes; a very long path may still grow the buffer.
            self.buffer.reserve_exact(CHUNK + 1024);
        }
        line.write(&mut self.clock, &mut self.buffer);
        self.lines += 1;
        if self.buffer.len() >= CHUNK {
            self.hand_over();
        }
    }

    /// To be called several times a second: hands the buffer over.
    pub(crate) fn tick(&mut self) {
        self.clock.adjust();
        if !self.buffer.is_empty() {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if let Err(mut buffer) = self.sender.send(std::mem::take(&mut self.buffer)) {
            self.stats.log_lines_dropped.add(lines);
            buffer.clear();
            self.buffer = buffer;
        }
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        if !self.buffer.is_empty() {
            self.hand_over();
        }
    }
}
