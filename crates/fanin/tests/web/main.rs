//! What browsers and caches expect, seen by real clients: curl and Chromium.
#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;

mod compression;
mod conditional;
mod cookies;
mod cors;
mod forms;
mod head;
mod hosts;
mod request_headers;
mod response_headers;
mod without_flow;

use std::path::Path;
use std::process::Command;

use common::Serving;
use tempfile::TempDir;

/// A service of one flow file.
fn service(toml: &str, flow: &str) -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), toml, flow);
    let serving = Serving::start(dir.path());
    (dir, serving)
}

fn write(dir: &Path, toml: &str, flow: &str) {
    let server =
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"off\"\nworkers = 1\nqueueing = \"off\"\n";
    std::fs::write(dir.join("fanin.toml"), format!("{server}{toml}")).expect("written");
    std::fs::write(dir.join("web.star"), flow).expect("written");
}

/// What curl prints: heads and bodies.
fn curl(arguments: &[&str]) -> String {
    String::from_utf8(curl_bytes(arguments)).expect("text")
}

fn curl_bytes(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments).output().expect("curl runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The value of a header in what curl prints.
fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
