//! Subscribers over HTTP/1.1, in a process of their own: one thread, and for each a socket and four bytes.
//!
//! They report on the standard output: `ready` when all have subscribed, and `event N NANOS` when the last of those that read has
//! received the event number N, by the monotonic clock.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use super::MARK;
use crate::Failure;
use crate::process::nanos;

/// Subscribers that have sent their request and wait for their first event.
const AT_ONCE: usize = 128;
/// Of one source address, which has fewer ports than there are subscribers.
const PER_ADDRESS: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Receive buffer of those that never read, so that the server soon cannot write.
const SILENT_BUFFER: usize = 4096;
const REQUEST: &[u8] = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Who subscribes to what.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    #[arg(long)]
    server: SocketAddr,
    /// Subscribers that read
    #[arg(long)]
    reading: usize,
    /// Subscribers that read nothing after the start
    #[arg(long, default_value_t = 0)]
    silent: usize,
    /// Third part of the source addresses
    #[arg(long, default_value_t = 0)]
    network: u8,
}

struct Subscriber {
    stream: TcpStream,
    /// Events that came.
    events: u16,
    started: bool,
    after_newline: bool,
}

/// What all of them have seen.
struct Seen {
    plan: Plan,
    started: usize,
    /// Of event 1, 2, …: how many subscribers have it.
    events: Vec<usize>,
}

/// Subscribes and reads until the process ends.
pub fn run(plan: Plan) -> Result<(), Failure> {
    // The publisher shares this core, and its time is measured.
    rustix::process::nice(10).map_err(io::Error::from)?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; 64 << 10];
    let all = plan.reading + plan.silent;
    let mut subscribers: Vec<Subscriber> = Vec::with_capacity(all);
    let mut seen = Seen { plan, started: 0, events: Vec::new() };
    let begun = Instant::now();
    let mut ready = false;
    loop {
        while subscribers.len() < all && subscribers.len() - seen.started < AT_ONCE {
            let number = subscribers.len();
            let mut stream = connect(&seen.plan, number)?;
            poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
            subscribers.push(Subscriber { stream, events: 0, started: false, after_newline: false });
        }
        if seen.started == all && !ready {
            ready = true;
            report("ready")?;
        }
        if !ready && begun.elapsed() > PATIENCE {
            return Err(Failure::Wrong(format!("{} of {all} have subscribed", seen.started)));
        }
        match poll.poll(&mut events, Some(PATIENCE)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            let subscriber = &mut subscribers[event.token().0];
            read(subscriber, &mut buffer, &mut seen)?;
            // The first are silent: those that read are subscribed last.
            if subscriber.started && event.token().0 < seen.plan.silent {
                poll.registry().deregister(&mut subscriber.stream)?;
            }
        }
    }
}

/// Sends the request of one subscriber, from an address of its own network.
fn connect(plan: &Plan, number: usize) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let source = Ipv4Addr::new(127, 0, plan.network, 2 + (number / PER_ADDRESS) as u8);
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    if number < plan.silent {
        socket.set_recv_buffer_size(SILENT_BUFFER)?;
    }
    socket.connect(&plan.server.into())?;
    // An empty socket has room for a request.
    (&socket).write_all(REQUEST)?;
    socket.set_nonblocking(true)?;
    Ok(TcpStream::from_std(socket.into()))
}

fn read(subscriber: &mut Subscriber, buffer: &mut [u8], seen: &mut Seen) -> Result<(), Failure> {
    loop {
        let count = match subscriber.stream.read(buffer) {
            Ok(0) => return Err(Failure::Wrong("the server has ended a subscription".into())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let bytes = &buffer[..count];
        if !subscriber.started {
            begin(subscriber, bytes, seen)?;
        }
        for _ in memchr::memchr_iter(MARK, bytes) {
            let at = usize::from(subscriber.events);
            subscriber.events += 1;
            if seen.events.len() <= at {
                seen.events.resize(at + 1, 0);
            }
            seen.events[at] += 1;
            if seen.events[at] == seen.plan.reading {
                report(&format!("event {} {}", at + 1, nanos()))?;
            }
        }
        // Fewer bytes than asked for: the socket is empty, and new bytes will be a new edge.
        if count < buffer.len() {
            return Ok(());
        }
    }
}

/// The head and the first event, which ends in an empty line. Lines of the head end in `\r\n`.
fn begin(subscriber: &mut Subscriber, bytes: &[u8], seen: &mut Seen) -> Result<(), Failure> {
    let is_first = !subscriber.after_newline && bytes.starts_with(b"HTTP/1.1 ");
    if is_first && !bytes.starts_with(b"HTTP/1.1 200") {
        return Err(Failure::Wrong(String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()));
    }
    let split = subscriber.after_newline && bytes.starts_with(b"\n");
    subscriber.after_newline = bytes.ends_with(b"\n");
    if split || memchr::memmem::find(bytes, b"\n\n").is_some() {
        subscriber.started = true;
        seen.started += 1;
    }
    Ok(())
}

fn report(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
