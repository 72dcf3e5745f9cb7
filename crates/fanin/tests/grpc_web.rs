//! gRPC-Web and Connect on the routes of methods: byte by byte over HTTP/1.1, by a browser, and gRPC by ghz.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};

use common::{Serving, TIMEOUT, root};
use fanin_testbed::browser::Browser;
use tempfile::TempDir;

const PROTO: &str = "syntax = \"proto3\";\npackage t;\nservice T {\n\
    rpc Echo(M) returns (M);\nrpc Get(M) returns (M) { option idempotency_level = NO_SIDE_EFFECTS; }\n\
    rpc List(M) returns (stream M);\nrpc Lines(M) returns (stream M);\n}\nmessage M { string id = 1; int64 count = 2; }\n";

const FLOW: &str = r#"load("@upstreams", "far", "site")

def echo(req):
    if req.body["id"] == "none":
        abort("FAILED_PRECONDITION", "there is none")
    if req.body["id"] == "busy":
        abort(429, "come back")
    return response(body = req.body, headers = {"x-served": "flow"}, trailers = {"x-end": "1"})

def list_all(req):
    return [{"id": str(at)} for at in range(int(req.body["id"]))]

def lines(req):
    return stream(far.get("/" + req.body["id"]))

def json_of(req):
    return far.get("/" + req.params["name"])

def page(req):
    return response(text = site.read(req.params["file"]), headers = {"content-type": "text/html"})
"#;

const PAGE: &str = r#"<!doctype html><title>Calls</title><body><p id="out">nothing</p><img src="/far/hold"><script>
async function run() {
  const json = {"content-type": "application/json"};
  const connect = await fetch("/t.T/Echo", {method: "POST", headers: json, body: JSON.stringify({id: "connect"})});
  const get = await fetch("/t.T/Get?encoding=json&message=" + encodeURIComponent(JSON.stringify({id: "get"})));
  const failed = await fetch("/t.T/Echo", {method: "POST", headers: json, body: JSON.stringify({id: "none"})});
  // The message M with the id "web", behind its prefix.
  const message = new Uint8Array([0, 0, 0, 0, 5, 0x0a, 3, 0x77, 0x65, 0x62]);
  const web = await fetch("/t.T/Echo", {method: "POST", headers: {"content-type": "application/grpc-web+proto"}, body: message});
  const bytes = new Uint8Array(await web.arrayBuffer());
  const text = new TextDecoder();
  const length = new DataView(bytes.buffer).getUint32(1);
  const trailers = text.decode(bytes.slice(5 + length + 5));
  const seen = [(await connect.json()).id, (await get.json()).id, failed.status, (await failed.json()).code,
    text.decode(bytes.slice(7, 5 + length)), bytes[5 + length], trailers.includes("grpc-status: 0")];
  document.getElementById("out").textContent = "seen: " + seen.join(" ");
}
run().catch(error => { document.getElementById("out").textContent = "failed: " + error; }).then(() => fetch("/far/done"));
</script>"#;

/// A server of lines of JSON, which says how many bytes there will be and ends early in one case. `/hold` waits for `/done`.
fn far() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let done = Arc::new((Mutex::new(false), Condvar::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let done = done.clone();
            std::thread::spawn(move || answer(stream, &done));
        }
    });
    address
}

fn answer(stream: TcpStream, (is_done, changed): &(Mutex<bool>, Condvar)) {
    let mut reader = BufReader::new(stream);
    let mut path = String::new();
    while !path.ends_with("\r\n\r\n") && reader.read_line(&mut path).is_ok_and(|read| read > 0) {}
    let (kind, lines, lost) = match path.split(' ').nth(1) {
        Some("/good") => ("jsonl", "{\"id\": \"a\"}\n\n{\"id\": \"b\", \"count\": 3}", 0),
        Some("/bad") => ("jsonl", "{\"id\": \"a\"}\n{\"none\": 1}\n{\"id\": \"b\"}\n", 0),
        Some("/broken") => ("jsonl", "{\"id\": \"a\"}\n{\"id\":", 10),
        Some("/done") => {
            *is_done.lock().expect("nobody panicked") = true;
            changed.notify_all();
            ("json", "{}", 0)
        }
        _ => {
            let waiting = is_done.lock().expect("nobody panicked");
            let _done = changed.wait_timeout_while(waiting, TIMEOUT, |done| !*done).expect("nobody panicked");
            ("json", "{}", 0)
        }
    };
    let length = lines.len() + lost;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/{kind}\r\ncontent-length: {length}\r\n\r\n");
    // Who has left needs no answer.
    let _ = reader.get_mut().write_all((head + lines).as_bytes());
}

fn start() -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    let far = far();
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"off\"\nworkers = 2\nqueueing = \"off\"\n\
        [upstreams.far]\nurl = \"http://{far}\"\ntimeout = \"60s\"\nretry = \"off\"\nhedge = \"off\"\n\
        [upstreams.site]\nfiles = \"site\"\ntimeout = \"30s\"\n\
        [grpc]\nproto = \"t.proto\"\ncompress_from = \"1KiB\"\n\
        [[routes]]\ngrpc = \"t.T/Echo\"\nflow = \"t.star:echo\"\ntimeout = \"30s\"\nmax_body = \"4KiB\"\n\
        [[routes]]\ngrpc = \"t.T/Get\"\nflow = \"t.star:echo\"\ntimeout = \"30s\"\n\
        [[routes]]\ngrpc = \"t.T/List\"\nflow = \"t.star:list_all\"\ntimeout = \"30s\"\n\
        [[routes]]\ngrpc = \"t.T/Lines\"\nflow = \"t.star:lines\"\ntimeout = \"30s\"\n\
        [[routes]]\npath = \"/far/{{name}}\"\nflow = \"t.star:json_of\"\ntimeout = \"60s\"\n\
        [[routes]]\npath = \"/site/{{file}}\"\nflow = \"t.star:page\"\ntimeout = \"30s\"\n"
    );
    std::fs::create_dir(dir.path().join("site")).expect("made");
    for (name, text) in [("fanin.toml", toml.as_str()), ("t.proto", PROTO), ("t.star", FLOW), ("site/calls.html", PAGE)]
    {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let serving = Serving::start(dir.path());
    (dir, serving)
}

/// Status and head, and the body without its chunks.
fn call(serving: &Serving, head: &str, body: &[u8]) -> (String, Vec<u8>) {
    let mut stream = serving.connect();
    let length = body.len();
    write!(stream, "{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n").expect("sent");
    stream.write_all(body).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let (head, mut rest) = (String::from_utf8(answer[..at].to_vec()).expect("text").to_lowercase(), &answer[at + 4..]);
    if !head.contains("transfer-encoding: chunked") {
        return (head, rest.to_vec());
    }
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a size");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).expect("text"), 16).expect("a number");
        if size == 0 {
            return (head, body);
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
}

fn post(serving: &Serving, method: &str, kind: &str, body: &[u8]) -> (String, Vec<u8>) {
    call(serving, &format!("POST /t.T/{method} HTTP/1.1\r\ncontent-type: {kind}"), body)
}

fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
    [&[flags][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// The flags and the text of each frame.
fn frames(mut body: &[u8]) -> Vec<(u8, String)> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let length = u32::from_be_bytes(body[1..5].try_into().expect("four bytes")) as usize;
        found.push((body[0], String::from_utf8_lossy(&body[5..5 + length]).into_owned()));
        body = &body[5 + length..];
    }
    found
}

#[test]
fn connect_with_one_message() {
    let (_dir, serving) = start();
    let (head, body) = post(&serving, "Echo", "application/json", br#"{"id": "7", "count": 5, "later": 1}"#);
    assert!(head.starts_with("http/1.1 200") && head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("x-served: flow") && head.contains("trailer-x-end: 1"), "{head}");
    assert_eq!(body, br#"{"id":"7","count":"5"}"#);
    let (head, body) = post(&serving, "Echo", "application/proto", b"\x0a\x017");
    assert!(head.contains("content-type: application/proto") && body == b"\x0a\x017", "{head} {body:?}");
    let (_, body) = call(&serving, "GET /t.T/Get?connect=v1&encoding=proto&base64=1&message=CgE3 HTTP/1.1", b"");
    assert_eq!(body, b"\x0a\x017");
    let large = format!(r#"{{"id":"{}"}}"#, "x".repeat(2000));
    let gzip = "application/json\r\naccept-encoding: gzip";
    let (head, body) = post(&serving, "Echo", gzip, large.as_bytes());
    assert!(
        head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding") && body.len() < 200,
        "{head}"
    );
    let (head, body) = post(&serving, "Echo", gzip, br#"{"id":"7"}"#);
    assert!(!head.contains("content-encoding") && body == br#"{"id":"7"}"#, "{head}");
}

#[test]
fn what_is_no_call_by_connect_gets_one_clear_error() {
    let (_dir, serving) = start();
    let large = format!(r#"{{"id":"{}"}}"#, "x".repeat(5000));
    for (method, kind, body, status, text) in [
        (
            "Echo",
            "application/json",
            &br#"{"id": "none"}"#[..],
            "400",
            r#"{"code":"failed_precondition","message":"there is none"}"#,
        ),
        (
            "Echo",
            "application/json",
            br#"{"id": "busy"}"#,
            "429",
            r#"{"code":"resource_exhausted","message":"come back"}"#,
        ),
        ("Echo", "application/json", br#"{"id": 7}"#, "400", "not a valid t.M: id: "),
        ("Echo", "application/json", br#"{"id": "7", "count": "many"}"#, "400", "not a valid t.M: count: "),
        ("Echo", "application/json", br#"{"id": "7"#, "400", "not a valid t.M"),
        ("Echo", "application/json", b"", "400", "not a valid t.M"),
        ("Echo", "application/json", large.as_bytes(), "429", r#""message":"at most 4096 bytes are accepted""#),
        ("Echo", "application/proto", b"\xff\xff", "400", "not a valid t.M"),
        ("Echo", "application/json\r\ncontent-encoding: br", b"{}", "501", "gzip"),
        ("Echo", "application/json\r\ncontent-encoding: gzip", b"{}", "400", "no gzip"),
        ("Echo", "application/json\r\nconnect-timeout-ms: soon", b"{}", "400", "connect-timeout-ms is no duration"),
        ("Echo", "application/json\r\nconnect-protocol-version: 2", b"{}", "400", "connect-protocol-version is 1"),
        ("Echo", "application/xml", b"<id/>", "415", "application/json"),
        ("Echo", "application/connect+json", b"{}", "200", "unimplemented"),
        ("List", "application/json", b"{}", "501", "application/connect+json"),
        ("Echo", "application/grpc", &framed(0, b""), "400", "HTTP/2"),
        ("None", "application/json", b"{}", "404", "no-route"),
    ] {
        let (head, body) = post(&serving, method, kind, body);
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(
            head.starts_with(&format!("http/1.1 {status}")) && body.contains(text),
            "{kind} {text}: {head}\n{body}"
        );
    }
    for (query, status, text) in
        [("encoding=json", "400", "no message"), ("encoding=json&message=%7B", "400", "not a valid t.M")]
    {
        let (head, body) = call(&serving, &format!("GET /t.T/Get?{query} HTTP/1.1"), b"");
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(head.starts_with(&format!("http/1.1 {status}")) && body.contains(text), "{head}\n{body}");
    }
    let (head, _) = call(&serving, "GET /t.T/Echo?encoding=json&message=%7B%7D HTTP/1.1", b"");
    assert!(head.starts_with("http/1.1 405"), "it may change something: {head}");
}

#[test]
fn connect_with_streams() {
    let (_dir, serving) = start();
    let list = |kind: &str, body: &[u8]| {
        let (head, body) = post(&serving, "List", kind, body);
        assert!(head.starts_with("http/1.1 200") && head.contains("content-type: application/connect+json"), "{head}");
        frames(&body)
    };
    let text = |flags: u8, text: &str| (flags, text.to_owned());
    let json = "application/connect+json";
    assert_eq!(
        list(json, &framed(0, br#"{"id": "2"}"#)),
        [text(0, r#"{"id":"0"}"#), text(0, r#"{"id":"1"}"#), text(2, "{}")]
    );
    let error = |body: &[u8], kind: &str| {
        let frames = list(kind, body);
        let [(2, error)] = frames.as_slice() else { panic!("{frames:?}") };
        error.clone()
    };
    for (body, code, said) in [
        (b"".to_vec(), "unimplemented", "no message"),
        (framed(0, b"{}").repeat(2), "unimplemented", "more than one"),
        (framed(0, b"{}")[..6].to_vec(), "invalid_argument", "cut off"),
        (framed(0, b"[]"), "invalid_argument", "not a valid t.M"),
        (framed(1, b"{}"), "internal", "no header says how"),
        (framed(2, b"{}"), "invalid_argument", "neither 0 nor 1"),
    ] {
        let error = error(&body, json);
        assert!(error.contains(&format!("\"code\":\"{code}\"")) && error.contains(said), "{error}");
    }
    let error = error(&framed(1, b"{}"), "application/connect+json\r\nconnect-content-encoding: br");
    assert!(error.contains("unimplemented"), "{error}");
}

#[test]
fn lines_of_json_become_messages() {
    let (_dir, serving) = start();
    let lines = |name: &str| {
        let message = format!("{{\"id\": \"{name}\"}}");
        frames(&post(&serving, "Lines", "application/connect+json", &framed(0, message.as_bytes())).1)
    };
    let text = |flags: u8, text: &str| (flags, text.to_owned());
    assert_eq!(lines("good"), [text(0, r#"{"id":"a"}"#), text(0, r#"{"id":"b","count":"3"}"#), text(2, "{}")]);
    let found = lines("bad");
    assert!(found.len() == 2 && found[1].0 == 2 && found[1].1.contains("internal"), "{found:?}");
    assert!(serving.logged("t.T/Lines").contains("t.M has no field none"), "the log names the field");
    // A stream that breaks off ends with a status, after the messages that were whole.
    let found = lines("broken");
    assert!(found.len() == 2 && found[1].0 == 2 && found[1].1.contains("unavailable"), "{found:?}");
}

#[test]
fn grpc_web_in_both_forms() {
    let (_dir, serving) = start();
    let message = framed(0, b"\x0a\x017");
    let (head, body) = post(&serving, "Echo", "application/grpc-web+proto", &message);
    assert!(head.starts_with("http/1.1 200") && head.contains("content-type: application/grpc-web+proto"), "{head}");
    let found = frames(&body);
    assert_eq!(found, [(0, "\n\u{1}7".to_owned()), (0x80, "x-end: 1\r\ngrpc-status: 0\r\n".to_owned())]);
    let (head, body) = post(&serving, "Echo", "application/grpc-web-text", b"AAAAAAMKATc=");
    assert!(head.contains("content-type: application/grpc-web-text+proto"), "{head}");
    assert_eq!(body, b"AAAAAAMKATeAAAAAGngtZW5kOiAxDQpncnBjLXN0YXR1czogMA0K");
    let none = framed(0, b"\x0a\x04none");
    let large = framed(0, &[b"\x0a\x88\x27", &[b'x'; 5000][..]].concat());
    for (method, kind, body, code, said) in [
        ("Echo", "application/grpc-web", &none[..], "9", "there is none"),
        ("Echo", "application/grpc-web", b"", "12", "no message"),
        ("Echo", "application/grpc-web", &message[..7], "3", "cut off"),
        ("Echo", "application/grpc-web", &large, "8", "4096"),
        ("Echo", "application/grpc-web", b"\0\0\0\0\x01\xff", "3", "not a valid t.m"),
        ("Echo", "application/grpc-web-text", b"AAAAAAMKATc", "3", "no base64"),
        ("Echo", "application/grpc-web+thrift", &message, "12", "protobuf or json"),
    ] {
        let (head, body) = post(&serving, method, kind, body);
        let status = format!("grpc-status: {code}");
        assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
        assert!(head.lines().any(|line| line == status) && head.contains(said), "{said}: {head}");
    }
}

/// A page of the same origin, which Fanin serves itself.
#[test]
fn a_browser_calls_methods() {
    let (_dir, serving) = start();
    let dom = Browser::open(&format!("http://{}/site/calls.html", serving.listen)).document();
    assert!(dom.contains("seen: connect get 400 failed_precondition web 128 true"), "{dom}");
}

#[test]
fn ghz_calls_over_many_connections() {
    let (dir, serving) = start();
    let program = root().join(".venv/go/bin/ghz");
    let output = Command::new(&program)
        .current_dir(dir.path())
        .args(["--insecure", "--proto", "t.proto", "--call", "t.T/Echo", "-d", r#"{"id": "7"}"#])
        .args(["-n", "3000", "-c", "20", "--connections", "5", "--timeout", "50s", "-O", "json"])
        .arg(&serving.listen)
        .output()
        .unwrap_or_else(|error| panic!("{error}: {}; run .ci/setup ghz", program.display()));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(report["statusCodeDistribution"], serde_json::json!({ "OK": 3000 }), "{report}");
}
