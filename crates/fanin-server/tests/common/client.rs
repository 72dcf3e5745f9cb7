//! A client that sends exactly the bytes it is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (candidate, value) = line.split_once(':')?;
            candidate.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that it is a problem document, and gives its kind.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status, "{json}");
        json["type"].as_str().unwrap().strip_prefix("urn:fanin:problem:").unwrap().to_owned()
    }
}

/// A plain connection.
#[allow(clippy::disallowed_methods, reason = "tests have threads of their own")]
pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect(address)
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = connect(address).unwrap();
        // Longer than any test takes that passes.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// The same connection for another thread, to send while this one reads.
    pub fn try_clone(&self) -> Client {
        Client { stream: self.stream.try_clone().unwrap(), buffer: Vec::new() }
    }

    pub fn local(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends unless the server has closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub fn send_get(&mut self, path: &str) -> &mut Client {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.send_get(path).reply()
    }

    pub fn post(&mut self, path: &str, body: &[u8]) -> Reply {
        self.send(format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len()));
        self.send(body).reply()
    }

    pub fn reply(&mut self) -> Reply {
        self.reply_to("GET")
    }

    /// The next response; that to HEAD has no body.
    pub fn reply_to(&mut self, method: &str) -> Reply {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(self.fill(), "closed before a response: {:?}", String::from_utf8_lossy(&self.buffer));
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        if method == "HEAD" || status == 204 || status == 304 || status < 200 {
            return reply;
        }
        let length = reply.header("content-length").expect("content-length is always there").parse::<usize>().unwrap();
        while self.buffer.len() < length {
            assert!(self.fill(), "closed in a response: {} of {length}", self.buffer.len());
        }
        reply.body = self.buffer.drain(..length).collect();
        reply
    }

    fn fill(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                count > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    /// What comes up to and with `end`.
    pub fn read_until(&mut self, end: &[u8]) -> String {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return String::from_utf8(self.buffer.drain(..at + end.len()).collect()).unwrap();
            }
            assert!(self.fill(), "closed: {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    /// Everything that comes until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    /// Whether the server closes without another byte. Waits for it.
    pub fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.fill()
    }

    /// Nothing has come yet, and the connection is open.
    pub fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let mut chunk = [0; 1];
        let silent = matches!(self.stream.peek(&mut chunk), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).unwrap();
        silent
    }

    pub fn half_close(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}
