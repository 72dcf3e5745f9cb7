//! An issuer of tokens: PyJWT signs them, and a server on loopback has the keys.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::common::root;

/// What `tokens.py` prints, with so many tokens of key ids that do not exist.
pub fn tokens(made_up: usize) -> Value {
    let python = root().join(".venv/jwt/bin/python");
    let script = root().join("crates/fanin/tests/auth/tokens.py");
    let output = Command::new(&python).arg(script).arg(made_up.to_string()).output();
    let output = output.unwrap_or_else(|error| panic!("{error}: {}; run .ci/setup jwt", python.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A server of keys.
pub struct Issuer {
    pub address: SocketAddr,
    /// What it answers; `None`: 500.
    pub keys: Arc<Mutex<Option<String>>>,
    pub requests: Arc<AtomicUsize>,
}

impl Issuer {
    pub fn start(keys: Option<&Value>) -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let issuer = Issuer {
            address: listener.local_addr().expect("an address"),
            keys: Arc::new(Mutex::new(keys.map(text))),
            requests: Arc::default(),
        };
        let (keys, requests) = (issuer.keys.clone(), issuer.requests.clone());
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut head = Vec::new();
                let mut part = [0; 1024];
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut part) {
                        Ok(0) | Err(_) => break,
                        Ok(read) => head.extend_from_slice(&part[..read]),
                    }
                }
                if head.is_empty() {
                    continue;
                }
                assert!(head.starts_with(b"GET /keys "), "{}", String::from_utf8_lossy(&head));
                requests.fetch_add(1, Ordering::SeqCst);
                let keys = keys.lock().expect("not poisoned").clone();
                let (status, body) = keys.map_or(("500 Broken", String::new()), |keys| ("200 OK", keys));
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        issuer
    }

    pub fn serve(&self, keys: Option<&Value>) {
        *self.keys.lock().expect("not poisoned") = keys.map(text);
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
