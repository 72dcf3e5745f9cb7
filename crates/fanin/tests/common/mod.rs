//! The program as a user runs it: started, asked, signalled, ended.

// Each test binary uses a part of it.
#![allow(dead_code)]

#[cfg(unix)]
pub mod collector;
#[cfg(unix)]
pub mod websocket;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Nothing here may take longer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub fn fanin(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.args(arguments).env_remove("RUST_LOG").env("NO_COLOR", "1").current_dir(root());
    command
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = fanin(arguments).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

/// A server that runs, and the lines that it logs.
pub struct Serving {
    child: Child,
    log: Receiver<String>,
    /// What was logged before it served.
    first: RefCell<VecDeque<String>>,
    pub listen: String,
    /// The address of the admin pages, if they are on.
    pub admin: String,
}

impl Serving {
    pub fn start(dir: &Path) -> Serving {
        let mut serving = Serving::unnamed(dir);
        serving.named();
        serving
    }

    /// With environment variables.
    pub fn with(dir: &Path, variables: &[(&str, &str)]) -> Serving {
        let mut serving = Serving::spawned(dir, variables);
        serving.named();
        serving
    }

    /// Started; whether it serves is not known yet.
    pub fn unnamed(dir: &Path) -> Serving {
        Serving::spawned(dir, &[])
    }

    fn spawned(dir: &Path, variables: &[(&str, &str)]) -> Serving {
        let path = dir.to_str().expect("a path of text");
        let mut command = fanin(&["serve", path]);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, log) = channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Serving { child, log, first: RefCell::default(), listen: String::new(), admin: String::new() }
    }

    /// Waits until it serves.
    pub fn named(&mut self) {
        let mut lines = self.lines_until("serving");
        let line = lines.pop().expect("at least this line");
        self.first.borrow_mut().extend(lines);
        let address = |key: &str| line.split(key).nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
        self.listen = address("listen=\"").unwrap_or_else(|| panic!("no address in {line}"));
        self.admin = address("admin=\"").unwrap_or_default();
    }

    /// Waits for a line of the log that has a text in it.
    pub fn logged(&self, part: &str) -> String {
        self.lines_until(part).pop().expect("at least this line")
    }

    /// The same, with the lines before it.
    pub fn lines_until(&self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let first = self.first.borrow_mut().pop_front();
            match first.map_or_else(|| self.log.recv_timeout(TIMEOUT), Ok) {
                Ok(line) => lines.push(line),
                Err(error) => panic!("no `{part}` in the log: {error}; {}", lines.join("\n")),
            }
            if lines.last().is_some_and(|line| line.contains(part)) {
                return lines;
            }
        }
    }

    pub fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        self.ask(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    }

    pub fn connect(&self) -> TcpStream {
        let address = self.listen.parse().expect("an address");
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[cfg(unix)]
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Waits for its end: status and access log.
    pub fn end(mut self) -> (Option<i32>, String) {
        loop {
            match self.log.recv_timeout(TIMEOUT) {
                Ok(_) => {}
                // Standard error closes when the process ends.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
        let mut access = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut access).expect("text");
        (self.child.wait().expect("a status").code(), access)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Only a test that has failed leaves it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
