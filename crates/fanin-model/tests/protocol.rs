//! The protocol as clients speak it: tritonclient over gRPC and HTTP, and what they must not send.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Repository, data};
use fanin_model::Models;
use fanin_model::protocol::{Service, bind, serve};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::oneshot;

fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/triton/bin/python");
    assert!(python.exists(), "tritonclient is not installed: run `.ci/setup triton`");
    python
}

/// Models served on a thread, as a worker of the server does it.
struct Server {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(config: &fanin_config::Models) -> Server {
        let models = Models::start(config).expect("it starts");
        let listeners = bind(&["127.0.0.1:0".parse().expect("an address")]).expect("a listener");
        let address = listeners[0].local_addr().expect("an address");
        let (end, ended) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            runtime.expect("a runtime").block_on(async move {
                let service = Service::new(models);
                let serving = serve(&service, listeners).expect("it serves");
                ready.send(()).expect("somebody waits");
                // The test may have failed; then it ends as well.
                let _ = ended.await;
                serving.drain();
                while serving.open() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!((service.connections(), service.in_flight(), service.bytes()), (0, 0, 0));
            });
        });
        is_ready.recv().expect("it is ready");
        Server { address, end: Some(end), thread: Some(thread) }
    }

    fn python(&self, theme: &str, more: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/client.py");
        let mut command = Command::new(python());
        command.arg(script).arg(theme).arg(self.address.to_string()).args(more);
        let output = command.output().expect("python runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{theme}:\n{}{}", text(&output.stdout), text(&output.stderr));
        assert!(text(&output.stdout).ends_with("done\n"), "{}", text(&output.stdout));
    }

    /// Drains: ends when the last client has gone.
    fn end(mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("nothing failed on the server's side");
        }
    }
}

fn repository() -> Repository {
    let repository = Repository::with_spam();
    repository.put("three", 3, "model.ubj", &data("three.ubj"));
    repository
}

#[test]
fn tritonclient_over_grpc() {
    let repository = repository();
    let server = Server::start(&repository.config());
    server.python("grpc", &[&data_dir()]);
    server.end();
}

#[test]
fn tritonclient_over_http() {
    let repository = repository();
    let server = Server::start(&repository.config());
    server.python("http", &[&data_dir()]);
    server.end();
}

#[test]
fn bad_requests_get_the_protocols_own_statuses() {
    let repository = repository();
    let config = fanin_config::Models { max_message: 100_000, control: false, ..repository.config() };
    let server = Server::start(&config);
    server.python("bad", &[]);
    server.end();
}

/// Sends a request of JSON, and gives status and body.
#[allow(clippy::disallowed_methods, reason = "a test's own thread")]
fn infer(server: &Server, body: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(server.address).expect("connected");
    let head = format!(
        "POST /v2/models/spam/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

#[cfg(target_os = "linux")]
fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("there are threads");
    tasks.flatten().any(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
}

/// A large body is read, and a large answer written, on a thread of its own. The event loop never does either.
#[test]
#[cfg(target_os = "linux")]
fn large_requests_are_converted_off_the_event_loop() {
    let repository = repository();
    let server = Server::start(&repository.config());
    let rows = |count: usize| {
        let data = vec!["[1.5, 2.5, 3.5, 4.5]"; count].join(",");
        format!("{{\"inputs\":[{{\"name\":\"input\",\"datatype\":\"FP64\",\"shape\":[{count},4],\"data\":[{data}]}}]}}")
    };
    let (status, small) = infer(&server, &rows(1));
    assert_eq!(status, 200, "{small}");
    let (status, large) = infer(&server, &rows(20_000));
    assert_eq!(status, 200, "{}", &large[..large.len().min(200)]);
    assert!(has_thread("fanin-tensors"));
    let outputs = |text: &str| -> Vec<serde_json::Value> {
        let answer: serde_json::Value = serde_json::from_str(text).expect("JSON");
        answer["outputs"].as_array().expect("a list").clone()
    };
    for (one, many) in outputs(&small).iter().zip(&outputs(&large)) {
        let (one, many) = (one["data"].as_array().expect("a list"), many["data"].as_array().expect("a list"));
        assert_eq!(many.len(), 20_000 * one.len());
        assert!(many.chunks(one.len()).all(|row| row == one));
    }
    // More tensors than any model has are refused before they are all read.
    let tensor = "{\"name\":\"x\",\"datatype\":\"FP64\",\"shape\":[0],\"data\":[]}";
    let (status, refused) = infer(&server, &format!("{{\"inputs\":[{}]}}", vec![tensor; 1001].join(",")));
    assert_eq!(status, 400);
    assert!(refused.contains("more than 1000 inputs"), "{refused}");
    let outputs = vec!["{\"name\":\"raw\"}"; 1001].join(",");
    let (status, refused) = infer(&server, &format!("{{\"inputs\":[],\"outputs\":[{outputs}]}}"));
    assert_eq!(status, 400);
    assert!(refused.contains("more than 1000 outputs"), "{refused}");
    server.end();
}

#[test]
fn the_standard_services_tell_health_and_describe_the_protocol_if_they_may() {
    let repository = repository();
    for (reflection, theme) in [(true, "on"), (false, "off")] {
        let server = Server::start(&fanin_config::Models { reflection, ..repository.config() });
        server.python("standard", &[theme]);
        server.end();
    }
}

#[test]
fn clients_that_watch_are_bounded_and_told_when_the_server_drains() {
    let repository = repository();
    let server = Server::start(&fanin_config::Models { max_connections: 2, ..repository.config() });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/client.py");
    let mut client = Command::new(python())
        .args([script.as_os_str(), "watch".as_ref(), server.address.to_string().as_ref()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut lines = BufReader::new(client.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "under way");
    server.end();
    assert_eq!(lines.next().expect("a line").expect("text"), "done");
    assert!(client.wait().expect("it ends").success());
}

/// The first server drains while clients ask it as fast as they can; they go on at the second.
#[test]
fn draining_moves_clients_without_an_error() {
    let repository = repository();
    let (first, second) = (Server::start(&repository.config()), Server::start(&repository.config()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/client.py");
    let mut client = Command::new(python())
        .args([script.as_os_str(), "drain".as_ref()])
        .args([first.address.to_string(), second.address.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut lines = BufReader::new(client.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "under way");
    first.end();
    assert_eq!(lines.next().expect("a line").expect("text"), "done");
    assert!(client.wait().expect("it ends").success());
    second.end();
}

/// Large requests that do not end, on connections of their own.
#[test]
fn all_bytes_in_progress_are_bounded() {
    let repository = repository();
    let config = fanin_config::Models { max_message: 1_000_000, max_in_progress: 1_000_000, ..repository.config() };
    let server = Server::start(&config);
    server.python("bytes", &[]);
    server.end();
}

/// Of all connections together, not of each.
#[test]
fn requests_and_connections_are_bounded_and_silent_clients_closed() {
    let repository = repository();
    let config = fanin_config::Models {
        limit: 2,
        max_connections: 4,
        timeout: Duration::from_secs(2),
        keepalive: Duration::from_millis(100),
        keepalive_timeout: Duration::from_secs(1),
        ..repository.config()
    };
    let server = Server::start(&config);
    server.python("limits", &[]);
    server.end();
}

#[test]
fn old_connections_are_asked_to_go() {
    let repository = repository();
    let config = fanin_config::Models {
        max_connection_age: Some(Duration::from_millis(200)),
        keepalive: Duration::from_millis(50),
        ..repository.config()
    };
    let server = Server::start(&config);
    server.python("age", &[]);
    server.end();
}

fn data_dir() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").display().to_string()
}
