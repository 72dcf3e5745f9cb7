//! The conformance suite of connectrpc against `fanin serve`: gRPC, gRPC-Web and Connect. `conformance/config.yaml` says what is claimed,
//! and why the rest is not.
#![cfg(unix)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::root;

/// The folder of the suite's `.proto` files.
fn protos() -> PathBuf {
    let go = ["go", "/usr/local/go/bin/go"].into_iter().find_map(|go| {
        let output = Command::new(go).args(["env", "GOMODCACHE"]).output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).expect("text").trim().to_owned())
    });
    let cache = go.expect("no Go; run .ci/setup go conformance");
    let folder = Path::new(&cache).join("connectrpc.com/conformance@v1.0.7/proto");
    assert!(folder.is_dir(), "there is no {}; run .ci/setup conformance", folder.display());
    folder
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn the_suite_of_connectrpc_passes() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let python = root().join(".venv/triton/bin/python");
    let suite = root().join(".venv/go/bin/connectconformance");
    let (protos, modules) = (protos(), tempfile::tempdir().expect("a folder"));
    let made = Command::new(&python)
        .args(["-m", "grpc_tools.protoc"])
        .arg(format!("-I{}", protos.display()))
        .arg(format!("--python_out={}", modules.path().display()))
        .args(["service", "config", "server_compat"].map(|name| format!("connectrpc/conformance/v1/{name}.proto")))
        .current_dir(&protos)
        .output()
        .unwrap_or_else(|error| panic!("{error}: {}; run .ci/setup triton", python.display()));
    assert!(made.status.success(), "{}", text(&made));
    // The suite has a timeout for each call.
    let output = Command::new(&suite)
        .arg("--conf")
        .arg(here.join("config.yaml"))
        .args(["--mode", "server", "--max-servers", "2", "--parallel", "4", "--"])
        .arg(&python)
        .arg(here.join("server.py"))
        .arg(env!("CARGO_BIN_EXE_fanin"))
        .args([protos.as_path(), modules.path(), &here.join("conformance.star")])
        .output()
        .unwrap_or_else(|error| panic!("{error}: {}; run .ci/setup conformance", suite.display()));
    let text = text(&output);
    let failed: Vec<&str> = text.lines().filter(|line| line.contains("FAILED")).collect();
    assert!(output.status.success(), "{}\n{text}", failed.join("\n"));
    // A suite that has run nothing has tested nothing.
    let passed = text
        .lines()
        .filter_map(|line| line.split_once(" passed"))
        .find_map(|(count, _)| count.trim().parse::<u32>().ok());
    assert!(passed.is_some_and(|passed| passed > 3000), "{text}");
}
