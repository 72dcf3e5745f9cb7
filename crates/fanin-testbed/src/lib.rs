//! Real servers for tests and benchmarks, none of them our own code: PostgreSQL, MariaDB, gRPC by Python's grpcio, HAProxy, Redis or
//! Valkey, NATS, and nginx, Node and Go as backends. Also a [`browser`], a [`tab`] of one that tests drive, and what tests of several crates share: the requests of [`malformed`], and [`seeded_bugs`].
//!
//! A server is a script in `.ci/servers`, which can be run by hand too. It uses a temporary folder and a free port of
//! 127.0.0.1. It ends when its [`Server`] is dropped or its process ends. A server that is not installed is a panic
//! that names the script: a test that lacks its server has not passed.

pub mod browser;
pub mod malformed;
pub mod seeded_bugs;
pub mod tab;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    /// Its URL, with user and password if it has them.
    pub url: String,
    /// PEM file with the certificate to trust, for servers with TLS. For gRPC, the folder with `set.binpb`, the
    /// descriptors of protoc. For a backend, its log.
    pub ca: PathBuf,
}

impl Server {
    /// A PostgreSQL server with the superuser `fanin`.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn postgres() -> Server {
        Server::run("postgres", &[])
    }

    /// The same with settings: `["-c", "max_connections=5"]`.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn postgres_with(settings: &[&str]) -> Server {
        Server::run("postgres", settings)
    }

    /// A gRPC server of grpcio with the services of `.ci/servers/proto/probe.proto` and server reflection.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn grpc() -> Server {
        Server::run("grpc", &[])
    }

    /// The same with options: `["--no-reflection"]`, `["--old-reflection"]`, `["--permissive"]`, `["--tls"]`.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn grpc_with(options: &[&str]) -> Server {
        Server::run("grpc", options)
    }

    /// The folder with `probe.proto`.
    pub fn protos() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/servers/proto")
    }

    /// A MariaDB server with the user `fanin`, who has all privileges, and an empty database `shop`.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn mariadb() -> Server {
        Server::run("mariadb", &[])
    }

    /// An HAProxy in front of `address`, in mode `tcp` or `http`. Options are those of a `server` line: `send-proxy-v2`.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn haproxy(address: std::net::SocketAddr, mode: &str, options: &[&str]) -> Server {
        let address = address.to_string();
        Server::run("haproxy", &[&[address.as_str(), mode], options].concat())
    }

    /// An nginx in front of a server, which compresses what it passes on. WebSockets are passed on, too.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn nginx(address: std::net::SocketAddr) -> Server {
        Server::run("nginx", &[&address.to_string()])
    }

    /// An HTTP server that logs each request that it has read to the file [`ca`](Self::ca): `"nginx"`, `"node"` or `"go"`.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn backend(kind: &str) -> Server {
        Server::run("backend", &[kind])
    }

    /// A broker: `"redis"`, which may be Valkey, or `"nats"`. The first option may be `"tls"`, others are arguments of its program. The
    /// password in its URL is `secret-of-the-broker`.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    pub fn broker(kind: &str, options: &[&str]) -> Server {
        Server::run("broker", &[&[kind], options].concat())
    }

    fn run(script: &str, arguments: &[&str]) -> Server {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/servers").join(script);
        let mut child = Command::new(&path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let commands = child.stdin.take();
        let mut replies = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let line = reply(&mut replies, script);
        let mut words = line.split_whitespace();
        let url = words.next().unwrap_or_default().to_owned();
        let ca = PathBuf::from(words.next().unwrap_or_default());
        Server { child, commands, replies, url, ca }
    }

    fn command(&mut self, command: &str) {
        let commands = self.commands.as_mut().expect("taken only when dropped");
        writeln!(commands, "{command}").expect("the script reads");
        assert_eq!(reply(&mut self.replies, command), "done");
    }

    /// Kills the server's processes, as a crash would.
    ///
    /// # Panics
    /// If the server's script has ended.
    pub fn kill(&mut self) {
        self.command("kill");
    }

    /// Stops it in order, so that it closes its connections.
    ///
    /// # Panics
    /// If the server's script has ended.
    pub fn stop(&mut self) {
        self.command("stop");
    }

    /// Makes a broker hang: it accepts connections, and neither reads nor answers.
    ///
    /// # Panics
    /// If the server's script has ended.
    pub fn pause(&mut self) {
        self.command("pause");
    }

    /// Ends the pause.
    ///
    /// # Panics
    /// If the server's script has ended.
    pub fn go_on(&mut self) {
        self.command("continue");
    }

    /// Starts it again, on the same port and with the same data.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&mut self) {
        self.command("start");
    }
}

fn reply(replies: &mut BufReader<ChildStdout>, of: &str) -> String {
    let mut line = String::new();
    replies.read_line(&mut line).expect("the script's output is text");
    assert!(!line.is_empty(), "the server did not start ({of}); if it is not installed, run .ci/setup");
    line.trim_end().to_owned()
}

impl Drop for Server {
    fn drop(&mut self) {
        // The script cleans up when its input ends.
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}
