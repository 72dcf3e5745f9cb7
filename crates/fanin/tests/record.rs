//! `fanin record` and `fanin replay`: a real server is recorded over loopback, and its requests run again.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the test's own threads may block")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Serving, TIMEOUT, fanin, run};
use fanin_recording::Recording;
use serde_json::Value;
use tempfile::TempDir;

const BEARER: &str = "bearer-of-a-test-1b2c3d";
const IN_QUERY: &str = "query-secret-77aa88";
const IN_ANSWER: &str = "answer-secret-5566";
const IN_BODY: &str = "pa55word-of-a-test";

const FLOW: &str = r#"load("@upstreams", "far")

def page(req):
    me = far.get("/me", query = {"who": req.headers.get("authorization", "nobody")[7:]})
    item = far.get("/item", query = {"n": req.query["n"]})
    details = [far.details(ids = [one]) for one in item["ids"]]
    return {"me": me["name"], "item": item, "details": details}

def order(req):
    stock = far.get("/stock", query = {"n": req.body["n"]})
    if stock["n"] < 0:
        abort(409, "none left")
    placed = far.post("/orders", json = {"n": req.body["n"], "password": req.body["password"]})
    return response(201, body = {"placed": placed["n"]})

def large(req):
    return far.get("/large", query = {"n": req.query["n"]})
"#;

fn toml(far: SocketAddr, more: &str) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = 2
admin_token_file = "admin.token"
{more}
[upstreams.far]
url = "http://{far}"
timeout = "20s"
query_lists = "comma"

[upstreams.far.operations.details]
path = "/details"
params = {{ ids = "list" }}
batch = {{ key = "ids", linger = "2ms", share = true }}

[[routes]]
path = "/page"
flow = "flow.star:page"
timeout = "30s"

[[routes]]
method = "POST"
path = "/order"
flow = "flow.star:order"
timeout = "30s"

[[routes]]
path = "/large"
flow = "flow.star:large"
timeout = "30s"
"#
    )
}

/// Answers what the flows ask for.
fn answer(path: &str, query: &[(String, String)]) -> String {
    let get = |name: &str| query.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value).to_owned();
    match path {
        "/me" => format!("{{\"name\": \"m\", \"token\": \"{IN_ANSWER}\", \"who\": \"{}\"}}", get("who").len()),
        "/item" => {
            let n: u64 = get("n").parse().unwrap_or(0);
            format!("{{\"n\": {n}, \"price\": 1.50, \"ids\": [\"a{}\", \"b{}\"]}}", n % 3, n % 2)
        }
        "/details" => {
            let ids = get("ids");
            let each: Vec<String> = ids
                .split(',')
                .map(|id| format!("\"{id}\": {{\"name\": \"{id}!\", \"echo\": \"{IN_ANSWER}\"}}"))
                .collect();
            format!("{{{}}}", each.join(", "))
        }
        "/large" => format!("{{\"n\": {}, \"text\": \"{}\"}}", get("n"), random_text(20_000)),
        _ => "{\"n\": 1}".to_owned(),
    }
}

/// A text that no compression makes smaller.
fn random_text(length: usize) -> String {
    let mut state = Instant::now().elapsed().as_nanos() as u64 | 1;
    let letters = (0..length).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90)
    });
    letters.filter(|letter| *letter != '"' && *letter != '\\').collect()
}

/// An upstream that takes five milliseconds.
fn far() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || drop(serve(stream)));
        }
    });
    address
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        let target = first.split(' ').nth(1).unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        thread::sleep(Duration::from_millis(5));
        let body = answer(path, &query);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nset-cookie: sid=cookie-secret-31\r\n";
        write!(writer, "{head}content-length: {}\r\n\r\n{body}", body.len())?;
    }
}

/// A folder with the configuration, and the server.
fn server(more: &str) -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
    write("fanin.toml", &toml(far(), more));
    write("flow.star", FLOW);
    write("admin.token", "the-token\n");
    let serving = Serving::start(dir.path());
    (dir, serving)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Begins to record.
fn record(dir: &TempDir, serving: &Serving, more: &[&str]) -> (PathBuf, Child) {
    let out = dir.path().join("requests.rec");
    let token = dir.path().join("admin.token");
    let url = format!("http://{}", serving.admin);
    let mut command = fanin(&["record", "--url", &url, "--token-file", text(&token), "--out", text(&out)]);
    command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    (out, command.spawn().expect("the program runs"))
}

/// Sends requests until the recording has ended, in several threads.
fn requests_until_end(serving: &Serving, child: Child, request: impl Fn(usize) -> String + Sync) -> (bool, String) {
    let listen = serving.listen.as_str();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let output = thread::scope(|scope| {
        for client in 0..4 {
            let (ended, request) = (&ended, &request);
            scope.spawn(move || {
                let begun = Instant::now();
                let mut number = client;
                while !ended.load(std::sync::atomic::Ordering::Relaxed) && begun.elapsed() < TIMEOUT {
                    send(listen, &request(number));
                    number += 4;
                }
            });
        }
        let output = child.wait_with_output().expect("it ends");
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        output
    });
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout) + &text(output.stderr))
}

fn send(listen: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(listen).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Pages and orders in turn.
fn request(number: usize) -> String {
    let head = format!("host: x\r\nauthorization: Bearer {BEARER}\r\nconnection: close\r\n");
    if number % 5 == 4 {
        let body = format!("{{\"n\": {number}, \"password\": \"{IN_BODY}\"}}");
        let length = body.len();
        return format!(
            "POST /order HTTP/1.1\r\n{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
    }
    format!("GET /page?n={number}&token={IN_QUERY} HTTP/1.1\r\n{head}\r\n")
}

fn read(file: &Path) -> Recording {
    Recording::read(&Bytes::from(fs::read(file).expect("it can be read"))).expect("it is a recording")
}

fn replay(file: &Path, dir: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let mut arguments = vec!["replay", text(file), "--config", text(dir), "--json"];
    arguments.extend(more);
    let (code, out, err) = run(&arguments);
    let json = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{code:?} {out} {err}"));
    (code, json)
}

#[test]
fn a_recording_is_replayed_without_differences_and_a_change_is_found() {
    let (dir, serving) = server("");
    let (file, child) = record(&dir, &serving, &["--requests", "120", "--for", "50s"]);
    let (ok, told) = requests_until_end(&serving, child, request);
    assert!(ok, "{told}");
    assert!(told.contains("120 requests") && told.contains("authorization"), "{told}");

    // Secrets are nowhere, whatever they were called on their way.
    let recording = read(&file);
    assert_eq!((recording.requests.len(), recording.footer.dropped), (120, 0));
    let all = format!("{recording:?}");
    for secret in [BEARER, IN_QUERY, IN_ANSWER, IN_BODY, "cookie-secret-31"] {
        assert!(!all.contains(secret), "{secret} is in the recording");
    }
    let order = recording.requests.iter().find(|request| request.method == "POST").expect("an order");
    assert!(order.exchanges.iter().any(|exchange| exchange.effect), "{order:#?}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);

    let (code, json) = replay(&file, dir.path(), &["--threads", "1"]);
    assert_eq!((code, &json["total"]["differing"]), (Some(0), &0.into()), "{json:#}");
    assert_eq!(json["total"]["requests"], 120);
    let total = &json["total"];
    let calls = |side: &str| total[side]["calls"].as_u64().expect("a number");
    assert_eq!(calls("recorded"), calls("replayed"));
    // Two rounds of five milliseconds at least.
    assert!(total["replayed"]["p50_ms"].as_f64().expect("a number") >= 10.0, "{total:#}");

    // Another flow: a field of the response, an effect, and a call that was never made.
    let changed = FLOW
        .replace("\"me\": me[\"name\"],", "\"me\": me[\"name\"] + \"!\", \"more\": far.get(\"/new\", optional = True),")
        .replace("\"password\": req", "\"pw\": req");
    fs::write(dir.path().join("flow.star"), changed).expect("written");
    let (code, json) = replay(&file, dir.path(), &[]);
    assert_eq!(code, Some(1));
    let by = &json["total"]["by"];
    let pages = json["routes"]["GET /page"]["requests"].as_u64().expect("a number");
    let orders = json["routes"]["POST /order"]["requests"].as_u64().expect("a number");
    // An effect that differs has no answer: its request fails.
    let expected = (&120.into(), &120.into(), &orders.into(), &orders.into());
    assert_eq!((&by["missing"], &by["body"], &by["effects"], &by["status"]), expected, "{json:#}");
    assert_eq!(pages + orders, 120);
    assert_eq!(json["missing"][0]["call"], "far GET /new", "{json:#}");
    assert!(json["differences"][0]["lines"].to_string().contains("not in the recording"), "{json:#}");
    let (code, out, _) = run(&["replay", text(&file), "--config", text(dir.path())]);
    assert_eq!(code, Some(1));
    assert!(out.contains("Not in the recording:") && out.contains("effects"), "{out}");

    // What may differ, and other values of keys.
    let changed = FLOW.replace("\"me\": me[\"name\"],", "\"me\": me[\"name\"] + \"!\",");
    fs::write(dir.path().join("flow.star"), changed).expect("written");
    assert_eq!(replay(&file, dir.path(), &["--ignore", "json:me"]).0, Some(0));
    fs::write(dir.path().join("flow.star"), FLOW).expect("written");
    let (code, json) = replay(&file, dir.path(), &["--what-if", "upstreams.far.timeout=\"3ms\""]);
    assert_eq!((code, &json["total"]["by"]["status"]), (Some(1), &120.into()), "{json:#}");
    let (code, _, err) =
        run(&["replay", text(&file), "--config", text(dir.path()), "--what-if", "upstreams.far.nothing=1"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("nothing"), "{err}");

    // A request as a test.
    let test = dir.path().join("recorded_test.star");
    let number = recording.requests.iter().position(|request| request.method == "POST").expect("an order").to_string();
    let (code, out, err) = run(&["replay", text(&file), "--request", &number, "--write-test", text(&test)]);
    assert_eq!(code, Some(0), "{out}{err}");
    let (code, out, err) = run(&["test", text(dir.path())]);
    assert_eq!(code, Some(0), "{out}{err}{}", fs::read_to_string(&test).expect("written"));
}

#[test]
fn a_recording_is_bounded_and_needs_the_token() {
    let (dir, serving) = server("");
    let url = format!("http://{}", serving.admin);
    let out = dir.path().join("refused.rec");
    let (code, _, err) = run(&["record", "--url", &url, "--out", text(&out), "--for", "1s"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("need their token") && !out.exists(), "{err}");
    let large = |number: usize| format!("GET /large?n={number} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let (file, child) = record(&dir, &serving, &["--size", "200KiB", "--for", "50s"]);
    let (ok, told) = requests_until_end(&serving, child, large);
    assert!(ok, "{told}");
    let size = fs::metadata(&file).expect("it is there").len();
    assert!(size <= 200 << 10, "{size}");
    let recording = read(&file);
    assert!(recording.requests.len() < 12 && recording.footer.dropped > 0, "{:?}", recording.footer);
    assert_eq!(replay(&file, dir.path(), &[]).0, Some(0));
}

#[test]
fn a_file_that_is_no_whole_recording_is_one_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("x.rec");
    let told = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("written");
        let (code, out, err) = run(&["replay", text(&file)]);
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
        err
    };
    assert!(told(b"PK\x03\x04").contains("this is no recording"));
    assert!(told(b"fanin-recording 9\n").contains("another version"));
    let mut writer = fanin_recording::Writer::default();
    let mut whole = writer.begin(&fanin_recording::Header::default());
    writer.add(&fanin_recording::Request::default());
    whole.extend(writer.end(&fanin_recording::Footer::default()));
    assert!(told(&whole[..whole.len() - 3]).contains("cut off"));
    let (code, _, err) = run(&["replay", text(&dir.path().join("none.rec"))]);
    assert_eq!(code, Some(2));
    assert!(err.contains("none.rec cannot be read"), "{err}");
}
