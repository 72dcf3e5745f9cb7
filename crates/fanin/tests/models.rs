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
    write!(stream, "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
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
    // The program's own load speaks gRPC to it.
    let inputs = dir.path().join("inputs.json");
    fs::write(&inputs, body).expect("written");
    for (model, status) in [("spam", "200"), ("spam/1", "200"), ("ham", "404")] {
        let url = format!("grpc://{address}/{model}");
        let body = inputs.to_str().expect("text");
        let load =
            ["load", &url, "--rate", "20", "--duration", "1s", "--connections", "2", "--body", body, "--json", "-"];
        let (code, told, error) = common::run(&load);
        assert_eq!(code, Some(0), "{error}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
        assert_eq!((&told["status"][status], &told["protocol"]), (&20.into(), &"gRPC".into()), "{told}");
    }
    let (code, _, error) = common::run(&["load", &format!("grpc://{address}"), "--body", "none"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("none cannot be read") || error.contains("the model is missing"), "{error}");
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

/// The budget is the whole server's.
#[test]
fn requests_to_models_are_refused_when_memory_runs_short() {
    let dir = tempfile::tempdir().expect("a folder");
    let version = dir.path().join("models/spam/1");
    fs::create_dir_all(&version).expect("made");
    let data = common::root().join("crates/fanin-model/tests/data");
    fs::copy(data.join("one.txt"), version.join("model.txt")).expect("copied");
    let toml = TOML.replace("workers = 2", "workers = 1\nmemory = \"1MiB\"");
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    let serving = Serving::unnamed(dir.path());
    let line = serving.logged("models are served on ");
    let address = line.rsplit("models are served on ").next().and_then(|rest| rest.split_whitespace().next());
    let address = address.expect("an address").to_owned();
    serving.logged("memory is close to its budget");
    let body = r#"{"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [0.5, -1.25, 0, 2]}]}"#;
    let answer = ask(&address, "POST /v2/models/spam/infer", body);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("memory runs short"), "{answer}");
    let inputs = dir.path().join("inputs.json");
    fs::write(&inputs, body).expect("written");
    let (url, inputs) = (format!("grpc://{address}/spam"), inputs.to_str().expect("text").to_owned());
    let load =
        ["load", &url, "--rate", "20", "--duration", "1s", "--connections", "1", "--body", &inputs, "--json", "-"];
    let (_, told, _) = common::run(&load);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
    assert_eq!(told["status"]["429"], 20, "{told}");
    // Whoever only asks how things are is answered.
    assert!(ask(&address, "GET /v2/health/ready", "").starts_with("HTTP/1.1 200"));
    serving.signal("-TERM");
    serving.end();
}

#[test]
fn a_repository_that_is_not_there_is_told_at_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("fanin.toml"), TOML).expect("written");
    let (status, _, error) = common::run(&["serve", dir.path().to_str().expect("text")]);
    assert_eq!(status, Some(1));
    assert!(error.contains("models.repository: ") && error.contains("/models: cannot be read: "), "{error}");
}

#[test]
fn a_flow_asks_a_model_of_its_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = common::root().join("crates/fanin-model/tests/data");
    for model in ["spam/1", "empty"] {
        fs::create_dir_all(dir.path().join("models").join(model)).expect("made");
    }
    fs::copy(data.join("one.txt"), dir.path().join("models/spam/1/model.txt")).expect("copied");
    let more = "[upstreams.spam]\nmodel = 'spam'\ntimeout = '30s'\n[upstreams.empty]\nmodel = 'empty'\n\
                [[routes]]\npath = '/'\nflow = 'flow.star:page'\ntimeout = '30s'\n\
                [[routes]]\npath = '/wrong'\nflow = 'flow.star:wrong'\n";
    fs::write(dir.path().join("fanin.toml"), format!("{TOML}{more}")).expect("written");
    let flow = r#"
load("@upstreams", "spam", "empty")

def page(req):
    row = [0.5, -1.25, 0, 2]
    one = spam.infer(row)
    return {
        "one": one,
        "version": one.headers["model-version"],
        "many": spam.infer({"input": [row, [None, 1, 2, 3]]}, outputs = ["output"], version = 1),
        "raw": spam.infer(row, outputs = ["raw"])["raw"][0],
        "nine": spam.infer(row, version = 9, ok = [404]).status,
        "none": empty.infer(row, optional = True),
    }

def wrong(req):
    return spam.infer([1.0, 2.0])
"#;
    fs::write(dir.path().join("flow.star"), flow).expect("written");

    let (status, _, error) = common::run(&["check", dir.path().to_str().expect("text")]);
    assert_eq!(status, Some(0), "{error}");
    assert!(error.contains("models: model empty: there is no version in "), "{error}");

    let serving = Serving::start(dir.path());
    let answer = serving.get("/");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    assert_eq!(body["one"]["output"], serde_json::json!([0.6448973757780191]), "{body}");
    assert_eq!(body["many"]["output"][0], body["one"]["output"], "{body}");
    assert_eq!((body["many"]["output"].as_array().map(Vec::len), body["many"].get("raw")), (Some(2), None));
    assert_eq!(body["raw"], body["one"]["raw"][0]);
    assert_eq!((&body["version"], &body["nine"], &body["none"]), (&"1".into(), &404.into(), &().into()));
    assert!(serving.get("/wrong").starts_with("HTTP/1.1 502"));
    serving.logged("input `input` has shape [1, 2], [-1, 4] is expected");
}

#[test]
fn an_unknown_model_is_reported_before_serving() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(dir.path().join("models/spam")).expect("made");
    fs::write(dir.path().join("fanin.toml"), format!("{TOML}[upstreams.a]\nmodel = 'span'\n")).expect("written");
    for command in ["check", "serve"] {
        let (status, _, error) = common::run(&[command, dir.path().to_str().expect("text")]);
        assert_eq!(status, Some(1), "{error}");
        assert!(error.contains("there is no model `span` in ") && error.contains("existing models: spam"), "{error}");
    }
}
