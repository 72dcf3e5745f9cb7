//! Requests that try to smuggle others through Fanin, in front of real nginx, Node and Go: each backend sees the requests that the
//! flows meant, and no other.

mod common;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Serving, TIMEOUT};
use fanin_testbed::Server;
use fanin_testbed::malformed::{AFTER, requests};
use serde_json::Value;
use tempfile::TempDir;

const BACKENDS: [&str; 3] = ["nginx", "node", "go"];

const FLOWS: &str = r#"load("@upstreams", "nginx", "node", "go")

ALL = [nginx, node, go]
MARKER = {"x-marker": "flow"}

def hello(req):
    return [u.get("/hello", headers = MARKER) for u in ALL]

def greeting(req):
    return [u.get("/greeting", headers = MARKER) for u in ALL]

def echo(req):
    return [u.post("/echo", text = req.text, headers = MARKER) for u in ALL]

def item(req):
    return [u.get("/item/{v}/end", params = {"v": req.query["v"]}, headers = MARKER) for u in ALL]

def free(req):
    return [u.get("/free/" + req.query["v"], headers = MARKER) for u in ALL]

def rest(req):
    return [u.get("/rest/" + req.params["rest"], headers = MARKER) for u in ALL]

def query(req):
    return [u.get("/query", query = {"v": req.query["v"]}, headers = MARKER) for u in ALL]

def header(req):
    return [u.get("/header", headers = {"x-marker": "flow", "x-value": req.query["v"]}) for u in ALL]
"#;

struct Tier {
    serving: Serving,
    backends: Vec<Server>,
    _dir: TempDir,
}

impl Tier {
    fn start() -> Tier {
        let backends: Vec<Server> = BACKENDS.into_iter().map(Server::backend).collect();
        let dir = tempfile::tempdir().expect("a folder");
        let mut toml = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"off\"\nqueueing = \"off\"\nescaped_slashes = \"keep\"\n".to_owned();
        for (name, backend) in BACKENDS.iter().zip(&backends) {
            write!(toml, "[upstreams.{name}]\nurl = \"{}\"\ntimeout = \"20s\"\nretry = \"off\"\nhedge = \"off\"\nforward_headers = [\"x-value\"]\n", backend.url)
                .expect("written");
        }
        for (method, path, flow) in [
            ("GET", "/hello", "hello"),
            ("GET", "/greeting", "greeting"),
            ("POST", "/echo", "echo"),
            ("GET", "/item", "item"),
            ("GET", "/free", "free"),
            ("GET", "/rest/{*rest}", "rest"),
            ("GET", "/query", "query"),
            ("GET", "/header", "header"),
        ] {
            write!(
                toml,
                "[[routes]]\nmethod = \"{method}\"\npath = \"{path}\"\nflow = \"flow.star:{flow}\"\ntimeout = \"30s\"\n"
            )
            .expect("written");
        }
        std::fs::write(dir.path().join("fanin.toml"), toml).expect("written");
        std::fs::write(dir.path().join("flow.star"), FLOWS).expect("written");
        Tier { serving: Serving::start(dir.path()), backends, _dir: dir }
    }

    /// Statuses of all responses to these bytes and [`AFTER`], on one connection.
    fn statuses(&self, bytes: &[u8]) -> Vec<u16> {
        let address = self.serving.listen.parse().expect("an address");
        let mut client = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
        client.set_read_timeout(Some(TIMEOUT)).expect("set");
        client.write_all(&[bytes, AFTER].concat()).expect("sent");
        let mut replies = Vec::new();
        client.read_to_end(&mut replies).expect("read to the end");
        let replies = String::from_utf8_lossy(&replies);
        replies.split("HTTP/1.1 ").skip(1).filter_map(|reply| reply.get(..3)?.parse().ok()).collect()
    }

    /// The requests that each backend has seen, once it has seen so many.
    #[expect(clippy::disallowed_methods, reason = "the test has a thread of its own")]
    fn seen(&self, count: usize) -> Vec<(&'static str, Vec<Value>)> {
        let end = Instant::now() + TIMEOUT;
        let read = |backend: &Server| -> Vec<Value> {
            // nginx writes its log after the response.
            loop {
                let text = std::fs::read_to_string(&backend.ca).expect("a log");
                let whole = text.lines().filter(|line| line.ends_with('}'));
                let lines: Vec<Value> = whole.map(|line| serde_json::from_str(line).expect(line)).collect();
                if lines.len() >= count || Instant::now() > end {
                    return lines;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        BACKENDS.into_iter().zip(self.backends.iter().map(read)).collect()
    }
}

fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02X}").expect("written");
        text
    })
}

fn target(line: &Value) -> &str {
    line["target"].as_str().expect("a target")
}

/// Whether a backend saw what flows send: their marker, and nothing that only a smuggled head would have.
fn is_marked(line: &Value) -> bool {
    let headers = &line["headers"];
    headers["x-marker"] == "flow" && ["", "null"].contains(&headers["x-injected"].as_str().unwrap_or("null"))
}

#[test]
fn malformed_requests_reach_no_backend_as_others() {
    let tier = Tier::start();
    let mut wrong = Vec::new();
    let (mut count, mut expected) =
        (0, [("POST /echo HTTP/1.1", 0), ("GET /hello HTTP/1.1", 0), ("GET /greeting HTTP/1.1", 0)]);
    for (name, bytes, statuses) in requests() {
        let seen = tier.statuses(&bytes);
        if seen != statuses {
            wrong.push(format!("{name}: {seen:?} instead of {statuses:?}"));
        }
        let own = if bytes.starts_with(b"POST") { 0 } else { 1 };
        // The last of two responses is that to the ordinary request.
        let after = usize::from(statuses.len() == 2 && statuses[1] == 200);
        expected[2].1 += after;
        expected[own].1 += usize::from(statuses[0] == 200);
        count = expected.iter().map(|(_, count)| count).sum();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(expected.iter().all(|(_, count)| *count >= 5), "{expected:?}");
    for (backend, lines) in tier.seen(count) {
        for (wanted, times) in expected {
            let found = lines.iter().filter(|line| target(line) == wanted).count();
            assert_eq!(found, times, "{backend}: {wanted}");
        }
        assert_eq!(lines.len(), count, "{backend}");
        for line in lines {
            assert!(is_marked(&line), "{backend}: {line}");
            let body = line["body"].as_str().expect("a body");
            assert!(["", "abc", "0123456789"].contains(&body), "{backend}: {line}");
        }
    }
}

const SMUGGLED: &str = "GET /admin HTTP/1.1\r\nhost: a\r\nx-injected: 1\r\n\r\n";

/// Data of a client that means something to an HTTP parser, a decoder or a path.
fn payloads() -> Vec<String> {
    let plain = [
        "plain",
        "x\r\nx-injected: 1",
        "x\nx-injected: 1",
        "x\rx-injected: 1",
        "x\r\n\tfolded",
        "x\0y",
        "a b",
        "a?x-injected=1&v=2",
        "a#b",
        "a&v=b;c",
        "é\u{10d0a}",
        "嘊x-injected: 1",
        "%0d%0ax-injected:%201",
        "%250d%250ax-injected: 1",
        "..",
        "../admin",
        "../../admin",
        "%2e%2e/admin",
        "%2e%2e%2fadmin",
        "%252e%252e%252fadmin",
        "..;/admin",
        "..;x=1/admin",
        "..%3b/admin",
        "..\\admin",
        "..%5cadmin",
        "x/../../admin",
        "x%2f..%2f..%2fadmin",
        "./x",
        "//admin",
        "/admin",
        "http://127.0.0.1/admin",
        "0\r\n\r\n",
        "{v}",
        "%",
        "%zz",
    ];
    let mut all: Vec<String> = plain.map(str::to_owned).into();
    all.push(format!("x HTTP/1.1\r\nhost: a\r\n\r\n{SMUGGLED}"));
    all.push(format!("0\r\n\r\n{SMUGGLED}"));
    all.push(format!("{}{SMUGGLED}", "a".repeat(4_000)));
    all
}

/// Node reads each byte of a header as a character.
fn is_same_text(read: &Value, sent: &str) -> bool {
    *read == sent || *read == sent.bytes().map(char::from).collect::<String>()
}

/// What a backend has read must be what a flow meant by `value`.
fn is_meant(line: &Value, flow: &str, value: &str) -> bool {
    let path = line["path"].as_str().expect("a path");
    let target = target(line);
    let body = line["body"].as_str().expect("a body");
    let start = if flow == "echo" { "POST /echo HTTP/1.1" } else { "GET /" };
    let is_own = match flow {
        // Decoded by the backend in its own way: the value, in its place.
        "item" => path == format!("/item/{value}/end"),
        "free" | "rest" => {
            path.starts_with(&format!("/{flow}/")) && !path.contains("..") && target.matches('?').count() == 0
        }
        "query" => target.to_lowercase() == format!("GET /query?v={} HTTP/1.1", query_text(value)).to_lowercase(),
        "header" => target == "GET /header HTTP/1.1" && is_same_text(&line["headers"]["x-value"], value.trim()),
        "echo" => target == "POST /echo HTTP/1.1" && body == value,
        _ => false,
    };
    is_own && target.starts_with(start) && target.ends_with(" HTTP/1.1") && (flow == "echo" || body.is_empty())
}

/// The value as Fanin encodes it: all but unreserved characters.
fn query_text(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").expect("written"),
        }
        text
    })
}

#[test]
fn data_of_a_client_stays_data_for_every_backend() {
    let tier = Tier::start();
    let (mut meant, mut greetings) = (Vec::new(), 0);
    for value in payloads() {
        for flow in ["item", "free", "rest", "query", "header", "echo"] {
            let request = match flow {
                "echo" => format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{value}", value.len()),
                "rest" => format!("GET /rest/{} HTTP/1.1\r\nhost: a\r\n\r\n", encoded(&value)),
                _ => format!("GET /{flow}?v={} HTTP/1.1\r\nhost: a\r\n\r\n", encoded(&value)),
            };
            let statuses = tier.statuses(request.as_bytes());
            assert!(statuses.len() == 2 && statuses[1] == 200, "{flow} {value:?}: {statuses:?}");
            greetings += 1;
            match statuses[0] {
                200 => meant.push((flow, value.clone())),
                400 | 500 => assert!(!["query", "echo"].contains(&flow), "{flow} {value:?}: {statuses:?}"),
                other => panic!("{flow} {value:?}: {other}"),
            }
        }
    }
    for (backend, lines) in tier.seen(meant.len() + greetings) {
        for line in &lines {
            assert!(is_marked(line), "{backend}: {line}");
        }
        let (greeted, lines): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|line| target(line) == "GET /greeting HTTP/1.1");
        assert_eq!(greeted.len(), greetings, "{backend}");
        assert_eq!(lines.len(), meant.len(), "{backend}");
        for (line, (flow, value)) in lines.iter().zip(&meant) {
            assert!(is_meant(line, flow, value), "{backend}: {flow} {value:?} became {line}");
        }
    }
    for flow in ["item", "free", "rest", "header"] {
        assert!(meant.contains(&(flow, "plain".to_owned())), "{flow}");
        assert!(!meant.iter().any(|(at, value)| *at == flow && value.contains("../admin")) || flow == "header");
    }
}
