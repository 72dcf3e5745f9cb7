//! Files with the last requests: after a stall and after a missed objective, read by `fanin explain --file`.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::websocket::{admin_page, eventually};
use common::{Serving, run};
use serde_json::Value;

const FLOW: &str = r#"load("@upstreams", "gone_for_good")

def slow(req):
    # One builtin is one piece of work, however much it does.
    numbers = [str((n * 7919) % 1000003) for n in range(400000)]
    return len(sorted(numbers))

def fails(req):
    return gone_for_good.get("/x")
"#;

fn folder(recorder: &str, stall: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let toml = format!(
        r#"[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = 1
access_log = "off"
stall = "{stall}"

[flow]
max_steps = 100000000
max_memory = "1GiB"
max_value = "256MiB"

[recorder]
full_rate = 1000
{recorder}

[upstreams.gone_for_good]
url = "http://127.0.0.1:9"
retry = "off"
breaker = "off"

[[routes]]
path = "/slow"
flow = "flow.star:slow"
timeout = "60s"

[[routes]]
path = "/fails"
flow = "flow.star:fails"
objective = "99 % < 10 s"
"#
    );
    fs::create_dir(dir.path().join("dumps")).expect("created");
    fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    dir
}

/// The file for this cause, once it is there.
fn dump(dir: &Path, cause: &str) -> PathBuf {
    let mut found = None;
    eventually(cause, || {
        let files = fs::read_dir(dir.join("dumps")).expect("a folder").map(|entry| entry.expect("an entry").path());
        // A file that is being written has another name, which begins with a dot.
        let is_it = |name: &str| name.starts_with("requests-") && name.ends_with(&format!("-{cause}.dump"));
        found = files.into_iter().find(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(is_it));
        found.is_some()
    });
    found.expect("it was found")
}

fn explained(file: &Path, more: &[&str]) -> String {
    let file = file.to_str().expect("a path of text");
    let (status, stdout, stderr) = run(&[&["explain", "--file", file], more].concat());
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    stdout
}

#[test]
fn a_missed_objective_leaves_the_last_requests() {
    let dir = folder("dump = \"dumps\"", "60s");
    let serving = Serving::start(dir.path());
    // Requests before the first reading do not count.
    eventually("the objective is missed", || {
        for _ in 0..20 {
            assert!(serving.get("/fails").starts_with("HTTP/1.1 502"));
        }
        fs::read_dir(dir.path().join("dumps")).expect("a folder").count() > 0
    });
    let file = dump(dir.path(), "objective");
    let line = serving.logged("the last requests are in a file");
    assert!(line.contains("fanin::recorder") && line.contains("objective"), "{line}");
    let text = explained(&file, &[]);
    assert!(text.starts_with("objective: GET /fails misses its objective of 99 % < 10s: "), "{text}");
    assert!(text.contains("GET /fails") && text.contains("The slowest:"), "{text}");
    // Each can be looked at.
    let all: Value = serde_json::from_str(&explained(&file, &["--json"])).expect("JSON");
    let full = all["requests"].as_array().expect("a list").iter().find(|one| !one["step_us"].is_null());
    let id = full.expect("one was recorded in full")["id"].as_str().expect("an id");
    let text = explained(&file, &["--id", id]);
    assert!(text.contains("GET /fails   502") && text.contains("gone_for_good") && text.contains("refused"), "{text}");
    let text = explained(&file, &["--route", "GET /fails"]);
    assert!(text.starts_with("GET /fails: ") && text.contains("p50: "), "{text}");
    let line = "fanin_recorder_dumps_total{cause=\"objective\",outcome=\"written\"} 1";
    let metrics = admin_page(&serving, "/metrics");
    assert!(metrics.contains(line), "{metrics}");
    // What has been written is nobody else's business.
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("it is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn a_stall_leaves_the_last_requests_also_when_the_process_ends() {
    let dir = folder("dump = \"dumps\"", "20ms");
    let serving = Serving::start(dir.path());
    serving.get("/slow");
    serving.logged("a worker is stalled");
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
    let text = explained(&dump(dir.path(), "stall"), &[]);
    assert!(text.starts_with("stall: worker 0 was stalled for "), "{text}");
}

#[test]
fn what_the_admin_page_shows_can_be_read_as_well() {
    let dir = folder("", "60s");
    let serving = Serving::start(dir.path());
    serving.get("/fails");
    let page = admin_page(&serving, "/requests?last=2000");
    let file = dir.path().join("saved.json");
    fs::write(&file, page.split("\r\n\r\n").last().expect("a body")).expect("written");
    let text = explained(&file, &[]);
    assert!(text.starts_with("1 requests, 0 of them explained") && text.contains("GET /fails"), "{text}");
    for (content, problem) in [("{", "has no recorded requests"), ("{\"requests\": []}", "has no request 00ff")] {
        fs::write(&file, content).expect("written");
        let (status, _, error) = run(&["explain", "--file", file.to_str().expect("text"), "--id", "00ff"]);
        assert_eq!(status, Some(1));
        assert!(error.contains("saved.json") && error.contains(problem), "{error}");
    }
}

#[test]
fn a_wrong_folder_is_refused() {
    for (recorder, problem) in [
        ("dump = \"nowhere\"", "recorder.dump: there is no folder "),
        ("dump = \"dumps\"\nrequests = 0", "recorder.dump: needs `requests` above 0"),
        ("dump_files = 0", "recorder.dump_files"),
        ("dump_size = \"1KiB\"", "recorder.dump_size"),
    ] {
        let dir = folder(recorder, "60s");
        let (status, stdout, stderr) = run(&["check", dir.path().to_str().expect("text")]);
        assert!(status == Some(1) && (stdout.clone() + &stderr).contains(problem), "{recorder}: {stdout}{stderr}");
    }
}
