//! The process of some subscribers, and one connection that publishes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::MARK;
use crate::process::{self, OTHER_CORE, nanos};
use crate::{Failure, load};

const PATIENCE: Duration = Duration::from_secs(90);

/// Subscribers; they are gone with this.
pub struct Subscribers {
    child: Child,
    lines: Receiver<String>,
}

impl Subscribers {
    /// Starts them: so many that read, and so many that do not. [`Subscribers::wait`] waits for them.
    pub fn start(server: SocketAddr, reading: usize, silent: usize, network: usize) -> Result<Subscribers, Failure> {
        let mut command = process::on_core(OTHER_CORE, std::env::current_exe()?);
        command.args(["push-subscribers", "--server", &server.to_string(), "--reading", &reading.to_string()]);
        command.args(["--silent", &silent.to_string(), "--network", &network.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Subscribers { child, lines })
    }

    fn line(&self) -> Result<String, Failure> {
        self.lines.recv_timeout(PATIENCE).map_err(|error| {
            Failure::Wrong(match error {
                RecvTimeoutError::Timeout => "not all subscribers have the event".into(),
                // It has said why on stderr.
                RecvTimeoutError::Disconnected => "the subscribers have ended".into(),
            })
        })
    }

    /// Waits until all have subscribed.
    pub fn wait(&self) -> Result<(), Failure> {
        match self.line()? {
            line if line == "ready" => Ok(()),
            line => Err(Failure::Wrong(format!("subscribers said {line}"))),
        }
    }

    /// Waits until all that read have an event; when the last one had it, by [`nanos`].
    pub fn delivered(&self, event: usize) -> Result<u64, Failure> {
        let line = self.line()?;
        let at = line.strip_prefix(&format!("event {event} ")).and_then(|at| at.parse().ok());
        at.ok_or_else(|| Failure::Wrong(format!("subscribers said {line} instead of event {event}")))
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection that publishes.
pub struct Publisher {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Publisher {
    /// One that publishes events of so many bytes.
    pub fn connect(server: SocketAddr, size: usize) -> io::Result<Publisher> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = format!("\"{}{}\"", char::from(MARK), "x".repeat(size));
        let head = "POST /publish HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes();
        Ok(Publisher { stream, request, buffer: vec![0; 4096] })
    }

    /// Publishes an event: when that began, by [`nanos`], and how long it took until the answer was there.
    pub fn publish(&mut self) -> Result<(u64, Duration), Failure> {
        let (at, begun) = (nanos(), Instant::now());
        self.stream.write_all(&self.request)?;
        let mut read = 0;
        loop {
            let count = self.stream.read(&mut self.buffer[read..])?;
            read += count;
            let answer = &self.buffer[..read];
            // The body is an object with an id.
            if answer.ends_with(b"\"}") && answer.starts_with(b"HTTP/1.1 200") {
                return Ok((at, begun.elapsed()));
            }
            if count == 0 || read == self.buffer.len() || read > 12 && !answer.starts_with(b"HTTP/1.1 200") {
                return Err(Failure::Wrong(format!("publishing: {}", String::from_utf8_lossy(answer))));
            }
        }
    }
}

/// A gauge of the server's metrics.
pub fn gauge(admin: SocketAddr, name: &str) -> Result<f64, Failure> {
    let (_, body) = load::once(admin, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", Duration::from_secs(30))?;
    let text = String::from_utf8_lossy(&body);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.ok_or_else(|| Failure::Wrong(format!("the server has no metric {name}")))
}
