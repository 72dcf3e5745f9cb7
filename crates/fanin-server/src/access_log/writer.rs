//! The thread that writes access log lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fanin_config::AccessLog;

/// Bound of the queue in chunks. With chunks of 64 KB, as under load, it holds 4 MB; further lines are dropped and counted.
const QUEUE: usize = 64;

/// Sends chunks of whole lines to the thread. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogSender {
    messages: SyncSender<Message>,
    target: NextTarget,
}

/// The target to change to, or the same file to open again. Beside the queue: a full queue must not hold up a reload.
#[derive(Clone, Debug, Default)]
struct NextTarget(Arc<Mutex<Option<AccessLog>>>);

impl NextTarget {
    fn replace(&self, target: Option<AccessLog>) -> Option<AccessLog> {
        // No code that can panic runs under this lock.
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), target)
    }
}

/// The thread. It ends when the last sender is dropped.
#[derive(Debug)]
pub(crate) struct LogThread {
    ended: Receiver<()>,
}

#[derive(Debug)]
enum Message {
    Lines(Vec<u8>),
    /// There is a new target.
    Target,
}

impl LogSender {
    /// Passes lines to the thread, or returns them if it cannot keep up.
    pub(crate) fn send(&self, lines: Vec<u8>) -> Result<(), Vec<u8>> {
        match self.messages.try_send(Message::Lines(lines)) {
            Err(TrySendError::Full(Message::Lines(lines)) | TrySendError::Disconnected(Message::Lines(lines))) => {
                Err(lines)
            }
            _ => Ok(()),
        }
    }

    /// Changes the target, or opens a file again that has been moved. Never waits: a thread that is held up by its reader changes the
    /// target before it writes the next lines.
    pub(crate) fn target(&self, target: AccessLog) {
        self.target.replace(Some(target));
        // If the queue is full, the thread is awake.
        let _ = self.messages.try_send(Message::Target);
    }
}

impl LogThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot start.
    pub(crate) fn start(target: &AccessLog) -> io::Result<(LogSender, LogThread)> {
        let output = Output::open(target)?;
        let (sender, receiver) = sync_channel(QUEUE);
        let (ends, ended) = sync_channel::<()>(0);
        let target = NextTarget::default();
        let next = target.clone();
        std::thread::Builder::new().name("fanin-log".into()).spawn(move || {
            write(output, &receiver, &next);
            drop(ends);
        })?;
        Ok((LogSender { messages: sender, target }, LogThread { ended }))
    }

    /// Waits until all lines are written, at most for `timeout`: a stalled worker never drops its sender.
    pub(crate) fn join(self, timeout: Duration) {
        // Nothing is sent: this returns when the thread drops its end, or after `timeout`.
        let _ = self.ended.recv_timeout(timeout);
    }
}

#[derive(Debug)]
enum Output {
    Off,
    Stdout,
    File(File),
}

impl Output {
    fn open(target: &AccessLog) -> io::Result<Output> {
        Ok(match target {
            AccessLog::Off => Output::Off,
            AccessLog::Stdout => Output::Stdout,
            AccessLog::File(path) => Output::File(OpenOptions::new().create(true).append(true).open(path)?),
        })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Output::Off => Ok(()),
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
            Output::File(file) => file.write_all(lines),
        }
    }
}

fn write(mut output: Output, receiver: &Receiver<Message>, next: &NextTarget) {
    // A full disk fails each write; it is logged once a minute.
    const LOG_INTERVAL: Duration = Duration::from_secs(60);
    let mut logged_at = None::<Instant>;
    loop {
        let message = match receiver.recv_timeout(LOG_INTERVAL) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let changed = next.replace(None).map_or(Ok(()), |target| Output::open(&target).map(|opened| output = opened));
        let written = match message {
            Message::Lines(lines) => output.write(&lines),
            Message::Target => Ok(()),
        };
        let result = changed.and(written);
        if let Err(error) = result
            && logged_at.is_none_or(|at| at.elapsed() > LOG_INTERVAL)
        {
            logged_at = Some(Instant::now());
            tracing::error!(%error, "cannot write the access log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let target = AccessLog::File(path.clone());
        let (sender, thread) = LogThread::start(&target).unwrap();
        sender.send(b"one\n".to_vec()).unwrap();
        // Messages are handled in order: after this one the first line is written.
        sender.target(target.clone());
        sender.target(target.clone());
        while std::fs::read(&path).unwrap().is_empty() {
            std::thread::yield_now();
        }
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        sender.target(target);
        sender.send(b"two\n".to_vec()).unwrap();
        drop(sender);
        thread.join(Duration::from_secs(10));
        assert_eq!(std::fs::read(folder.path().join("old")).unwrap(), b"one\n");
        assert_eq!(std::fs::read(path).unwrap(), b"two\n");
    }

    #[test]
    fn a_new_target_does_not_wait_for_a_full_queue() {
        // Nobody takes the messages.
        let (messages, _receiver) = sync_channel(1);
        let sender = LogSender { messages, target: NextTarget::default() };
        sender.send(b"one\n".to_vec()).unwrap();
        assert!(sender.send(b"two\n".to_vec()).is_err());
        sender.target(AccessLog::Stdout);
        sender.target(AccessLog::Off);
        assert_eq!(sender.target.replace(None), Some(AccessLog::Off));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(LogThread::start(&AccessLog::File(folder.path().join("no/such/folder"))).is_err());
    }
}
