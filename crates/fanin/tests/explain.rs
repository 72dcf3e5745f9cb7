//! `fanin explain` and the flight recorder: the program against a running server, and on a folder.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the test's own threads may block")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use common::{Serving, TIMEOUT, run};
use serde_json::Value;
use tempfile::TempDir;

const FLOW: &str = r#"load("@upstreams", "far", "gone_for_good")

def page(req):
    slow = far.get("/slow")
    fast = far.get("/fast", optional = True)
    if slow["n"] > 100:
        abort(404)
    last = far.get("/last", query = {"n": slow["n"]})
    return {"slow": slow, "fast": fast, "last": last}

def flaky(req):
    return far.get("/flaky")

def gone(req):
    return {"gone": gone_for_good.get("/x", optional = True), "slow": far.get("/slow")}

def quiet(req):
    return {"n": 1}

def passed(req):
    return stream(far.get("/fast"))

def large(req):
    return far.get("/large")
"#;

fn toml(far: SocketAddr, more: &str) -> String {
    let routes = ["page", "flaky", "gone", "quiet", "passed", "large"]
        .map(|name| format!("[[routes]]\npath = \"/{name}\"\nflow = \"flow.star:{name}\"\ntimeout = \"20s\"\n"));
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 2\n{more}\n\
         [upstreams.far]\nurl = \"http://{far}\"\ntimeout = \"20s\"\nretry = {{ budget = 1.0, floor = 1000.0 }}\n\n[upstreams.gone_for_good]\nurl = \"http://127.0.0.1:9\"\nretry = \"off\"\n\n{}",
        routes.join("\n")
    )
}

/// An upstream that takes 300 ms for `/slow`, and no time otherwise.
fn far() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        if head.starts_with("GET /flaky") && !FAILED.swap(true, Relaxed) {
            let text = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(text.as_bytes()).expect("sent");
            continue;
        }
        if head.starts_with("GET /slow") {
            thread::sleep(Duration::from_millis(300));
        }
        let fill = if head.starts_with("GET /large") { " ".repeat(100_000) } else { String::new() };
        let length = 7 + fill.len();
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{fill}{{\"n\":7}}"
        );
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Whether `/flaky` has failed.
static FAILED: AtomicBool = AtomicBool::new(false);

fn folder(more: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("fanin.toml"), toml(far(), more)).expect("written");
    fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    dir
}

fn admin(serving: &Serving, request: &str) -> (String, Value) {
    let mut stream = TcpStream::connect(&serving.admin).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), serde_json::from_str(body).unwrap_or_default())
}

fn call<'a>(trace: &'a Value, target: &str) -> &'a Value {
    let calls = trace["calls"].as_array().expect("calls");
    calls
        .iter()
        .find(|call| call["target"].as_str().unwrap_or("").contains(target))
        .unwrap_or_else(|| panic!("{trace}"))
}

/// What an explanation of `/page` says, whoever made it.
fn is_explained(trace: &Value) {
    assert_eq!(trace["status"], 200, "{trace}");
    assert_eq!(trace["route"], "GET /page");
    let (slow, fast, last) = (call(trace, "/slow"), call(trace, "/fast"), call(trace, "/last?n=7"));
    assert_eq!(
        (&slow["critical"], &fast["critical"], &last["critical"]),
        (&Value::Bool(true), &Value::Bool(false), &Value::Bool(true)),
        "{trace}"
    );
    // `/last` was sent when the answer of `/slow` was there.
    assert_eq!(last["awaited"], serde_json::json!([0]), "{trace}");
    assert_eq!(slow["line"], "flow.star:4");
    assert_eq!((&slow["read_at"], &last["read_at"]), (&Value::from("flow.star:6"), &Value::Null), "{trace}");
    let micros = |call: &Value, name: &str| call["effect"][name].as_u64();
    assert_eq!(micros(slow, "gain_us"), Some(10_000), "{trace}");
    assert_eq!(micros(slow, "slack_us"), Some(0), "{trace}");
    assert_eq!(micros(fast, "gain_us"), Some(0), "{trace}");
    assert!(micros(fast, "slack_us").is_some_and(|slack| slack > 200_000), "{trace}");
    assert_eq!(trace["unexplained"], Value::Null);
    // The kernel has said when the answer arrived.
    assert!(slow["attempts"][0]["unread_us"].is_u64(), "{trace}");
    assert!(trace["slices"].as_array().is_some_and(|slices| slices.len() >= 2), "{trace}");
}

fn explained(arguments: &[&str]) -> Value {
    let (status, stdout, stderr) = run(arguments);
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

#[test]
fn request_of_a_running_server_is_explained() {
    let dir = folder("");
    let serving = Serving::start(dir.path());
    let (url, admin_url) = (format!("http://{}", serving.listen), format!("http://{}", serving.admin));
    let trace = explained(&["explain", "GET", "/page", "--url", &url, "--admin", &admin_url, "--json"]);
    is_explained(&trace);
    // It can be asked for again, by its id.
    let id = trace["id"].as_str().expect("an id");
    is_explained(&explained(&["explain", "--id", id, "--admin", &admin_url, "--json"]));
    let (_, text, _) = run(&["explain", "--id", id, "--admin", &admin_url]);
    assert!(text.contains("▶ far") && text.contains("response 10.0 ms sooner"), "{text}");
}

#[test]
fn folder_is_served_for_one_request() {
    let dir = folder("");
    let config = dir.path().to_str().expect("a path of text");
    is_explained(&explained(&["explain", "GET", "/page", "--config", config, "--json"]));
    let (status, text, _) = run(&["explain", "GET", "/quiet", "--config", config]);
    assert_eq!(status, Some(0));
    assert!(text.contains("It made no calls"), "{text}");
    let (status, text, _) = run(&["explain", "GET", "/passed", "--config", config]);
    assert_eq!(status, Some(0));
    assert!(text.contains("passes a body on"), "{text}");
    let (status, _, error) = run(&["explain", "GET", "/nothing", "--config", config]);
    assert_eq!(status, Some(1));
    assert!(error.contains("no flow ran"), "{error}");
}

#[test]
fn recent_requests_are_on_the_admin_pages() {
    let dir = folder("[recorder]\nfull_rate = 1000\n");
    let serving = Serving::start(dir.path());
    serving.get("/quiet");
    serving.get("/page?secret=1");
    serving.get("/page");
    let (head, page) = admin(&serving, "GET /requests?slowest=1");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let slowest = &page["requests"][0];
    assert_eq!(slowest["route"], "GET /page", "{page}");
    assert_eq!(slowest["calls"].as_array().map(Vec::len), Some(3));
    let (_, page) = admin(&serving, "GET /requests?route=GET+%2Fquiet");
    assert_eq!(page["requests"].as_array().map(Vec::len), Some(1), "{page}");
    assert_eq!(page["requests"][0]["calls"], serde_json::json!([]));
    let (_, page) = admin(&serving, "GET /requests/by-route?route=GET+%2Fpage");
    assert!(page["requests"].as_u64().is_some_and(|count| count >= 1), "{page}");
    let calls = page["bands"][0]["calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 3, "{page}");
    let first = calls[0]["line"].as_str().unwrap_or("");
    assert!(["flow.star:4", "flow.star:8"].contains(&first), "{page}");
    assert!(admin(&serving, "GET /requests/0000").0.starts_with("HTTP/1.1 404"));
    assert!(admin(&serving, "POST /requests").0.starts_with("HTTP/1.1 404"));
}

#[test]
fn nobody_else_gets_a_full_record() {
    let dir = folder("[recorder]\nfull_rate = 0\n");
    let serving = Serving::start(dir.path());
    let mut stream = serving.connect();
    write!(stream, "GET /page HTTP/1.1\r\nhost: localhost\r\nfanin-explain: mine\r\nconnection: close\r\n\r\n")
        .expect("sent");
    stream.read_to_string(&mut String::new()).expect("an answer");
    assert!(admin(&serving, "GET /requests/mine").0.starts_with("HTTP/1.1 404"));
    let (_, page) = admin(&serving, "GET /requests");
    assert_eq!(page["requests"][0]["calls"][0]["target"], "", "{page}");
}

/// Clients decide what is sampled. A few large answers must not stay in memory for it.
#[test]
fn large_requests_are_recorded_in_full_only_on_demand() {
    let dir = folder("trusted = [\"127.0.0.1\"]\n[recorder]\nfull_rate = 1000\n");
    let serving = Serving::start(dir.path());
    let get = |path: &str, header: &str| {
        let mut stream = serving.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}connection: close\r\n\r\n").expect("sent");
        stream.read_to_string(&mut String::new()).expect("an answer");
    };
    let effect = |id: &str| admin(&serving, &format!("GET /requests/{id}")).1["calls"][0]["effect"].clone();
    for (path, is_full) in [("/flaky", true), ("/large", false)] {
        get(path, "");
        let (_, page) = admin(&serving, &format!("GET /requests?route=GET+%2F{}", &path[1..]));
        let id = page["requests"][0]["id"].as_str().unwrap_or_else(|| panic!("{page}"));
        assert_eq!(effect(id).is_object(), is_full, "{path}: {}", effect(id));
    }
    get("/large", "fanin-explain: big\r\n");
    assert!(effect("big").is_object());
}

#[test]
fn trusted_clients_name_their_records() {
    let dir = folder("trusted = [\"127.0.0.1\"]\n[recorder]\nfull_rate = 0\n");
    let serving = Serving::start(dir.path());
    let mut stream = serving.connect();
    write!(stream, "GET /page HTTP/1.1\r\nhost: localhost\r\nfanin-explain: mine\r\nconnection: close\r\n\r\n")
        .expect("sent");
    stream.read_to_string(&mut String::new()).expect("an answer");
    is_explained(&admin(&serving, "GET /requests/mine").1);
}

#[test]
fn pages_need_the_token_and_the_recorder_can_be_off() {
    let dir = folder("admin_token_file = \"token\"\n[recorder]\nrequests = 0\nfull_rate = 0\n");
    fs::write(dir.path().join("token"), "letmein\n").expect("written");
    let serving = Serving::start(dir.path());
    serving.get("/page");
    assert!(admin(&serving, "GET /requests").0.starts_with("HTTP/1.1 401"));
    assert!(admin(&serving, "POST /requests/token").0.starts_with("HTTP/1.1 401"));
    let (url, admin_url) = (format!("http://{}", serving.listen), format!("http://{}", serving.admin));
    let token = Path::new(dir.path()).join("token");
    let token = token.to_str().expect("a path of text");
    is_explained(&explained(&[
        "explain",
        "GET",
        "/page",
        "--url",
        &url,
        "--admin",
        &admin_url,
        "--token-file",
        token,
        "--json",
    ]));
    let (status, _, error) = run(&["explain", "GET", "/page", "--url", &url, "--admin", &admin_url]);
    assert_eq!(status, Some(1));
    assert!(error.contains("give --token-file"), "{error}");
}

#[test]
fn attempts_and_failures_are_told() {
    let dir = folder("");
    let config = dir.path().to_str().expect("a path of text");
    let trace = explained(&["explain", "GET", "/flaky", "--config", config, "--json"]);
    let attempts = trace["calls"][0]["attempts"].as_array().expect("attempts");
    let of = |name: &str| attempts.iter().map(|one| one[name].as_str().unwrap_or("")).collect::<Vec<_>>();
    assert_eq!((of("kind"), of("outcome")), (vec!["first", "retry"], vec!["503", "200"]), "{trace}");
    let trace = explained(&["explain", "GET", "/gone", "--config", config, "--json"]);
    let gone = &trace["calls"][0];
    assert_eq!((&gone["outcome"], &trace["partial"]), (&Value::from("refused"), &Value::Bool(true)), "{trace}");
    assert_eq!(gone["attempts"][0]["outcome"], "refused", "{trace}");
    let (_, text, _) = run(&["explain", "GET", "/gone", "--config", config]);
    assert!(text.contains("200") && text.contains("partial") && text.contains("refused"), "{text}");
}

#[test]
fn what_cannot_be_explained_is_told() {
    let dir = folder("");
    fs::write(dir.path().join("flow.star"), "def page(req):\n    return 1 +\n").expect("written");
    let config = dir.path().to_str().expect("a path of text");
    for (arguments, part) in [
        (&["explain", "GET", "/page", "--config", config][..], "flow.star:2"),
        (&["explain", "GET", "/page", "--admin", "http://127.0.0.1:9"], "--url is missing"),
        (&["explain", "GET", "/page", "--url", "http://a", "--admin", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (&["explain", "--id", "x", "--admin", "https://127.0.0.1:9"], "only http is possible"),
        (&["explain", "--route", "GET /x", "--admin", "/x"], "write http://HOST:PORT"),
    ] {
        let (status, _, error) = run(arguments);
        assert_eq!(status, Some(1), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    let (status, _, error) = run(&["explain"]);
    assert_eq!(status, Some(2), "{error}");
}
