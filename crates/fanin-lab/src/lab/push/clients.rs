//! Clients that wait for events: one thread for all of them, so that only the server's side differs.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::MARK;
use crate::lab::error::LabError;

const PATIENCE: Duration = Duration::from_secs(60);
/// Clients that connect at the same time.
const AT_ONCE: usize = 64;
const SUBSCRIBE: &[u8] = b"GET /events HTTP/1.1\r\nhost: lab\r\n\r\n";

/// Clients that are subscribed; gone with this.
pub(super) struct Clients {
    addr: SocketAddr,
    runtime: tokio::runtime::Runtime,
    tasks: LocalSet,
    seen: Rc<Seen>,
    count: usize,
}

#[derive(Default)]
struct Seen {
    subscribed: Cell<usize>,
    events: Cell<usize>,
    failed: Cell<Option<&'static str>>,
    changed: Notify,
}

impl Clients {
    /// None yet.
    pub(super) fn new(addr: SocketAddr) -> Result<Clients, LabError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(LabError::io("making a runtime"))?;
        Ok(Clients { addr, runtime, tasks: LocalSet::new(), seen: Rc::default(), count: 0 })
    }

    /// Subscribes until there are so many.
    pub(super) fn grow(&mut self, count: usize) -> Result<(), LabError> {
        while self.count < count {
            let now = AT_ONCE.min(count - self.count);
            for _ in 0..now {
                let (addr, seen) = (self.addr, self.seen.clone());
                self.tasks.spawn_local(async move {
                    if listen(addr, &seen).await.is_err() {
                        seen.failed.set(Some("the server has ended or refused a subscription"));
                        seen.changed.notify_one();
                    }
                });
            }
            self.count += now;
            let wanted = self.count;
            self.until(|seen| seen.subscribed.get() == wanted, "not all clients are subscribed")?;
        }
        Ok(())
    }

    /// Publishes one event; seconds until the last client has it.
    pub(super) fn publish(&mut self) -> Result<f64, LabError> {
        let wanted = self.seen.events.get() + self.count;
        let failed = || LabError::io("publishing");
        let start = Instant::now();
        let publish = async {
            let mut stream = TcpStream::connect(self.addr).await?;
            let body = format!("\"{}{}\"", char::from(MARK), "x".repeat(100));
            let head = "POST /publish HTTP/1.1\r\nhost: lab\r\nconnection: close\r\ncontent-type: application/json";
            let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(request.as_bytes()).await?;
            io::Result::Ok(stream)
        };
        let mut stream = self.tasks.block_on(&self.runtime, publish).map_err(failed())?;
        self.until(|seen| seen.events.get() >= wanted, "not all clients have the event")?;
        let took = start.elapsed().as_secs_f64();
        let mut answer = String::new();
        let read = async { tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await };
        self.tasks
            .block_on(&self.runtime, read)
            .map_err(|_| LabError::wrong("publishing is not answered"))?
            .map_err(failed())?;
        if answer.starts_with("HTTP/1.1 200") {
            Ok(took)
        } else {
            Err(LabError::Wrong(format!("publishing: {answer}")))
        }
    }

    fn until(&self, holds: impl Fn(&Seen) -> bool, what: &'static str) -> Result<(), LabError> {
        let seen = &self.seen;
        let wait = async {
            while !holds(seen) && seen.failed.get().is_none() {
                seen.changed.notified().await;
            }
        };
        let ended = self.tasks.block_on(&self.runtime, async { tokio::time::timeout(PATIENCE, wait).await });
        match (ended, seen.failed.get()) {
            (_, Some(failed)) => Err(LabError::wrong(failed)),
            (Err(_), None) => Err(LabError::wrong(what)),
            (Ok(()), None) => Ok(()),
        }
    }
}

/// Subscribes, and counts events.
async fn listen(addr: SocketAddr, seen: &Seen) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(SUBSCRIBE).await?;
    let mut head = Vec::new();
    // The first event ends in an empty line; lines of the head end in `\r\n`.
    while !head.windows(2).any(|two| two == b"\n\n") {
        if stream.read_buf(&mut head).await? == 0 || !b"HTTP/1.1 200".starts_with(&head[..head.len().min(12)]) {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    drop(head);
    seen.subscribed.set(seen.subscribed.get() + 1);
    seen.changed.notify_one();
    loop {
        stream.readable().await?;
        // Only while there is something to read, so that a client that waits holds no buffer.
        let mut buffer = [0; 1024];
        match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                let events = buffer[..count].iter().filter(|byte| **byte == MARK).count();
                seen.events.set(seen.events.get() + events);
                seen.changed.notify_one();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
