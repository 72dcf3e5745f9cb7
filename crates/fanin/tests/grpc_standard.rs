//! The standard services of gRPC on the server's port, asked by grpcurl: reflection and health.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Serving, TIMEOUT, root};
use tempfile::TempDir;

const PROTO: &str = "syntax = \"proto3\";\npackage t.v1;\nimport \"google/protobuf/timestamp.proto\";\n\
    service Shown { rpc Echo(M) returns (M); }\nservice Hidden { rpc Echo(Secret) returns (Secret); }\n\
    message M { string id = 1; google.protobuf.Timestamp at = 2; }\nmessage Secret { string word = 1; }\n";

fn start(grpc: &str) -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"off\"\nworkers = 2\nqueueing = \"off\"\n\
         drain_timeout = \"50s\"\n[grpc]\nproto = \"t.proto\"\n{grpc}\n\
         [[routes]]\ngrpc = \"t.v1.Shown/Echo\"\nflow = \"t.star:echo\"\ntimeout = \"30s\"\n"
    );
    let flow = "def echo(req):\n    return req.body\n";
    for (name, text) in [("fanin.toml", toml.as_str()), ("t.proto", PROTO), ("t.star", flow)] {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let serving = Serving::start(dir.path());
    (dir, serving)
}

fn grpcurl() -> Command {
    let program = root().join(".venv/go/bin/grpcurl");
    assert!(program.exists(), "there is no {}; run .ci/setup grpcurl", program.display());
    let mut command = Command::new(program);
    command.args(["-plaintext", "-max-time", "50"]);
    command
}

fn ask(before: &[&str], listen: &str, after: &[&str]) -> (bool, String) {
    let output = grpcurl().args(before).arg(listen).args(after).output().expect("grpcurl runs");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn reflection_tells_what_routes_serve() {
    let (_dir, serving) = start("reflection = true");
    let listen = &serving.listen;
    let (success, text) = ask(&[], listen, &["list"]);
    let services: Vec<&str> = text.lines().collect();
    let expected = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "t.v1.Shown",
    ];
    assert!(success && services == expected, "{text}");
    let (success, text) = ask(&[], listen, &["describe", "t.v1.Shown"]);
    assert!(success && text.contains("rpc Echo ( .t.v1.M ) returns ( .t.v1.M );"), "{text}");
    let (success, text) = ask(&[], listen, &["describe", "t.v1.M"]);
    assert!(success && text.contains(".google.protobuf.Timestamp at = 2;"), "{text}");
    let (success, text) = ask(&["-d", r#"{"id": "7", "at": "2024-01-01T10:00:00Z"}"#], listen, &["t.v1.Shown/Echo"]);
    assert!(success && text.contains(r#""at": "2024-01-01T10:00:00Z""#), "{text}");
    let (success, text) = ask(&[], listen, &["describe", "t.v1.None"]);
    assert!(!success && text.contains("t.v1.None"), "{text}");
}

#[test]
fn reflection_is_off_unless_switched_on() {
    let (_dir, serving) = start("");
    let (success, text) = ask(&[], &serving.listen, &["list"]);
    assert!(!success && text.contains("reflection"), "{text}");
}

/// The health service is described here, as clients that use no reflection have it.
fn health<'a>(folder: &'a str, message: &'a str) -> [&'a str; 6] {
    ["-import-path", folder, "-proto", "grpc/health/v1/health.proto", "-d", message]
}

#[test]
fn health_is_that_of_each_service_and_ends_with_the_server() {
    let (_dir, serving) = start("");
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fanin-grpc/proto");
    let folder = protos.to_str().expect("text");
    let check = |message: &str| ask(&health(folder, message), &serving.listen, &["grpc.health.v1.Health/Check"]);
    for message in ["{}", r#"{"service": "t.v1.Shown"}"#] {
        let (success, text) = check(message);
        assert!(success && text.contains("\"SERVING\""), "{text}");
    }
    let (success, text) = check(r#"{"service": "t.v1.Hidden"}"#);
    assert!(!success && text.contains("NotFound"), "{text}");
    let (success, text) = ask(&health(folder, "{}"), &serving.listen, &["grpc.health.v1.Health/List"]);
    assert!(success && text.contains("\"t.v1.Shown\"") && !text.contains("Hidden"), "{text}");
    let watch = |message: &str| {
        let mut command = grpcurl();
        command.args(health(folder, message)).args([&serving.listen, "grpc.health.v1.Health/Watch"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("grpcurl runs")
    };
    let (mut known, mut unknown) = (watch(r#"{"service": "t.v1.Shown"}"#), watch(r#"{"service": "x"}"#));
    let mut lines = BufReader::new(known.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut others = BufReader::new(unknown.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("\"SERVING\"")), "it serves");
    assert!(others.any(|line| line.contains("\"SERVICE_UNKNOWN\"")), "it is not known");
    // The server ends although both still watch.
    serving.signal("-TERM");
    assert!(lines.any(|line| line.contains("\"NOT_SERVING\"")), "it drains");
    for mut child in [known, unknown] {
        assert!(!child.wait().expect("a status").success(), "the stream ends with a status");
    }
    assert_eq!(serving.end().0, Some(0), "within {TIMEOUT:?}");
}
