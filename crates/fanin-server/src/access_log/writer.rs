//! The thread that writes access log lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use fanin_config::AccessLog;

/// Bound of the queue in chunks. With chunks of 64 KB, as under load, it holds 4 MB; further lines are dropped and counted.
const QUEUE: usize = 64;

/// Sends chunks of whole lines to the thread. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogSender(SyncSender<Message>);

/// The thread. It ends when the last sender is dropped.
#[derive(Debug)]
pub(crate) struct LogThread {
    ended: Receiver<()>,
}

#[derive(Debug)]
enum Message {
    Lines(Vec<u8>),
    /// Change the target, or open the same file again.
    Target(AccessLog),
}

impl LogSender {
    /// Passes lines to the thread, or returns them if it cannot keep up.
    pub(crate) fn send(&self, lines: Vec<u8>) -> Result<(), Vec<u8>> {
        match self.0.try_send(Message::Lines(lines)) {
            Err(TrySendError::Full(Message::Lines(lines)) | TrySendError::Disconnected(Message::Lines(lines))) => {
                Err(lines)
            }
            _ => Ok(()),
        }
    }

    /// Changes the target, or opens a file again that has been moved. Waits until the thread accepts the message.
    pub(crate) fn target(&self, target: AccessLog) {
        // The thread ends only with the server.
        let _ = self.0.send(Message::Target(target));
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
        std::thread::Builder::new().name("fanin-log".into()).spawn(move || {
            write(output, &receiver);
            drop(ends);
        })?;
        Ok((LogSender(sender), LogThread { ended }))
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

fn write(mut output: Output, receiver: &Receiver<Message>) {
    // A full disk fails each write; it is logged once a minute.
    const LOG_INTERVAL: Duration = Duration::from_secs(60);
    let mut logged_at = None::<Instant>;
    loop {
        let message = match receiver.recv_timeout(LOG_INTERVAL) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let result = match message {
            Message::Lines(lines) => output.write(&lines),
            Message::Target(target) => Output::open(&target).map(|opened| output = opened),
        };
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
    fn a_file_that_cannot_be_opened_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(LogThread::start(&AccessLog::File(folder.path().join("no/such/folder"))).is_err());
    }
}
