//! curl sends a large body with `Expect: 100-continue`, over both protocols, to routes and to models. Over HTTP/2 no `100 Continue`
//! comes; clients then send the body after a while (RFC 9110, section 10.1.1), and nothing fails.
#![cfg(unix)]

mod common;

use std::fs;
use std::process::Command;

use common::Serving;

const TOML: &str = r#"[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 1

[models]
repository = "models"
listen = "127.0.0.1:0"

[[routes]]
method = "POST"
path = "/length"
flow = "flows.star:length"
"#;

const FLOWS: &str = "def length(req):\n    return len(req.text)\n";

/// Body and status of the response.
fn curl(protocol: &str, url: &str, file: &str) -> String {
    let body = format!("@{file}");
    let arguments = ["-sS", "-m", "60", protocol, "-H", "expect: 100-continue", "--data-binary", &body];
    let output = Command::new("curl").args(arguments).args(["-w", " %{http_code}", url]).output();
    let output = output.unwrap_or_else(|error| panic!("{error}: curl; run .ci/setup curl"));
    assert!(output.status.success(), "{protocol} {url}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_client_that_expects_to_be_asked_for_its_body_is_answered() {
    let dir = tempfile::tempdir().expect("a folder");
    let version = dir.path().join("models/spam/1");
    fs::create_dir_all(&version).expect("made");
    let data = common::root().join("crates/fanin-model/tests/data");
    fs::copy(data.join("one.txt"), version.join("model.txt")).expect("copied");
    fs::write(dir.path().join("fanin.toml"), TOML).expect("written");
    fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
    let file = dir.path().join("body.json");
    let inputs = r#"{"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [0.5, -1.25, 0, 2]}]}"#;
    fs::write(&file, inputs.to_owned() + &" ".repeat(900_000)).expect("written");
    let (file, length) = (file.to_str().expect("text"), inputs.len() + 900_000);

    let mut serving = Serving::unnamed(dir.path());
    let line = serving.logged("models are served on ");
    let models = line.rsplit("models are served on ").next().expect("an address").to_owned();
    serving.named();
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        assert_eq!(curl(protocol, &format!("http://{}/length", serving.listen), file), format!("{length} 200"));
        let answer = curl(protocol, &format!("http://{models}/v2/models/spam/infer"), file);
        assert!(answer.contains("0.6448973757780191") && answer.ends_with(" 200"), "{protocol}: {answer}");
    }
}
