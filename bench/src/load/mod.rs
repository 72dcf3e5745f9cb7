//! Closed-loop load: a fixed number of keep-alive connections, each sending its next request when it has its answer.
//!
//! It measures what a request *costs* the server, not how the server holds up (that needs an open loop, see fanin-load).
//! Every response's status and length are checked; one wrong response is an error that no bar forgives.

pub mod streams;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;

use fanin_load::response::{Reader, Response};

/// Nanoseconds; what took longer is counted as this.
const SLOWEST: u64 = 60_000_000_000;
/// How long a connection or the last answers may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to send and what to expect.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub addr: SocketAddr,
    /// The whole request, head and body.
    pub request: Vec<u8>,
    /// Connections, which is also how many requests are in flight.
    pub connections: usize,
    /// Least length of the body of a right response.
    pub least_body: usize,
}

/// What the windows of a session showed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Right responses within the windows.
    pub requests: u64,
    /// Wrong responses and broken connections, those outside of windows included.
    pub errors: u64,
    /// Right responses a second.
    pub rate: f64,
    /// Median latency, milliseconds.
    pub p50: f64,
    /// 99th percentile of latency, milliseconds.
    pub p99: f64,
    /// Highest latency, milliseconds.
    pub max: f64,
}

/// A request for `target` without a body, kept alive.
pub fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: bench\r\nAccept: */*\r\n\r\n").into_bytes()
}

/// One request on a connection of its own; its status and body.
pub fn once(addr: SocketAddr, request: &[u8], timeout: Duration) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = StdStream::connect_timeout(&addr, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(request)?;
    let mut reader = Reader::default();
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        all.extend_from_slice(&buffer[..read]);
        let found =
            reader.read(&mut &buffer[..read]).map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad.0))?;
        if let Some(response) = found {
            let body = all.split_off(memchr::memmem::find(&all, b"\r\n\r\n").map_or(0, |at| at + 4));
            return Ok((response.status, if body.len() == response.length { body } else { join_chunks(&body) }));
        }
    }
}

/// The body of a chunked response, which [`Reader`] has found whole.
fn join_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = memchr::memmem::find(rest, b"\r\n") {
        let digits = std::str::from_utf8(&rest[..line]).unwrap_or_default();
        let size = usize::from_str_radix(digits.split(';').next().unwrap_or_default().trim(), 16).unwrap_or_default();
        let Some(chunk) = rest.get(line + 2..line + 2 + size) else { break };
        body.extend_from_slice(chunk);
        rest = rest.get(line + 4 + size..).unwrap_or_default();
    }
    body
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    reader: Reader,
    sent: Instant,
    unsent: usize,
    open: bool,
    waits: bool,
}

/// Open connections to one server, and what they have seen.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    poll: Poll,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    latencies: Histogram<u64>,
    errors: u64,
    measured: Duration,
}

/// Where a window stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Load, but nothing counts yet.
    Settle,
    /// Responses count.
    Count,
    /// No new requests.
    Drain,
}

impl Session {
    /// Connects.
    pub fn connect(plan: Plan) -> io::Result<Self> {
        let poll = Poll::new()?;
        let connect = |index| {
            let stream = StdStream::connect_timeout(&plan.addr, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            let reader = Reader::default();
            Ok(Connection { stream, reader, sent: Instant::now(), unsent: 0, open: true, waits: false })
        };
        let connections = (0..plan.connections).map(connect).collect::<io::Result<_>>()?;
        Ok(Self {
            plan,
            poll,
            connections,
            buffer: vec![0; 256 * 1024],
            latencies: Histogram::new_with_bounds(1, SLOWEST, 3).map_err(io::Error::other)?,
            errors: 0,
            measured: Duration::ZERO,
        })
    }

    /// Loads the server for `window`, and for `settle` before, then waits until nothing is in flight.
    /// `edge` is called when the window opens and when it closes, to read the server's counters.
    pub fn window(&mut self, settle: Duration, window: Duration, mut edge: impl FnMut()) -> io::Result<()> {
        let mut events = Events::with_capacity(self.plan.connections.max(64));
        let mut phase = Phase::Settle;
        let mut until = Instant::now() + settle;
        let mut opened = until;
        for connection in &mut self.connections {
            send(connection, &self.plan.request)?;
        }
        loop {
            let now = Instant::now();
            match phase {
                Phase::Settle if now >= until => {
                    edge();
                    phase = Phase::Count;
                    opened = Instant::now();
                    until = opened + window;
                }
                Phase::Count if now >= until => {
                    edge();
                    self.measured += opened.elapsed();
                    phase = Phase::Drain;
                    until = Instant::now() + PATIENCE;
                }
                Phase::Drain if now >= until => return Err(io::Error::other("requests without an answer")),
                _ => {}
            }
            if phase == Phase::Drain && !self.connections.iter().any(|connection| connection.open && connection.waits) {
                return Ok(());
            }
            // A millisecond is mio's resolution; waiting for less would spin on the core that the stub needs.
            let wait = until.saturating_duration_since(now).max(Duration::from_millis(1));
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                self.turn(event, phase)?;
            }
            if self.connections.iter().all(|connection| !connection.open) {
                return Err(io::Error::other("the server broke every connection"));
            }
        }
    }

    /// What all windows showed.
    pub fn figures(&self) -> Figures {
        let millis = |nanos: u64| nanos as f64 / 1e6;
        Figures {
            requests: self.latencies.len(),
            errors: self.errors,
            rate: self.latencies.len() as f64 / self.measured.as_secs_f64(),
            p50: millis(self.latencies.value_at_quantile(0.5)),
            p99: millis(self.latencies.value_at_quantile(0.99)),
            max: millis(self.latencies.max()),
        }
    }

    fn turn(&mut self, event: &Event, phase: Phase) -> io::Result<()> {
        let connection = &mut self.connections[event.token().0];
        if !connection.open {
            return Ok(());
        }
        let mut turned = Ok(());
        if event.is_writable() && connection.unsent > 0 {
            turned = push(connection, &self.plan.request);
        }
        if event.is_readable() && turned.is_ok() {
            let next = (phase != Phase::Drain).then_some(self.plan.request.as_slice());
            turned = receive(connection, next, &mut self.buffer, |response, latency| {
                if response.status != 200 || response.length < self.plan.least_body {
                    self.errors += 1;
                } else if phase == Phase::Count {
                    self.latencies.saturating_record(latency);
                }
            });
        }
        if turned.is_err() {
            self.errors += 1;
            connection.open = false;
            self.poll.registry().deregister(&mut connection.stream)?;
        }
        Ok(())
    }
}

/// Connects, and sends one request on each connection, all at once: what clients do that arrive together.
/// Latencies count from before the connecting; a wrong answer is an error.
pub fn burst(plan: &Plan) -> io::Result<Vec<Duration>> {
    let mut poll = Poll::new()?;
    let mut waiting = Vec::with_capacity(plan.connections);
    let begun = Instant::now();
    for index in 0..plan.connections {
        let mut stream = TcpStream::connect(plan.addr)?;
        poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        let unsent = plan.request.len();
        let connection = Connection { stream, reader: Reader::default(), sent: begun, unsent, open: true, waits: true };
        waiting.push(connection);
    }
    let mut events = Events::with_capacity(plan.connections);
    let mut buffer = vec![0; 64 * 1024];
    let mut latencies = Vec::with_capacity(plan.connections);
    let mut wrong = 0;
    while latencies.len() + wrong < plan.connections {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{} clients have no answer", plan.connections - latencies.len())));
        }
        poll.poll(&mut events, Some(PATIENCE))?;
        for event in &events {
            let connection = &mut waiting[event.token().0];
            if event.is_writable() && connection.unsent > 0 {
                push(connection, &plan.request)?;
            }
            if event.is_readable() {
                receive(connection, None, &mut buffer, |response, latency| {
                    if response.status == 200 && response.length >= plan.least_body {
                        latencies.push(Duration::from_nanos(latency));
                    } else {
                        wrong += 1;
                    }
                })?;
            }
        }
    }
    if wrong > 0 {
        Err(io::Error::other(format!("{wrong} of {} answers are wrong", plan.connections)))
    } else {
        Ok(latencies)
    }
}

fn send(connection: &mut Connection, request: &[u8]) -> io::Result<()> {
    connection.sent = Instant::now();
    connection.unsent = request.len();
    connection.waits = true;
    push(connection, request)
}

fn push(connection: &mut Connection, request: &[u8]) -> io::Result<()> {
    while connection.unsent > 0 {
        match connection.stream.write(&request[request.len() - connection.unsent..]) {
            Ok(sent) => connection.unsent -= sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads responses; after each, the next request is sent, if there is to be one.
fn receive(
    connection: &mut Connection,
    next: Option<&[u8]>,
    buffer: &mut [u8],
    mut record: impl FnMut(Response, u64),
) -> io::Result<()> {
    loop {
        let read = match connection.stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut bytes = &buffer[..read];
        while !bytes.is_empty() {
            let found =
                connection.reader.read(&mut bytes).map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad.0))?;
            let Some(response) = found else { break };
            connection.waits = false;
            record(response, u64::try_from(connection.sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if response.close {
                return Err(io::Error::other("the server closed a connection that was to be kept"));
            }
            if let Some(request) = next {
                send(connection, request)?;
            }
        }
        // Fewer bytes than asked for: the socket is empty, and new bytes will be a new edge.
        if read < buffer.len() {
            return Ok(());
        }
    }
}
