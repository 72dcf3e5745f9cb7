//! Trace context in and out: the cases of W3C's harness (`test/test.py` of w3c/trace-context) and what is Fanin's own. The server under
//! test calls another one, which answers with the headers that it got.
#![cfg(unix)]

mod common;

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

use common::websocket::{Client, eventually};
use common::{Serving, fanin};
use serde_json::Value;
use tempfile::TempDir;

const ID: &str = "12345678901234567890123456789012";
const PARENT: &str = "1234567890123456";

const PROTO: &str = "syntax = \"proto3\";\npackage t;\nservice T { rpc Seen(M) returns (M); }\n\
    message M { string traceparent = 1; string tracestate = 2; }\n";

const ECHO: &str = r#"def seen(req):
    headers = req.headers
    return {"traceparent": headers.get("traceparent", ""), "tracestate": headers.get("tracestate", "")}
"#;

const ECHO_TOML: &str = r#"[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 1

[grpc]
proto = "t.proto"

[[routes]]
path = "/seen"
flow = "flow.star:seen"

[[routes]]
grpc = "t.T/Seen"
flow = "flow.star:seen"
"#;

const FLOW: &str = r#"load("@push", "push")
load("@upstreams", "far", "far2", "rpc", "own")

def ask(req):
    calls = [far.get("/seen"), far.get("/seen", headers = {"x-a": "1"}), far2.get("/seen"), rpc.call("t.T/Seen", {})]
    return {"seen": [{"traceparent": call["traceparent"], "tracestate": call["tracestate"]} for call in calls]}

def own_headers(req):
    return far.get("/seen", headers = {"traceparent": "of-the-flow", "tracestate": "of=flow"})

def configured(req):
    return own.get("/seen")

def shared(req):
    return [far.common(), far.common()]

def logs(req):
    log("one line", a = 1)
    print("another")
    fail("a bug")

def events(req):
    return push.subscribe(["news"])
"#;

fn toml(tracing: &str) -> String {
    format!(
        r#"{tracing}
[grpc]
proto = "t.proto"

[upstreams.far]
url = "http://${{FAR}}"

[upstreams.far.operations.common]
path = "/seen"
single_flight = true

[upstreams.far2]
url = "http://${{FAR}}"
http = "2"

[upstreams.own]
url = "http://${{FAR}}"
headers = {{ traceparent = "configured" }}

[upstreams.rpc]
grpc = "http://${{FAR}}"
proto = "t.proto"
safe_methods = ["t.T/Seen"]

[[routes]]
path = "/ask"
flow = "flow.star:ask"

[[routes]]
grpc = "t.T/Seen"
flow = "flow.star:own_headers"

[[routes]]
path = "/own"
flow = "flow.star:own_headers"

[[routes]]
path = "/configured"
flow = "flow.star:configured"

[[routes]]
path = "/shared"
flow = "flow.star:shared"

[[routes]]
path = "/threads"
flow = "flow.star:ask"
executor = {{ threads = 1 }}

[[routes]]
path = "/logs"
flow = "flow.star:logs"

[[routes]]
path = "/events"
flow = "flow.star:events"
"#
    )
}

const SERVER: &str = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\nworkers = 1\naccess_log = \"access.log\"\n";

/// The server under test and the one that it calls.
struct Setup {
    serving: Serving,
    _far: Serving,
    dir: TempDir,
}

impl Setup {
    fn new(sections: &str) -> Setup {
        let far = folder(ECHO_TOML, ECHO);
        let far_serving = Serving::start(far.path());
        let dir = folder(&toml(&format!("{SERVER}{sections}")), FLOW);
        let serving = Serving::with(dir.path(), &[("FAR", &far_serving.listen)]);
        Setup { serving, _far: far_serving, dir }
    }

    /// Sends header lines; the JSON of the answer.
    fn send(&self, path: &str, lines: &[String]) -> Value {
        let mut stream = self.serving.connect();
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// What four calls carry: HTTP/1.1 without and with headers of its own, HTTP/2, gRPC.
    fn ask(&self, lines: &[String]) -> Vec<Seen> {
        self.send("/ask", lines)["seen"].as_array().expect("a list").iter().map(Seen::of).collect()
    }

    /// The lines of the access log, once there are so many.
    fn access(&self, lines: usize) -> Vec<Value> {
        let mut found = Vec::new();
        eventually("lines of the access log", || {
            let text = fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
            found = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
            found.len() >= lines
        });
        found
    }
}

fn folder(toml: &str, flow: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in [("fanin.toml", toml), ("flow.star", flow), ("t.proto", PROTO)] {
        fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

/// The context that a call carried.
#[derive(Debug)]
struct Seen {
    trace: String,
    parent: String,
    flags: u8,
    state: String,
}

impl Seen {
    fn of(call: &Value) -> Seen {
        let text = call["traceparent"].as_str().expect("text");
        let parts: Vec<&str> = text.split('-').collect();
        assert_eq!((parts.len(), text.len(), parts[0]), (4, 55, "00"), "{text}");
        assert!(
            text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)),
            "{text}"
        );
        assert!(parts[1].bytes().any(|byte| byte != b'0') && parts[2].bytes().any(|byte| byte != b'0'), "{text}");
        Seen {
            trace: parts[1].to_owned(),
            parent: parts[2].to_owned(),
            flags: u8::from_str_radix(parts[3], 16).expect("two digits"),
            state: call["tracestate"].as_str().expect("text").to_owned(),
        }
    }
}

fn parent(text: &str) -> String {
    format!("traceparent: {text}")
}

/// With a valid `traceparent`.
fn with_state(lines: &[&str]) -> Vec<String> {
    let states = lines.iter().map(|line| format!("tracestate: {line}"));
    [format!("traceparent: 00-{ID}-{PARENT}-00")].into_iter().chain(states).collect()
}

const ALWAYS: &str = "[tracing]\ntrust = \"always\"\n";

#[test]
fn traceparents_of_the_harness() {
    let setup = Setup::new(ALWAYS);
    let valid = format!("00-{ID}-{PARENT}-01");
    let goes_on = [
        vec![parent(&valid)],
        vec![format!("TraceParent: {valid}")],
        vec![format!("TrAcEpArEnT: {valid}")],
        vec![format!("TRACEPARENT: {valid}")],
        vec![parent(&format!("cc-{ID}-{PARENT}-01"))],
        vec![parent(&format!("cc-{ID}-{PARENT}-01-what-the-future-will-be-like"))],
        vec![format!("traceparent:  {valid}")],
        vec![format!("traceparent:\t{valid}")],
        vec![format!("traceparent: {valid} ")],
        vec![format!("traceparent: {valid}\t")],
        vec![format!("traceparent:\t {valid} \t")],
    ];
    for lines in &goes_on {
        let seen = setup.ask(lines);
        let parents: HashSet<&str> = seen.iter().map(|one| &*one.parent).chain([PARENT]).collect();
        assert_eq!(parents.len(), 5, "{lines:?}: {seen:?}");
        assert!(
            seen.iter().all(|one| one.trace == ID && one.flags == 1 && one.state.is_empty()),
            "{lines:?}: {seen:?}"
        );
    }
    let begins = [
        vec![],
        vec![format!("trace-parent: {valid}")],
        vec![format!("trace.parent: {valid}")],
        vec![parent(&format!("00-{ID}-{PARENT}-01."))],
        vec![parent(&format!("00-{ID}-{PARENT}-01-what-the-future-will-be-like"))],
        vec![parent(&format!("cc-{ID}-{PARENT}-01.what-the-future-will-be-like"))],
        vec![parent(&format!("ff-{ID}-{PARENT}-01"))],
        vec![parent(&format!(".0-{ID}-{PARENT}-01"))],
        vec![parent(&format!("0.-{ID}-{PARENT}-01"))],
        vec![parent(&format!("000-{ID}-{PARENT}-01"))],
        vec![parent(&format!("0000-{ID}-{PARENT}-01"))],
        vec![parent(&format!("0-{ID}-{PARENT}-01"))],
        vec![parent(&format!("00-{}-{PARENT}-01", "0".repeat(32)))],
        vec![parent(&format!("00-.{}-{PARENT}-01", &ID[1..]))],
        vec![parent(&format!("00-{}.-{PARENT}-01", &ID[..31]))],
        vec![parent(&format!("00-{ID}3-{PARENT}-01"))],
        vec![parent(&format!("00-{}-{PARENT}-01", &ID[..31]))],
        vec![parent(&format!("00-{ID}-{}-01", "0".repeat(16)))],
        vec![parent(&format!("00-{ID}-.{}-01", &PARENT[1..]))],
        vec![parent(&format!("00-{ID}-{}.-01", &PARENT[..15]))],
        vec![parent(&format!("00-{ID}-{PARENT}7-01"))],
        vec![parent(&format!("00-{ID}-{}-01", &PARENT[..15]))],
        vec![parent(&format!("00-{ID}-{PARENT}-.0"))],
        vec![parent(&format!("00-{ID}-{PARENT}-0."))],
        vec![parent(&format!("00-{ID}-{PARENT}-001"))],
        vec![parent(&format!("00-{ID}-{PARENT}-1"))],
        vec![parent(&format!("00-{}-{PARENT}-01", "ABCDEF".repeat(6).split_at(32).0))],
        vec![parent(&format!("00-{}1-{PARENT}-01", &ID[..31])), parent(&valid)],
    ];
    let mut traces = HashSet::new();
    for lines in &begins {
        let mut lines = lines.clone();
        lines.push("tracestate: foo=1,bar=2".to_owned());
        let seen = setup.ask(&lines);
        let parents: HashSet<&str> = seen.iter().map(|one| &*one.parent).collect();
        assert_eq!(parents.len(), 4, "{lines:?}: {seen:?}");
        assert!(seen.iter().all(|one| one.trace == seen[0].trace && one.state.is_empty()), "{lines:?}: {seen:?}");
        assert_ne!(&seen[0].trace[..31], &ID[..31], "{lines:?}");
        assert!(traces.insert(seen[0].trace.clone()), "{lines:?}");
    }
    let random = setup.ask(&[parent(&format!("00-{ID}-{PARENT}-02"))]);
    assert!(random.iter().all(|one| one.trace == ID && one.flags == 2), "{random:?}");
}

#[test]
fn tracestates_of_the_harness() {
    let setup = Setup::new(ALWAYS);
    let members =
        |from: u32, to: u32| (from..=to).map(|at| format!("bar{at:02}={at:02}")).collect::<Vec<_>>().join(",");
    let (first, second, third) = (members(1, 10), members(11, 20), members(21, 30));
    let state = |lines: &[&str]| {
        let seen = setup.ask(&with_state(lines));
        assert!(seen.iter().all(|one| one.trace == ID && one.state == seen[0].state), "{lines:?}: {seen:?}");
        seen[0].state.clone()
    };
    let key = "abcdefghijklmnopqrstuvwxyz0123456789_-*/";
    let value: String = (0x20..=0x7e_u8).filter(|byte| !b",=".contains(byte)).map(char::from).collect();
    let (all, vendor) = (format!("{key}={}", value.trim()), format!("{key}@a-z0-9_-*/={}", value.trim()));
    let key_of = |key: String| format!("{key}=1");
    let long = [
        key_of("z".repeat(256)),
        key_of(format!("{}@{}", "t".repeat(241), "v".repeat(14))),
        key_of(format!("{}@v", "t".repeat(242))),
        key_of(format!("t@{}", "v".repeat(15))),
    ];
    for (lines, expected) in [
        (&["foo=1,bar=2"][..], "foo=1,bar=2"),
        (&[""], ""),
        (&["foo=1", ""], "foo=1"),
        (&["", "foo=1"], "foo=1"),
        (&["foo=1,bar=2", "rojo=1,congo=2", "baz=3"], "foo=1,bar=2,rojo=1,congo=2,baz=3"),
        (&["foo=1,foo=1"], "foo=1,foo=1"),
        (&["foo=1", "foo=2"], "foo=1,foo=2"),
        (&[&all], &all),
        (&[&vendor], &vendor),
        (&["foo=1 \t , \t bar=2, \t baz=3"], "foo=1,bar=2,baz=3"),
        (&["foo=1\t \t,\t \tbar=2,\t \tbaz=3"], "foo=1,bar=2,baz=3"),
        (&[" foo=1"], "foo=1"),
        (&["\t foo=1 \t"], "foo=1"),
        (&["foo =1"], ""),
        (&["FOO=1"], ""),
        (&["foo.bar=1"], ""),
        (&["foo@=1,bar=2"], "foo@=1,bar=2"),
        (&["@foo=1,bar=2"], ""),
        (&["foo@@bar=1,bar=2"], "foo@@bar=1,bar=2"),
        (&["foo@bar@baz=1,bar=2"], "foo@bar@baz=1,bar=2"),
        (&[&first, &second, &third, "bar31=31,bar32=32"], &members(1, 32)),
        (&[&first, &second, &third, "bar31=31,bar32=32,bar33=33"], ""),
        (&["foo=1", &long[0]], &format!("foo=1,{}", long[0])),
        (&["foo=1", &key_of("z".repeat(257))], ""),
        (&["foo=1", &long[1]], &format!("foo=1,{}", long[1])),
        (&["foo=1", &long[2]], &format!("foo=1,{}", long[2])),
        (&["foo=1", &long[3]], &format!("foo=1,{}", long[3])),
        (&["foo=bar=baz"], ""),
        (&["foo=,bar=3"], ""),
    ] {
        assert_eq!(state(lines), expected, "{lines:?}");
    }
    let named =
        setup.ask(&[&with_state(&[])[..], &["trace-state: foo=1".into(), "trace.state: foo=1".into()]].concat());
    assert_eq!(named[0].state, "");
    let cased = setup.ask(&[&with_state(&[])[..], &["TrAcEsTaTe: foo=1".into()]].concat());
    assert_eq!(cased[0].state, "foo=1");
}

#[test]
fn whose_context_counts_is_configured() {
    let lines = with_state(&["foo=1"]);
    let trusted = "trusted = [\"127.0.0.1\"]\n";
    for (sections, goes_on) in [
        (ALWAYS.to_owned(), true),
        ("[tracing]\n".to_owned(), false),
        (format!("{trusted}[tracing]\n"), true),
        (format!("{trusted}[tracing]\ntrust = \"never\"\n"), false),
        ("trusted = [\"10.0.0.0/8\"]\n[tracing]\n".to_owned(), false),
    ] {
        let seen = Setup::new(&sections).ask(&lines);
        let is_same = seen.iter().all(|one| one.trace == ID && one.state == "foo=1" && one.parent != PARENT);
        let is_new = seen.iter().all(|one| one.trace != ID && one.state.is_empty());
        assert!(if goes_on { is_same } else { is_new }, "{sections}: {seen:?}");
    }
    // Without the section, the headers are passed on as they came, and no request begins a trace.
    let setup = Setup::new("");
    assert!(setup.ask(&lines).iter().all(|one| (&*one.trace, &*one.parent, &*one.state) == (ID, PARENT, "foo=1")));
    assert_eq!(setup.send("/ask", &[])["seen"][0]["traceparent"], "");
}

#[test]
fn every_way_of_a_request_carries_its_context() {
    let setup = Setup::new(ALWAYS);
    let lines = with_state(&["foo=1"]);
    let of = |call: &Value| {
        let seen = Seen::of(call);
        assert_eq!((&*seen.trace, &*seen.state), (ID, "foo=1"));
        seen.parent
    };
    // Headers of a flow and of the configuration give way to those of the trace.
    assert_ne!(of(&setup.send("/own", &lines)), PARENT);
    assert_ne!(of(&setup.send("/configured", &lines)), PARENT);
    // Calls that share one request share its span.
    let shared = setup.send("/shared", &lines);
    assert_eq!(of(&shared[0]), of(&shared[1]));
    let threads = setup.send("/threads", &lines);
    assert_eq!(threads["seen"].as_array().expect("a list").iter().map(of).collect::<HashSet<_>>().len(), 4);

    // Connect, and gRPC by another Fanin.
    let mut stream = setup.serving.connect();
    let head = format!("content-type: application/json\r\n{}\r\n{}\r\n", lines[0], lines[1]);
    write!(stream, "POST /t.T/Seen HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{head}content-length: 2\r\n\r\n{{}}")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    of(&serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON"));
    let front = folder(
        &format!(
            "{SERVER}{ALWAYS}[upstreams.rpc]\ngrpc = \"http://{}\"\nproto = \"t.proto\"\n\
             safe_methods = [\"t.T/Seen\"]\n[[routes]]\npath = \"/\"\nflow = \"flow.star:ask\"\n",
            setup.serving.listen
        ),
        "load(\"@upstreams\", \"rpc\")\ndef ask(req):\n    return rpc.call(\"t.T/Seen\", {})\n",
    );
    let front = Setup {
        serving: Serving::start(front.path()),
        _far: Serving::start(folder(ECHO_TOML, ECHO).path()),
        dir: front,
    };
    of(&front.send("/", &lines));

    // A WebSocket's request, whose line is written at its end.
    let (client, head) = Client::ask(&setup.serving, "/events", &format!("{}{}\r\n", Client::valid(), lines[0]));
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    drop(client);
    for line in setup.access(7) {
        assert_eq!(line["trace_id"], ID, "{line}");
    }
}

#[test]
fn log_lines_of_a_request_name_its_trace() {
    let setup = Setup::new(ALWAYS);
    setup.send("/logs", &with_state(&[]));
    for part in ["one line", "another", "a bug"] {
        let line = setup.serving.logged(part);
        assert!(line.contains(&format!(" trace_id={ID}")), "{line}");
    }
    // Requests that no route answers take part, too.
    setup.send("/none", &with_state(&[]));
    let lines = setup.access(2);
    assert!(lines.iter().all(|line| line["trace_id"] == ID), "{lines:?}");
    let setup = Setup::new("");
    setup.send("/logs", &with_state(&[]));
    assert!(!setup.serving.logged("one line").contains("trace_id"));
    assert_eq!(setup.access(1)[0].get("trace_id"), None);
}

/// An upstream that refuses each request once: the `traceparent` of each that it got.
#[test]
fn each_retry_has_a_parent_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (sender, seen) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for (at, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let mut reader = BufReader::new(&stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
            let line = head.lines().find_map(|line| line.strip_prefix("traceparent: ").map(str::to_owned));
            let _ = sender.send(line.unwrap_or_default());
            let status = if at == 0 { "503 Service Unavailable" } else { "200 OK" };
            let _ = (&stream).write_all(
                format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes(),
            );
        }
    });
    let dir = folder(
        &format!(
            "{SERVER}{ALWAYS}[upstreams.far]\nurl = \"http://{address}\"\nretry = {{ max = 1 }}\ntimeout = \"30s\"\n\
             [[routes]]\npath = \"/\"\nflow = \"flow.star:ask\"\ntimeout = \"40s\"\n"
        ),
        "load(\"@upstreams\", \"far\")\ndef ask(req):\n    return far.get(\"/\")\n",
    );
    let setup =
        Setup { serving: Serving::start(dir.path()), _far: Serving::start(folder(ECHO_TOML, ECHO).path()), dir };
    assert_eq!(setup.send("/", &with_state(&[])), serde_json::json!({}));
    let attempts: Vec<String> = (0..2).map(|_| seen.recv_timeout(common::TIMEOUT).expect("a request")).collect();
    assert!(attempts.iter().all(|text| text.starts_with(&format!("00-{ID}-"))), "{attempts:?}");
    assert_ne!(attempts[0], attempts[1]);
}

#[test]
fn a_wrong_choice_is_named() {
    let dir = folder(&toml(&format!("{SERVER}[tracing]\ntrust = \"everybody\"\n")), FLOW);
    let output =
        fanin(&["check", dir.path().to_str().expect("text")]).env("FAR", "127.0.0.1:1").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("`everybody` is not allowed; write \"trusted\" or \"always\" or \"never\""), "{text}");
}
