//! The conformance suite of connectrpc.com against this crate's gRPC client.
//!
//! The suite starts its servers, and starts this program once more as the client under test ([`client`]). `config.yaml` says what is
//! claimed, `excluded.txt` which cases fail and why.

mod client;
mod messages;
mod outcome;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The argument that makes this program the client. The folder with the suite's `.proto` files follows.
const CLIENT: &str = "--client";
/// The suite takes some seconds.
const LONGEST: Duration = Duration::from_secs(300);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, protos] = arguments.as_slice()
        && first == CLIENT
    {
        return client::run(Path::new(protos));
    }
    // As a test harness would: it is listed nowhere, and a filter may leave it out.
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_meant = filters.is_empty() || filters.iter().any(|filter| "grpc_conformance".contains(filter.as_str()));
    if is_meant && !arguments.iter().any(|argument| argument == "--list") {
        test();
    }
}

fn test() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc_conformance");
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/go/bin/connectconformance");
    assert!(suite.is_file(), "there is no {}; run .ci/setup conformance", suite.display());
    let program = std::env::current_exe().expect("a path");
    let mut running = Command::new(&suite)
        .arg("--mode=client")
        .arg("--conf")
        .arg(here.join("config.yaml"))
        .arg(format!("--known-failing=@{}", here.join("excluded.txt").display()))
        .arg("--")
        .args([&program, Path::new(CLIENT), &protos()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the suite starts");
    let (sender, receiver) = channel();
    let (out, err) = (running.stdout.take().expect("piped"), running.stderr.take().expect("piped"));
    for mut pipe in [Box::new(out) as Box<dyn std::io::Read + Send>, Box::new(err)] {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut text = String::new();
            let _read = pipe.read_to_string(&mut text);
            sender.send(text)
        });
    }
    drop(sender);
    let mut output = String::new();
    loop {
        match receiver.recv_timeout(LONGEST) {
            Ok(text) => output.push_str(&text),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _killed = running.kill();
                panic!("the suite does not end");
            }
        }
    }
    let status = running.wait().expect("a status");
    assert!(status.success(), "cases fail:\n{output}");
    assert!(!output.contains("could not be run"), "cases have not run:\n{output}");
    // A suite that has run nothing has tested nothing.
    let passed = output.lines().find_map(|line| line.split_once(" passed, 0 failed")?.0.trim().parse().ok());
    assert!(passed.is_some_and(|passed: usize| passed > 500), "too few cases:\n{output}");
    println!(
        "{}",
        output
            .lines()
            .filter(|line| line.contains(" passed") || line.contains("as expected due"))
            .collect::<Vec<_>>()
            .join("\n")
    );
}

/// The suite's `.proto` files, in the module that its program was built from.
fn protos() -> PathBuf {
    let go = if Path::new("/usr/local/go/bin/go").is_file() { "/usr/local/go/bin/go" } else { "go" };
    let output = Command::new(go).args(["env", "GOMODCACHE"]).output();
    let output = output.unwrap_or_else(|error| panic!("go: {error}; run .ci/setup go conformance"));
    let modules = String::from_utf8(output.stdout).expect("a path");
    let folder = Path::new(modules.trim()).join("connectrpc.com/conformance@v1.0.7/proto");
    assert!(folder.is_dir(), "there is no {}; run .ci/setup conformance", folder.display());
    folder
}
