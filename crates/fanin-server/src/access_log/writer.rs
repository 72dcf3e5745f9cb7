//! The thread that writes access log lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use fanin_config::AccessLog;

/// Chunks on their way. With those of 64 KB that workers send under load, 4 MB: what is more is dropped and counted.
const QUEUE: usize = 64;

/// Sends chunks of whole lines to the thread. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogSender(SyncSender<Message>);

/// The thread; it ends when the last sender is gone.
#[derive(Debug)]
pub(crate) struct LogThread {
    ended: Receiver<()>,
}

#[derive(Debug)]
enum Message {
    Lines(Vec<u8>),
    /// Write elsewhere from now on, or to the same file opened anew.
    Target(AccessLog),
}

impl LogSender {
    /// Gives lines to the thread, or gives them back if it cannot keep up.
    pub(crate) fn send(&self, lines: Vec<u8>) -> Result<(), Vec<u8>> {
        match self.0.try_send(Message::Lines(lines)) {
            Err(TrySendError::Full(Message::Lines(lines)) | TrySendError::Disconnected(Message::Lines(lines))) => {
                Err(lines)
            }
            _ => Ok(()),
        }
    }

    /// FileChanges where lines go; also opens the file anew if it has been moved away. Waits until the thread takes the message.
    pub(crate) fn target(&self, target: AccessLog) {
        // The thread is gone only when the server ends.
        let _ = self.0.send(Message::Target(target));
    }
}

impl LogThread {
    /// Starts it.
    ///
    /// # Errors
    /// The file cannot be opened, or no thread be made.
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

    /// Waits until all lines are written, but not for ever: a worker that is held never lets its sender go.
    pub(crate) fn join(self, patience: Duration) {
        // Nothing is ever sent: either the thread has dropped its end, or patience has.
        let _ = self.ended.recv_timeout(patience);
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
    // A full disk fails each write; once a minute is enough to say so.
    const QUIET: Duration = Duration::from_secs(60);
    let mut complained = None::<Instant>;
    loop {
        let message = match receiver.recv_timeout(QUIET) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let result = match message {
            Message::Lines(lines) => output.write(&lines),
            Message::Target(target) => Output::open(&target).map(|opened| output = opened),
        };
        if let Err(error) = result
            && complained.is_none_or(|at| at.elapsed() > QUIET)
        {
            complained = Some(Instant::now());
            tracing::error!(%error, "cannot write the access log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_file_is_opened_anew() {
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
