//! Bad input from every side of a running server: one clear error or a safe answer for each, and it goes on serving.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use common::{Serving, TIMEOUT, run};
use serde_json::Value;
use tempfile::TempDir;

/// A backend that answers wrongly, by path; `/echo` tells what it was asked.
fn backend() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let whole = |headers: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let text = match path.split('?').next().unwrap_or_default() {
        "/half" => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\": ".to_owned(),
        "/broken" => whole("", "{\"a\": tru}"),
        "/redirect" => whole("", "").replace("200 OK", "302 Found\r\nlocation: /elsewhere"),
        "/twice" => whole("x-twice: one\r\nx-twice: two\r\n", "{}"),
        "/huge" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n[");
            let _ = (0..16_384).try_for_each(|_| stream.write_all(&[b' '; 65_536]));
            return;
        }
        "/smuggle" => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}".to_owned(),
        "/nonsense" => "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        _ => whole("", &serde_json::to_string(&head).expect("JSON")),
    };
    // The server may have gone.
    let _ = stream.write_all(text.as_bytes());
}

const FLOWS: &str = r#"load("@upstreams", "far")

def passed(req):
    return far.get("/" + req.params["kind"])

def looked(req):
    return {"a": far.get("/" + req.params["kind"])["a"]}

def twice(req):
    return {"twice": far.get("/twice").headers["x-twice"]}

def path(req):
    return far.get("/items/{id}", params = {"id": req.query["id"]})

def split(req):
    return far.get("/echo", headers = {"x-from": req.query["text"]})

def answered(req):
    return response(headers = {"x-from": req.query["text"]}, body = {})

def wrong(req):
    return req.path + 1

def slow(req):
    total = 0
    for a in range(100000):
        for b in range(100000):
            total += 1
    return total

def again(req):
    return again(req)

def fine(req):
    return {"fine": True}
"#;

/// A folder with a route for each function.
fn service(backend: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let mut toml = format!(
        "[server]\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nworkers = 1\nheader_timeout = '300ms'\n\
         [upstreams.far]\nurl = 'http://{backend}'\ntimeout = '20s'\n"
    );
    for line in FLOWS.lines() {
        if let Some(name) = line.strip_prefix("def ").and_then(|rest| rest.split('(').next()) {
            let kind = if ["passed", "looked"].contains(&name) { "/{kind}" } else { "" };
            toml += &format!("[[routes]]\npath = '/{name}{kind}'\nflow = 'all.star:{name}'\ntimeout = '30s'\n");
        }
    }
    std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
    std::fs::write(dir.path().join("all.star"), FLOWS).expect("written");
    dir
}

/// An answer's status and body.
fn parts(answer: &str) -> (u16, Value) {
    let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let body = serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()));
    (status.unwrap_or_else(|| panic!("no status in {answer}")), body)
}

/// The answer to bytes sent as they are.
fn raw(serving: &Serving, bytes: &[u8]) -> String {
    let address = serving.listen.parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    stream.write_all(bytes).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn all_is_well(serving: &Serving) {
    assert_eq!(parts(&serving.get("/fine")), (200, serde_json::json!({"fine": true})));
}

#[test]
fn an_upstreams_nonsense_is_a_502_and_a_line_of_the_log() {
    let serving = Serving::start(service(&backend()).path());
    for (kind, word) in [
        ("half", "protocol"),
        ("broken", "decode"),
        ("redirect", "status"),
        ("huge", "too_large"),
        ("smuggle", "protocol"),
        ("nonsense", "protocol"),
    ] {
        for route in ["passed", "looked"] {
            let (status, body) = parts(&serving.get(&format!("/{route}/{kind}")));
            assert_eq!((status, &body["status"]), (502, &Value::from(502)), "{kind}: {body}");
            assert!(body["type"].is_string() && body["title"].is_string(), "{body}");
            let text = body.to_string();
            assert!(!text.contains("all.star") && !text.contains("127.0.0.1"), "nothing of ours gets out: {text}");
            let line = serving.logged("at=\"all.star:");
            assert!(line.contains("far") && line.contains(word), "{kind}: {line}");
        }
    }
    all_is_well(&serving);
}

#[test]
fn what_is_repeated_is_joined() {
    let serving = Serving::start(service(&backend()).path());
    assert_eq!(parts(&serving.get("/twice")).1["twice"], "one, two");
}

#[test]
fn paths_and_headers_cannot_be_broken_out_of() {
    let serving = Serving::start(service(&backend()).path());
    let (status, body) = parts(&serving.get("/path?id=a%2Cb%20c%3Fd"));
    assert_eq!(status, 200);
    assert!(body.as_str().expect("text").starts_with("GET /items/a%2Cb%20c%3Fd HTTP/1.1"), "{body}");
    for id in ["..", ".", "%2e%2e", "%252e", "../admin", "%252e%252e%252fadmin", "..%3b/admin", "a/b", "a%5cb"] {
        let (status, body) = parts(&serving.get(&format!("/path?id={id}")));
        assert_eq!((status, &body["title"]), (400, &"The request cannot be understood".into()), "{id}: {body}");
    }
    for route in ["split", "answered"] {
        let answer = serving.get(&format!("/{route}?text=a%0d%0ax-evil:%20b"));
        let (status, _) = parts(&answer);
        assert_eq!(status, 500, "{answer}");
        assert!(!answer.to_lowercase().contains("x-evil"), "{answer}");
        assert!(serving.logged("header").contains("x-from"));
    }
    // A client's path is matched as it is, never walked.
    for path in ["/../fine", "/passed/../fine", "/passed%2f..%2ffine", "/%2e%2e/fine", "//fine"] {
        let (status, _) = parts(&serving.get(path));
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
    all_is_well(&serving);
}

#[test]
fn a_flows_mistake_is_a_500_whose_trace_stays_here() {
    let serving = Serving::start(service(&backend()).path());
    let (status, body) = parts(&serving.get("/wrong"));
    assert_eq!(status, 500);
    assert!(!body.to_string().contains("all.star"), "{body}");
    serving.logged("all.star:22:12 in wrong");
    let (status, _) = parts(&serving.get("/slow"));
    assert_eq!(status, 500);
    let line = serving.logged("in slow");
    assert!(line.contains("all.star:27:"), "{line}");
    assert_eq!(parts(&serving.get("/again")).0, 500);
    serving.logged("again calls itself");
    serving.logged("in again");
    all_is_well(&serving);
}

#[test]
fn clients_that_dawdle_or_lie_are_sent_away() {
    let serving = Serving::start(service(&backend()).path());
    assert!(raw(&serving, b"GET /fine HTTP/1.1\r\nhost: a\r\nx-slow: ").starts_with("HTTP/1.1 408 "));
    let lie = b"POST /fine HTTP/1.1\r\nhost: a\r\ncontent-length: 1073741824\r\n\r\n";
    assert!(raw(&serving, lie).starts_with("HTTP/1.1 4"));
    let two = b"GET /fine HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n";
    assert!(raw(&serving, two).starts_with("HTTP/1.1 400 "));
    let long = format!("GET /fine HTTP/1.1\r\nhost: a\r\nx-long: {}\r\nconnection: close\r\n\r\n", "a".repeat(100_000));
    assert!(raw(&serving, long.as_bytes()).starts_with("HTTP/1.1 431 "));
    all_is_well(&serving);
}

#[test]
fn a_folder_that_cannot_be_served_is_refused_with_every_place() {
    let far = backend();
    let refused = |change: &dyn Fn(&Path), words: &[&str]| {
        let dir = service(&far);
        change(dir.path());
        let path = dir.path().to_str().expect("text").to_owned();
        for command in ["check", "serve"] {
            let (code, _, err) = run(&[command, &path]);
            assert_eq!(code, Some(1), "no {words:?}: {err}");
            for word in words {
                assert!(err.contains(word), "`{word}` is missing:\n{err}");
            }
        }
    };
    let toml = |from: &'static str, to: &'static str| {
        move |dir: &Path| {
            let file = dir.join("fanin.toml");
            let text = std::fs::read_to_string(&file).expect("read");
            assert!(text.contains(from));
            std::fs::write(file, text.replacen(from, to, 1)).expect("written");
        }
    };
    let flow = |text: &'static str| {
        move |dir: &Path| {
            let file = dir.join("all.star");
            let all = std::fs::read_to_string(&file).expect("read");
            std::fs::write(file, format!("{all}\n{text}\n")).expect("written");
        }
    };
    refused(&toml("[server]", "[server"), &["fanin.toml:1:"]);
    refused(&toml("workers = 1", "worker = 1"), &["fanin.toml:4:1", "`workers`"]);
    refused(&toml("all.star:fine", "all.star:fein"), &["fanin.toml:", "fein", "did you mean fine?"]);
    refused(&toml("all.star:fine", "none.star:fine"), &["fanin.toml:", "none.star"]);
    refused(&flow("load(\"../../etc/passwd.star\", \"x\")"), &["all.star:37:", "outside"]);
    refused(&flow("def typo(req):\n    return rek"), &["all.star:38:12", "rek", "did you mean"]);
    refused(&flow("def open(:"), &["all.star:37:"]);
    refused(&flow("LIST = [1] + 2"), &["all.star:37:"]);
}
