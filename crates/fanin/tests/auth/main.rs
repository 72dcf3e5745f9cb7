//! Who may use a route, and how often: tokens of PyJWT, API keys, addresses, rate limits, a flow before.

#![allow(clippy::disallowed_methods, reason = "a test may block")]

#[path = "../common/mod.rs"]
mod common;
mod edge;
mod issuer;
mod limits;
mod tokens;

use std::fs;
use std::path::Path;

use common::Serving;
use tempfile::TempDir;

/// A service of these files.
fn service(toml: &str, flow: &str, more: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "fanin.toml", &format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{toml}"));
    write(dir.path(), "page.star", flow);
    for (name, text) in more {
        write(dir.path(), name, text);
    }
    dir
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).expect("written");
}

/// A response to GET with these header lines.
fn get(serving: &Serving, path: &str, headers: &str) -> Response {
    use std::io::{Read, Write};
    let mut stream = serving.connect();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    Response(text)
}

/// An admin page.
fn admin(serving: &Serving, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(&serving.admin).expect("connected");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a page");
    text
}

struct Response(String);

impl Response {
    fn status(&self) -> u16 {
        self.0.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{}", self.0))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let (head, _) = self.0.split_once("\r\n\r\n").expect("a head");
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").expect("a body").1
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.body()).unwrap_or_else(|error| panic!("{error}: {}", self.0))
    }
}
