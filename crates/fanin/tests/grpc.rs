//! gRPC upstreams through the whole program: another Fanin's models, and a server of Python's grpcio.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;

use common::Serving;
use fanin_testbed::Server;

const SERVER: &str = "[server]\nlisten = '127.0.0.1:0'\nadmin = 'off'\nworkers = 2\n";

fn write(dir: &Path, toml: &str, flow: &str) {
    fs::write(dir.join("fanin.toml"), format!("{SERVER}{toml}")).expect("written");
    fs::write(dir.join("flow.star"), flow).expect("written");
}

#[test]
fn the_models_of_another_fanin_are_an_upstream() {
    let models = tempfile::tempdir().expect("a folder");
    let version = models.path().join("models/spam/1");
    fs::create_dir_all(&version).expect("made");
    let crates = common::root().join("crates/fanin-model");
    fs::copy(crates.join("tests/data/one.txt"), version.join("model.txt")).expect("copied");
    write(models.path(), "[models]\nrepository = 'models'\nlisten = '127.0.0.1:0'\n", "");
    let mut serving = Serving::unnamed(models.path());
    let line = serving.logged("models are served on ");
    let address = line.rsplit("models are served on ").next().and_then(|rest| rest.split_whitespace().next());
    let address = address.expect("an address").to_owned();
    serving.named();

    let dir = tempfile::tempdir().expect("a folder");
    fs::copy(crates.join("proto/inference.proto"), dir.path().join("inference.proto")).expect("copied");
    let toml = format!(
        "[upstreams.models]\ngrpc = 'http://{address}'\nproto = 'inference.proto'\ntimeout = '30s'\n\
         [[routes]]\npath = '/'\nflow = 'flow.star:score'\ntimeout = '50s'\n"
    );
    let flow = r#"
load("@upstreams", "models")

def score(req):
    answer = models.ModelInfer({
        "model_name": "spam",
        "inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 4], "contents": {"fp64_contents": [0.5, -1.25, 0, 2]}}],
    })
    unknown = models.ModelReady({"name": "none"})
    return {"answer": answer, "unknown": unknown}
"#;
    write(dir.path(), &toml, flow);
    let front = Serving::start(dir.path());
    let answer = front.get("/");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"fp64Contents\":[0.6448973757780191]"), "{answer}");
    assert!(answer.contains("\"unknown\":{\"ready\":false}"), "{answer}");
}

#[test]
fn a_flow_over_a_server_of_grpcio() {
    let server = Server::grpc();
    let dir = tempfile::tempdir().expect("a folder");
    let proto = Server::protos();
    let toml = format!(
        "[upstreams.probe]\ngrpc = '{url}'\nproto = '{proto}/probe.proto'\ntimeout = '30s'\n\
         [upstreams.told]\ngrpc = '{url}'\nreflection = true\nsafe_methods = ['fanin.probe.Probe']\ntimeout = '30s'\n\
         [[routes]]\npath = '/'\nflow = 'flow.star:page'\ntimeout = '50s'\n\
         [[routes]]\npath = '/missing'\nflow = 'flow.star:missing'\ntimeout = '50s'\n",
        url = server.url,
        proto = proto.display()
    );
    let flow = r#"
load("@upstreams", "probe", "told")

def page(req):
    numbers = probe.Count({"to": 3})
    squares = probe.Squares([{"value": number["value"]} for number in numbers])
    echo = told.call("fanin.probe.Probe/Echo", {"text": "told", "address": {"city": "Rome"}})
    gone = probe.Fail({"code": 5, "message": "no such thing"}, ok = [404])
    return {
        "squares": [int(square["value"]) for square in squares],
        "city": echo["address"]["city"],
        "gone": [gone.status, gone["code"], gone["message"]],
    }

def missing(req):
    return probe.Fail({"code": 13, "message": "out of paper"})
"#;
    write(dir.path(), &toml, flow);
    let front = Serving::start(dir.path());
    let answer = front.get("/");
    let page = r#"{"squares":[1,4,9],"city":"Rome","gone":[404,"NOT_FOUND","no such thing"]}"#;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(page), "{answer}");
    let answer = front.get("/missing");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let line = front.logged("out of paper");
    assert!(line.contains("probe") && line.contains("status 500: INTERNAL: out of paper"), "{line}");

    // `check` knows methods and fields, with the line.
    write(dir.path(), &toml, &flow.replace("{\"to\": 3}", "{\"too\": 3}"));
    let (status, _, error) = common::run(&["check", dir.path().to_str().expect("text")]);
    assert_eq!(status, Some(1));
    assert!(error.contains("flow.star:5:") && error.contains("fanin.probe.Range has no field too"), "{error}");
    assert!(error.contains("did you mean to?"), "{error}");
}
