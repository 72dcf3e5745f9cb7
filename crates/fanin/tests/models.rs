//! Models served by the program: over HTTP by the protocol, to a flow, in the metrics, to the end.
#![cfg(unix)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Serving, TIMEOUT};

const TOML: &str = r#"
[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 2

[models]
repository = "models"
listen = "127.0.0.1:0"
"#;

fn ask(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect_timeout(&address.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let length = body.len();
    write!(stream, "{head} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn models_are_served_beside_flows_and_survive_a_reload() {
    let dir = tempfile::tempdir().expect("a folder");
    let version = dir.path().join("models/spam/1");
    fs::create_dir_all(&version).expect("made");
    let data = common::root().join("crates/fanin-model/tests/data");
    fs::copy(data.join("one.txt"), version.join("model.txt")).expect("copied");
    fs::write(dir.path().join("fanin.toml"), TOML).expect("written");

    let mut serving = Serving::unnamed(dir.path());
    let line = serving.logged("models are served on ");
    let address = line.rsplit("models are served on ").next().and_then(|rest| rest.split_whitespace().next());
    let address = address.expect("an address").to_owned();
    serving.named();
    let body = r#"{"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [0.5, -1.25, 0, 2]}]}"#;
    // Both workers answer: connections are spread over them.
    for _ in 0..8 {
        let answer = ask(&address, "POST /v2/models/spam/infer", body);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""data":[0.6448973757780191]"#), "{answer}");
    }
    serving.signal("-HUP");
    serving.logged("reloaded");
    assert!(ask(&address, "POST /v2/models/spam/infer", body).starts_with("HTTP/1.1 200"));
    // A quiet connection does not keep the server from ending.
    let idle = TcpStream::connect_timeout(&address.parse().expect("an address"), TIMEOUT).expect("connected");
    serving.signal("-TERM");
    let (status, _) = serving.end();
    assert_eq!(status, Some(0));
    drop(idle);
}

#[test]
fn a_repository_that_is_not_there_is_told_at_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("fanin.toml"), TOML).expect("written");
    let (status, _, error) = common::run(&["serve", dir.path().to_str().expect("text")]);
    assert_eq!(status, Some(1));
    assert!(error.contains("models.repository: ") && error.contains("/models: cannot be read: "), "{error}");
}
