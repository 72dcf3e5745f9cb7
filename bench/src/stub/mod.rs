//! The backend of every benchmark: one thread, edge-triggered readiness, answers made beforehand.
//!
//! It has to outrun every server under test, so a call costs it one `read` and one `write`: an answer is a ready
//! buffer, a delay is an entry in a queue, and the only timer is one timer file descriptor armed for the next due answer.
//! (`epoll_wait` as mio calls it rounds up to milliseconds, which would bunch the answers and flatter the server.)

mod answers;
mod bodies;
mod delay_queue;
pub mod http2;
mod reply;
mod shop;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use answers::Answers;
pub use bodies::{PAGE_KEYS, item, vacancies};
use delay_queue::{DelayQueues, Due, Timer};
use reply::Action;
pub use reply::ok;

/// A request's head has to fit here; the servers under test send some 200 bytes.
const READ_BUFFER: usize = 8 * 1024;
/// Numbers from here on are of answers made for one request.
const LOOSE: usize = usize::MAX / 2;
const LISTENER: Token = Token(usize::MAX - 1);
const TIMER: Token = Token(usize::MAX - 2);

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// Bytes of a request whose end has not come yet.
    head: Vec<u8>,
    /// Bytes that the socket did not take yet.
    unsent: Vec<u8>,
    /// Tells a connection from an earlier one of the same slot.
    birth: u64,
}

/// The stub and its counters.
#[derive(Debug)]
pub struct Stub {
    poll: Poll,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    answers: Answers,
    /// Answers made for one request each, while they wait.
    loose: Vec<Vec<u8>>,
    free_loose: Vec<usize>,
    due: DelayQueues,
    timer: Timer,
    accepted: u64,
    requests: u64,
    open: usize,
    most_open: usize,
}

impl Stub {
    /// Listens on `addr`.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(addr)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let timer = Timer::new()?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            answers: Answers::new(),
            loose: Vec::new(),
            free_loose: Vec::new(),
            due: DelayQueues::default(),
            timer,
            accepted: 0,
            requests: 0,
            open: 0,
            most_open: 0,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0; READ_BUFFER];
        loop {
            if let Some(at) = self.due.next() {
                self.timer.arm(at)?;
            }
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    TIMER => self.timer.fired(),
                    Token(slot) => self.ready(slot, event, &mut buffer),
                }
            }
            let now = Instant::now();
            while let Some(due) = self.due.pop(now) {
                self.send(due.slot, due.birth, due.answer);
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    eprintln!("stub: accept: {error}");
                    return Ok(());
                }
            };
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.registry().register(&mut stream, Token(slot), Interest::READABLE | Interest::WRITABLE)?;
            self.accepted += 1;
            self.open += 1;
            self.most_open = self.most_open.max(self.open);
            self.connections[slot] =
                Some(Connection { stream, head: Vec::new(), unsent: Vec::new(), birth: self.accepted });
        }
    }

    fn ready(&mut self, slot: usize, event: &Event, buffer: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { return };
        if event.is_writable() && !connection.unsent.is_empty() && flush(connection).is_err() {
            return self.close(slot);
        }
        if !event.is_readable() {
            return;
        }
        loop {
            let Some(connection) = self.connections[slot].as_mut() else { return };
            match connection.stream.read(buffer) {
                Ok(0) => return self.close(slot),
                Ok(read) => {
                    if !self.requests(slot, &buffer[..read]) {
                        return self.close(slot);
                    }
                    // Fewer bytes than asked for: the socket is empty, and new bytes will be a new edge.
                    if read < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(slot),
            }
        }
    }

    /// Takes whole requests out of what was read; false: not a request that the stub knows.
    fn requests(&mut self, slot: usize, read: &[u8]) -> bool {
        let Some(connection) = self.connections[slot].as_mut() else { return true };
        let birth = connection.birth;
        let joined;
        let mut rest = if connection.head.is_empty() {
            read
        } else {
            connection.head.extend_from_slice(read);
            joined = std::mem::take(&mut connection.head);
            &joined
        };
        while let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n") {
            let Some(path) = rest.strip_prefix(b"GET ").and_then(|r| Some(&r[..memchr::memchr(b' ', r)?])) else {
                return false;
            };
            self.requests += 1;
            match self.answers.ask(path) {
                Action::Reply(reply) if reply.delay == Duration::ZERO => self.send(slot, birth, reply.answer),
                Action::Reply(reply) => {
                    let at = Instant::now() + reply.delay;
                    self.due.push(reply.delay, Due { at, slot, birth, answer: reply.answer });
                }
                Action::Made(bytes, Duration::ZERO) => self.send_bytes(slot, &bytes),
                Action::Made(bytes, delay) => {
                    let answer = self.loose.len();
                    // Places are used again from the front; there are as many as answers wait at once.
                    let answer = match self.free_loose.pop() {
                        Some(free) => {
                            self.loose[free] = bytes;
                            free
                        }
                        None => {
                            self.loose.push(bytes);
                            answer
                        }
                    };
                    let at = Instant::now() + delay;
                    self.due.push(delay, Due { at, slot, birth, answer: LOOSE + answer });
                }
                Action::Silence => {}
                Action::Counters => {
                    let body = format!(
                        r#"{{"accepted":{},"requests":{},"open":{},"most_open":{}}}"#,
                        self.accepted, self.requests, self.open, self.most_open
                    );
                    self.send_bytes(slot, &ok(body.as_bytes()));
                }
            }
            rest = &rest[end + 4..];
        }
        let Some(connection) = self.connections[slot].as_mut() else { return true };
        connection.head.extend_from_slice(rest);
        connection.head.len() < READ_BUFFER
    }

    fn send(&mut self, slot: usize, birth: u64, answer: usize) {
        if let Some(loose) = answer.checked_sub(LOOSE) {
            let bytes = std::mem::take(&mut self.loose[loose]);
            self.free_loose.push(loose);
            if self.connections[slot].as_ref().is_some_and(|connection| connection.birth == birth) {
                self.send_bytes(slot, &bytes);
            }
            return;
        }
        let Some(connection) = self.connections[slot].as_mut() else { return };
        if connection.birth == birth && write(connection, self.answers.bytes(answer)).is_err() {
            self.close(slot);
        }
    }

    fn send_bytes(&mut self, slot: usize, bytes: &[u8]) {
        let Some(connection) = self.connections[slot].as_mut() else { return };
        if write(connection, bytes).is_err() {
            self.close(slot);
        }
    }

    fn close(&mut self, slot: usize) {
        // Closing the descriptor takes it out of the poll.
        if self.connections[slot].take().is_some() {
            self.free.push(slot);
            self.open -= 1;
        }
    }
}

fn write(connection: &mut Connection, mut bytes: &[u8]) -> io::Result<()> {
    while connection.unsent.is_empty() && !bytes.is_empty() {
        match connection.stream.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    connection.unsent.extend_from_slice(bytes);
    Ok(())
}

fn flush(connection: &mut Connection) -> io::Result<()> {
    let unsent = std::mem::take(&mut connection.unsent);
    write(connection, &unsent)
}
