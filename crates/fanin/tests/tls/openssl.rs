//! `openssl s_client`, which speaks for all clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::common::Serving;
use crate::files::Service;

/// What a client sees.
#[derive(Debug)]
pub struct Seen {
    /// The handshake and the answer.
    pub text: String,
}

impl Seen {
    #[track_caller]
    pub fn has(&self, part: &str) -> &Seen {
        assert!(self.text.contains(part), "no `{part}` in:\n{}", self.text);
        self
    }

    /// The handshake succeeded, and the request was answered.
    #[track_caller]
    pub fn is_answered(&self) -> &Seen {
        self.has("HTTP/1.1 200 OK")
    }

    /// The client could try what was asked of it, and the server refused the handshake.
    #[track_caller]
    pub fn is_refused(&self) -> &Seen {
        assert!(!self.text.contains("HTTP/1.1 "), "it was answered:\n{}", self.text);
        for own in ["no cipher match", "no ciphers available", "Error with command", "unknown option", "connect:errno"]
        {
            assert!(!self.text.contains(own), "the client could not try:\n{}", self.text);
        }
        self.has("CONNECTED")
    }

    pub fn count(&self, part: &str) -> usize {
        self.text.matches(part).count()
    }

    /// The body of the answer.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let body = self.text.split("\r\n\r\n").nth(1).unwrap_or_else(|| panic!("no answer in:\n{}", self.text));
        let mut values = serde_json::Deserializer::from_str(body).into_iter();
        values.next().unwrap_or_else(|| panic!("no body")).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

fn command(service: &Service, address: &str, options: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", "openssl", "s_client", "-connect", address, "-CAfile"]).arg(service.path("ca.pem"));
    if !options.contains("-servername") && !options.contains("-noservername") {
        command.args(["-servername", "localhost"]);
    }
    command.args(options.split_whitespace()).current_dir(service.dir());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A connection with one request.
pub fn get(service: &Service, serving: &Serving, path: &str, options: &str) -> Seen {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    connect(service, &serving.listen, &format!("-ign_eof {options}"), &request)
}

/// A connection on which this is sent.
pub fn connect(service: &Service, address: &str, options: &str, input: &str) -> Seen {
    let mut child = command(service, address, options).spawn().expect("timeout and openssl; run .ci/setup postgres");
    // It may have ended already, which its output shows.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Seen { text: format!("{}\n{}", text(&output.stdout), text(&output.stderr)) }
}

/// A connection that stays open.
pub struct Open {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Open {
    pub fn new(service: &Service, serving: &Serving, options: &str) -> Open {
        let mut command = command(service, &serving.listen, &format!("-quiet {options}"));
        let mut child = command.stderr(Stdio::null()).spawn().expect("timeout and openssl; run .ci/setup postgres");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Open { child, input, output }
    }

    /// The head of the response to a request on this connection.
    pub fn get(&mut self, path: &str) -> String {
        write!(self.input, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
        let mut head = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("a line") > 0, "the connection has ended: {head}");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
            head += &line;
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).expect("a body");
        head
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
