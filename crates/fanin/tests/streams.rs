//! Answers of upstreams passed on without being collected: `stream(...)`.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Serving, TIMEOUT, run};
use tempfile::TempDir;

const FLOWS: &str = r#"load("@upstreams", "far")

def whole(req):
    return stream(far.get("/{path}", params = {"path": req.params["path"]}), ranges = True)

def held(req):
    answer = stream(far.get("/gated"))
    if answer.status != 200:
        abort(502, "no file")
    name = answer.headers["x-name"]
    return response(headers = {"x-name": name, "content-type": "x/y"}, body = answer)

def strict(req):
    return stream(far.get("/" + req.params["path"]), max = "1KiB", idle_timeout = "100ms")

def late(req):
    answer = far.get("/small")
    if answer.status == 200:
        return stream(answer)

def inside(req):
    return {"file": stream(far.get("/small"))}

def looks(req):
    return stream(far.get("/small"))["key"]

def unused(req):
    answer = stream(far.get("/endless"))
    return {"status": answer.status}
"#;

const CONFIG: &str = r#"[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 1

[upstreams.far]
url = "http://${FANIN_TEST_FAR}"
max_answer = "1KiB"
timeout = "30s"
retry = "off"
breaker = "off"
"#;

/// The byte at this place of `/large` and `/endless`.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

const LARGE: u64 = 40 << 20;

/// An upstream that answers by path. What it sends and what it sees is in its hands and the test's.
struct Far {
    address: SocketAddr,
    /// Opens `/gated` for one more part.
    gate: Sender<&'static str>,
    /// Bytes that `/endless` has sent, and 1 once its connection was closed.
    sent: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
}

impl Far {
    fn start() -> Far {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let (gate, parts) = channel();
        let parts = Arc::new(Mutex::new(parts));
        let (sent, closed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let seen = (sent.clone(), closed.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (parts, (sent, closed)) = (parts.clone(), seen.clone());
                thread::spawn(move || answer(stream, &parts, &sent, &closed));
            }
        });
        Far { address, gate, sent, closed }
    }
}

fn answer(stream: TcpStream, parts: &Mutex<Receiver<&'static str>>, sent: &AtomicU64, closed: &AtomicU64) {
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    let mut stream = stream;
    while let Some((path, headers)) = head(&mut reader) {
        let say = |stream: &mut TcpStream, text: &str| stream.write_all(text.as_bytes()).is_ok();
        match path.as_str() {
            "/gated" => {
                say(
                    &mut stream,
                    "HTTP/1.1 200 OK\r\nx-name: n\r\nset-cookie: secret\r\ntransfer-encoding: chunked\r\n\r\n",
                );
                while let Ok(part) = parts.lock().expect("no panic").recv_timeout(TIMEOUT) {
                    say(&mut stream, &format!("{:x}\r\n{part}\r\n", part.len()));
                    if part.is_empty() {
                        break;
                    }
                }
            }
            "/large" | "/endless" => {
                let length = if path == "/large" { LARGE } else { 1 << 33 };
                say(&mut stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"));
                let mut at = 0;
                while at < length {
                    let part: Vec<u8> = (at..(at + (64 << 10)).min(length)).map(byte).collect();
                    if stream.write_all(&part).is_err() {
                        closed.fetch_add(1, SeqCst);
                        return;
                    }
                    at += part.len() as u64;
                    sent.store(at, SeqCst);
                }
            }
            "/half" => {
                say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
                return;
            }
            "/half-chunked" => {
                say(&mut stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
                return;
            }
            "/silent" => {
                say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
            }
            "/chunks" => {
                say(&mut stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                // More than allowed in the same packet would fail the call.
                let _ = parts.lock().expect("no panic").recv_timeout(TIMEOUT);
                while say(&mut stream, "40\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n") {}
            }
            "/file" => match (headers.get("range").map(String::as_str), headers.get("if-none-match")) {
                (Some("bytes=1-2"), None) => {
                    say(
                        &mut stream,
                        "HTTP/1.1 206 Partial Content\r\ncontent-type: text/plain\r\ncontent-range: bytes 1-2/5\r\n\
                         content-length: 2\r\n\r\nel",
                    );
                }
                (Some(_), None) => {
                    say(
                        &mut stream,
                        "HTTP/1.1 416 Range Not Satisfiable\r\ncontent-range: bytes */5\r\ncontent-length: 0\r\n\r\n",
                    );
                }
                (_, Some(_)) => {
                    say(&mut stream, "HTTP/1.1 304 Not Modified\r\netag: \"1\"\r\n\r\n");
                }
                (None, None) => {
                    say(
                        &mut stream,
                        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\naccept-ranges: bytes\r\netag: \"1\"\r\n\
                         content-disposition: attachment\r\ncontent-length: 5\r\n\r\nhello",
                    );
                }
            },
            "/events" => {
                say(
                    &mut stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
                     transfer-encoding: chunked\r\n\r\n",
                );
                while let Ok(part) = parts.lock().expect("no panic").recv_timeout(TIMEOUT) {
                    say(&mut stream, &format!("{:x}\r\n{part}\r\n", part.len()));
                    if part.is_empty() {
                        break;
                    }
                }
            }
            "/absent" => {
                say(&mut stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone");
            }
            _ => {
                say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
            }
        }
    }
}

fn head(reader: &mut impl BufRead) -> Option<(String, HashMap<String, String>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => return Some((path, headers)),
        };
    }
}

fn folder() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let mut config = CONFIG.to_owned();
    for (path, flow) in [
        ("/held", "held"),
        ("/strict/{path}", "strict"),
        ("/late", "late"),
        ("/inside", "inside"),
        ("/looks", "looks"),
        ("/unused", "unused"),
        ("/of/{path}", "whole"),
    ] {
        config += &format!("\n[[routes]]\nmethod = \"GET\"\npath = \"{path}\"\nflow = \"flows.star:{flow}\"\n");
    }
    std::fs::write(dir.path().join("fanin.toml"), config).expect("written");
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
    dir
}

fn serve() -> (TempDir, Far, Serving) {
    let (dir, far) = (folder(), Far::start());
    let serving = Serving::with(dir.path(), &[("FANIN_TEST_FAR", &far.address.to_string())]);
    (dir, far, serving)
}

fn send(serving: &Serving, request: &str) -> TcpStream {
    let mut stream = serving.connect();
    write!(stream, "{request}\r\nhost: localhost\r\n\r\n").expect("sent");
    stream
}

/// Reads up to and with this text.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut all = Vec::new();
    while !all.ends_with(end.as_bytes()) {
        let mut one = [0];
        stream.read_exact(&mut one).unwrap_or_else(|error| panic!("{error} after {}", all.escape_ascii()));
        all.push(one[0]);
    }
    String::from_utf8(all).expect("text")
}

/// All that comes until the connection ends, in any way.
fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    String::from_utf8(all).expect("text")
}

#[allow(clippy::disallowed_methods, reason = "a test's own thread")]
fn pause(time: Duration) {
    thread::sleep(time);
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        pause(Duration::from_millis(5));
    }
}

#[test]
fn a_client_gets_each_part_before_the_upstream_sends_the_next() {
    let (_dir, far, serving) = serve();
    let mut client = send(&serving, "GET /held HTTP/1.1");
    let head = read_until(&mut client, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("x-name: n\r\n"), "{head}");
    assert!(head.contains("content-type: x/y") && head.contains("transfer-encoding: chunked"), "{head}");
    assert!(!head.contains("cookie"), "only what describes the body passes: {head}");
    for part in ["one", "two"] {
        far.gate.send(part).expect("open");
        assert_eq!(read_until(&mut client, &format!("{part}\r\n")), format!("3\r\n{part}\r\n"));
    }
    far.gate.send("").expect("open");
    assert_eq!(read_until(&mut client, "0\r\n\r\n"), "0\r\n\r\n");

    let mut client = send(&serving, "GET /of/events HTTP/1.1");
    let head = read_until(&mut client, "\r\n\r\n");
    assert!(head.contains("content-type: text/event-stream") && head.contains("cache-control: no-cache"), "{head}");
    far.gate.send("data: 1\n\n").expect("open");
    assert_eq!(read_until(&mut client, "\n\n"), "9\r\ndata: 1\n\n");
    far.gate.send("").expect("open");
}

#[test]
fn a_body_far_over_max_answer_arrives_unchanged() {
    let (_dir, _far, serving) = serve();
    let mut client = send(&serving, "GET /of/large HTTP/1.1");
    let head = read_until(&mut client, "\r\n\r\n");
    assert!(head.contains(&format!("content-length: {LARGE}")), "{head}");
    let mut body = vec![0; LARGE as usize];
    client.read_exact(&mut body).expect("all of it");
    assert!(body.iter().zip(0..).all(|(found, at)| *found == byte(at)));
    assert!(rest(&mut send(&serving, "GET /of/small HTTP/1.1\r\nconnection: close")).ends_with("{}"));
}

#[test]
fn ranges_conditions_and_heads_pass() {
    let (_dir, _far, serving) = serve();
    let get = |request: &str| rest(&mut send(&serving, &format!("{request}\r\nconnection: close")));
    let whole = get("GET /of/file HTTP/1.1");
    for line in
        ["HTTP/1.1 200", "accept-ranges: bytes", "etag: \"1\"", "content-disposition: attachment", "content-length: 5"]
    {
        assert!(whole.contains(line), "{line}: {whole}");
    }
    assert!(whole.ends_with("\r\n\r\nhello"), "{whole}");
    let part = get("GET /of/file HTTP/1.1\r\nrange: bytes=1-2");
    assert!(part.starts_with("HTTP/1.1 206") && part.contains("content-range: bytes 1-2/5"), "{part}");
    assert!(part.ends_with("\r\n\r\nel"), "{part}");
    let none = get("GET /of/file HTTP/1.1\r\nrange: bytes=9-");
    assert!(none.starts_with("HTTP/1.1 416") && none.contains("content-range: bytes */5"), "{none}");
    let unchanged = get("GET /of/file HTTP/1.1\r\nif-none-match: \"1\"");
    assert!(unchanged.starts_with("HTTP/1.1 304") && unchanged.ends_with("\r\n\r\n"), "{unchanged}");
    let head = get("HEAD /of/file HTTP/1.1");
    assert!(head.contains("content-length: 5") && head.ends_with("\r\n\r\n"), "{head}");
    let absent = get("GET /of/absent HTTP/1.1");
    assert!(absent.starts_with("HTTP/1.1 502") && absent.contains("upstream-status"), "{absent}");
}

#[test]
fn an_upstream_that_breaks_off_leaves_an_incomplete_body() {
    let (_dir, far, serving) = serve();
    let mut client = send(&serving, "GET /of/half HTTP/1.1");
    let head = read_until(&mut client, "\r\n\r\n");
    assert!(head.contains("content-length: 10"), "{head}");
    assert_eq!(rest(&mut client), "hello");
    let line = serving.logged("a streamed answer is incomplete");
    assert!(line.contains("the answer broke off after 5 of 10 bytes") && line.contains("upstream=far"), "{line}");

    let mut client = send(&serving, "GET /of/half-chunked HTTP/1.1");
    read_until(&mut client, "\r\n\r\n");
    assert_eq!(rest(&mut client), "5\r\nhello\r\n", "no last chunk");

    let mut client = send(&serving, "GET /strict/silent HTTP/1.1");
    read_until(&mut client, "\r\n\r\n");
    assert_eq!(rest(&mut client), "hello");
    serving.logged("nothing of the streamed answer within 100 ms (stream_idle_timeout)");

    let mut client = send(&serving, "GET /strict/chunks HTTP/1.1");
    read_until(&mut client, "\r\n\r\n");
    far.gate.send("").expect("open");
    let all = rest(&mut client);
    assert!(all.len() < 4096 && !all.ends_with("0\r\n\r\n"), "{}", all.len());
    serving.logged("the streamed answer has more than 1024 bytes (max_stream)");
    let error = rest(&mut send(&serving, "GET /strict/large HTTP/1.1\r\nconnection: close"));
    assert!(error.starts_with("HTTP/1.1 502") && error.contains("upstream-answer-size"), "{error}");
}

#[test]
fn a_client_that_does_not_read_stops_the_upstream_and_one_that_leaves_closes_its_connection() {
    let (_dir, far, serving) = serve();
    let mut client = send(&serving, "GET /of/endless HTTP/1.1");
    read_until(&mut client, "\r\n\r\n");
    let mut last = 0;
    eventually("the upstream cannot send more", || {
        pause(Duration::from_millis(100));
        let now = far.sent.load(SeqCst);
        std::mem::replace(&mut last, now) == now && now > 0
    });
    assert!(last < 64 << 20, "{last} bytes are in buffers of the kernel");
    drop(client);
    eventually("its connection is closed", || far.closed.load(SeqCst) == 1);

    let unused = rest(&mut send(&serving, "GET /unused HTTP/1.1\r\nconnection: close"));
    assert!(unused.ends_with("{\"status\":200}"), "{unused}");
    eventually("a body that is not returned is given up", || far.closed.load(SeqCst) == 2);
}

#[test]
fn what_cannot_be_streamed_is_named_with_its_line() {
    let (_dir, _far, serving) = serve();
    for (path, message, line) in [
        ("/late", "stream() comes too late: the call of far has been sent", "flows.star:19"),
        ("/inside", "a streamed answer cannot be written as JSON", ""),
        ("/looks", "streamed answer has no elements to index", "flows.star:25"),
    ] {
        let answer = rest(&mut send(&serving, &format!("GET {path} HTTP/1.1\r\nconnection: close")));
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
        let logged = serving.logged(message);
        assert!(logged.contains(line), "{path}: {logged}");
    }
}

#[test]
fn check_knows_what_stream_takes() {
    let dir = folder();
    std::fs::write(
        dir.path().join("flows.star"),
        FLOWS.replace("ranges = True", "range = True").replace("max = \"1KiB\"", "max = True"),
    )
    .expect("written");
    let config = std::fs::read_to_string(dir.path().join("fanin.toml")).expect("written");
    std::fs::write(dir.path().join("fanin.toml"), config.replace("${FANIN_TEST_FAR}", "127.0.0.1:1")).expect("written");
    let (status, out, err) = run(&["check", dir.path().to_str().expect("text")]);
    let all = out + &err;
    assert_ne!(status, Some(0));
    assert!(all.contains("stream") && all.contains("range") && all.contains("flows.star:4"), "{all}");
    assert!(all.contains("flows.star:14"), "{all}");
}
