//! Request bodies passed on without being collected: `stream_body = true` and `body = req.stream`.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Serving, TIMEOUT, run};
use tempfile::TempDir;

const FLOWS: &str = r#"load("@upstreams", "far")

def passes(req):
    if req.headers.get("x-user") == "nobody":
        abort(403, "not you")
    return far.post("/{path}", params = {"path": req.params["path"]}, body = req.stream, ok = [413])

def both(req):
    answer = far.post("/take", body = req.stream, stream = True)
    return stream(answer, max = "1KB")

def late(req):
    return stream(far.post("/take", body = req.stream))

def looks(req):
    return far.post("/take", json = req.body)

def twice(req):
    return [far.post("/take", body = req.stream), far.post("/take", body = req.stream)]
"#;

const CONFIG: &str = r#"[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 1
body_timeout = "2s"

[upstreams.far]
url = "http://${FANIN_TEST_FAR}"
timeout = "60s"
"#;

const LARGE: usize = 40 << 20;

/// What the upstream saw.
#[derive(Debug, PartialEq)]
enum Seen {
    Head(String),
    Part(Vec<u8>),
    /// The body was complete, with so many bytes.
    Complete(usize),
    /// The connection ended before the body.
    Broken(usize),
}

struct Far {
    address: SocketAddr,
    seen: Receiver<Seen>,
    /// Lets `/wait` read.
    gate: Sender<()>,
}

impl Far {
    fn start() -> Far {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let (sender, seen) = channel();
        let (gate, opened) = channel();
        let opened = Arc::new(Mutex::new(opened));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (sender, opened) = (sender.clone(), opened.clone());
                thread::spawn(move || while serve_one(&stream, &sender, &opened).is_some() {});
            }
        });
        Far { address, seen, gate }
    }

    fn next(&self) -> Seen {
        self.seen.recv_timeout(TIMEOUT).expect("the upstream sees something")
    }

    /// Skips parts.
    fn end(&self) -> Seen {
        loop {
            match self.next() {
                Seen::Part(_) | Seen::Head(_) => {}
                end => return end,
            }
        }
    }
}

/// Reads a request and answers it; `None` at the connection's end.
fn serve_one(stream: &TcpStream, seen: &Sender<Seen>, gate: &Mutex<Receiver<()>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut headers) = (String::new(), HashMap::new());
    reader.read_line(&mut head).ok().filter(|count| *count > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_owned(), value.to_owned());
        head += &line;
    }
    let _ = seen.send(Seen::Head(head.clone()));
    let mut writer = stream;
    if head.contains("/refuse") {
        let _ = writer.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
        return None;
    }
    if head.contains("/wait") {
        gate.lock().expect("no panic").recv_timeout(TIMEOUT).ok()?;
    }
    let mut total = 0;
    let mut part = |reader: &mut BufReader<&TcpStream>, left: usize| {
        let mut bytes = vec![0; left.min(64 << 10)];
        let count = reader.read(&mut bytes).ok().filter(|count| *count > 0)?;
        bytes.truncate(count);
        let right = bytes.iter().zip(total..).all(|(byte, at)| *byte == byte_at(at));
        total += count;
        assert!(right, "the bytes arrive unchanged");
        let _ = seen.send(Seen::Part(bytes));
        Some(count)
    };
    let mut complete = true;
    if let Some(length) = headers.get("content-length") {
        let mut left: usize = length.parse().expect("a number");
        while left > 0 && complete {
            match part(&mut reader, left) {
                Some(count) => left -= count,
                None => complete = false,
            }
        }
    } else {
        assert_eq!(headers.get("transfer-encoding").map(String::as_str), Some("chunked"));
        'chunks: loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                complete = false;
                break;
            }
            let mut left = usize::from_str_radix(line.trim(), 16).expect("a size");
            let last = left == 0;
            while left > 0 {
                match part(&mut reader, left) {
                    Some(count) => left -= count,
                    None => {
                        complete = false;
                        break 'chunks;
                    }
                }
            }
            reader.read_line(&mut line).ok()?;
            if last {
                break;
            }
        }
    }
    let _ = seen.send(if complete { Seen::Complete(total) } else { Seen::Broken(total) });
    if !complete {
        return None;
    }
    let answer = format!("{{\"bytes\":{total}}}");
    let length = answer.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}");
    writer.write_all(head.as_bytes()).ok()
}

/// The byte at this place of every body.
fn byte_at(at: usize) -> u8 {
    b'a' + (at % 23) as u8
}

fn body(range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(byte_at).collect()
}

fn folder() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let mut config = CONFIG.to_owned();
    for (path, flow) in
        [("/both", "both"), ("/looks", "looks"), ("/twice", "twice"), ("/late", "late"), ("/of/{path}", "passes")]
    {
        config += &format!(
            "\n[[routes]]\nmethod = \"POST\"\npath = \"{path}\"\nflow = \"flows.star:{flow}\"\nstream_body = true\n\
             max_body = \"64MB\"\ntimeout = \"60s\"\n"
        );
    }
    config += "\n[[routes]]\nmethod = \"POST\"\npath = \"/small/{path}\"\nflow = \"flows.star:passes\"\nstream_body = true\nmax_body = 100\n";
    std::fs::write(dir.path().join("fanin.toml"), config).expect("written");
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
    dir
}

fn serve() -> (TempDir, Far, Serving) {
    let (dir, far) = (folder(), Far::start());
    let serving = Serving::with(dir.path(), &[("FANIN_TEST_FAR", &far.address.to_string())]);
    (dir, far, serving)
}

fn send(serving: &Serving, head: &str) -> TcpStream {
    let mut stream = serving.connect();
    write!(stream, "{head}\r\nhost: localhost\r\n\r\n").expect("sent");
    stream
}

/// A response's head, and its body by its length.
fn response(stream: &TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("a line") > 0, "it ends with {head}");
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a number");
        }
        if line == "\r\n" {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    (head, String::from_utf8(body).expect("text"))
}

#[test]
fn an_upstream_gets_each_part_before_the_client_sends_the_next() {
    let (_dir, far, serving) = serve();
    for framing in ["content-length: 9", "transfer-encoding: chunked"] {
        let mut client = send(&serving, &format!("POST /of/take HTTP/1.1\r\ncontent-type: a/b\r\n{framing}"));
        let Seen::Head(head) = far.next() else { panic!("no head") };
        assert!(head.contains(framing) && head.contains("content-type: a/b"), "{head}");
        for at in [0, 3, 6] {
            let part = body(at..at + 3);
            if framing.contains("chunked") {
                client.write_all(b"3\r\n").expect("sent");
                client.write_all(&[&part[..], b"\r\n"].concat()).expect("sent");
            } else {
                client.write_all(&part).expect("sent");
            }
            assert_eq!(far.next(), Seen::Part(part), "{framing}");
        }
        if framing.contains("chunked") {
            client.write_all(b"0\r\n\r\n").expect("sent");
        }
        assert_eq!(far.next(), Seen::Complete(9));
        let (head, answer) = response(&client);
        assert!(head.starts_with("HTTP/1.1 200") && answer == "{\"bytes\":9}", "{head}{answer}");
    }
}

#[test]
fn a_large_body_passes_unchanged_and_none_is_no_problem() {
    let (_dir, far, serving) = serve();
    // Made before the head is sent: it takes long, and the client must not be silent then.
    let all = body(0..LARGE);
    for path in ["/of/take", "/both"] {
        let mut client = send(&serving, &format!("POST {path} HTTP/1.1\r\ncontent-length: {LARGE}"));
        client.write_all(&all).expect("sent");
        assert_eq!(far.end(), Seen::Complete(LARGE));
        assert_eq!(response(&client).1, format!("{{\"bytes\":{LARGE}}}"));
        // On the same connection.
        write!(client, "POST {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
        assert_eq!(far.end(), Seen::Complete(0));
        assert_eq!(response(&client).1, "{\"bytes\":0}");
    }
}

#[test]
fn an_upstream_that_does_not_read_stops_the_client() {
    let (_dir, far, serving) = serve();
    let all = body(0..LARGE);
    let mut client = send(&serving, &format!("POST /of/wait HTTP/1.1\r\ncontent-length: {LARGE}"));
    client.set_write_timeout(Some(Duration::from_millis(500))).expect("set");
    let mut sent = 0;
    let stopped = loop {
        match client.write(&all[sent..]) {
            Ok(count) => sent += count,
            Err(error) => break error.kind(),
        }
        if sent == all.len() {
            break ErrorKind::Other;
        }
    };
    assert_eq!(stopped, ErrorKind::WouldBlock, "{sent} bytes are in the kernel's buffers");
    far.gate.send(()).expect("open");
    client.set_write_timeout(Some(TIMEOUT)).expect("set");
    client.write_all(&all[sent..]).expect("goes on");
    assert_eq!(far.end(), Seen::Complete(LARGE));
    assert_eq!(response(&client).1, format!("{{\"bytes\":{LARGE}}}"));
}

#[test]
fn a_client_that_leaves_or_sends_too_much_leaves_an_incomplete_request() {
    let (_dir, far, serving) = serve();
    let mut client = send(&serving, "POST /of/take HTTP/1.1\r\ncontent-length: 9");
    client.write_all(&body(0..3)).expect("sent");
    assert!(matches!(far.next(), Seen::Head(_)));
    assert_eq!(far.next(), Seen::Part(body(0..3)));
    drop(client);
    assert_eq!(far.next(), Seen::Broken(3));

    let client = send(&serving, "POST /small/take HTTP/1.1\r\ncontent-length: 101");
    let (head, answer) = response(&client);
    assert!(head.starts_with("HTTP/1.1 413") && answer.contains("body-too-large"), "{head}{answer}");

    let mut client = send(&serving, "POST /small/take HTTP/1.1\r\ntransfer-encoding: chunked");
    client.write_all(&[b"64\r\n", &body(0..100)[..], b"\r\n"].concat()).expect("sent");
    assert!(matches!(far.next(), Seen::Head(_)));
    assert!(matches!(far.next(), Seen::Part(_)));
    client.write_all(b"1\r\na\r\n").expect("sent");
    let (head, answer) = response(&client);
    assert!(head.starts_with("HTTP/1.1 413") && answer.contains("at most 100 bytes are accepted"), "{head}{answer}");
    assert!(matches!(far.end(), Seen::Broken(100)));

    // Silent for longer than `body_timeout`.
    let client = send(&serving, "POST /of/take HTTP/1.1\r\ncontent-length: 9");
    let (head, answer) = response(&client);
    assert!(head.starts_with("HTTP/1.1 408") && answer.contains("body-timeout"), "{head}{answer}");
    assert!(matches!(far.end(), Seen::Broken(0)));
}

#[test]
fn a_body_is_wanted_before_it_is_sent() {
    let (_dir, far, serving) = serve();
    let expects = "content-length: 3\r\nexpect: 100-continue";
    let mut client = send(&serving, &format!("POST /of/take HTTP/1.1\r\n{expects}"));
    let (head, _) = response(&client);
    assert!(head.starts_with("HTTP/1.1 100"), "{head}");
    client.write_all(&body(0..3)).expect("sent");
    assert_eq!(far.end(), Seen::Complete(3));
    assert_eq!(response(&client).1, "{\"bytes\":3}");

    let client = send(&serving, &format!("POST /of/take HTTP/1.1\r\nx-user: nobody\r\n{expects}"));
    let (head, _) = response(&client);
    assert!(head.starts_with("HTTP/1.1 403"), "without the body: {head}");
}

#[test]
fn an_upstream_may_answer_before_the_end() {
    let (_dir, far, serving) = serve();
    let mut client = send(&serving, "POST /of/refuse HTTP/1.1\r\ncontent-length: 1000");
    client.write_all(&body(0..10)).expect("sent");
    let (head, answer) = response(&client);
    assert!(head.starts_with("HTTP/1.1 200") && answer == "{}", "the flow accepts its 413: {head}{answer}");
    assert!(matches!(far.next(), Seen::Head(_)));
}

#[test]
fn what_a_flow_cannot_do_with_it_is_named() {
    let (dir, _far, serving) = serve();
    for (path, message) in [
        ("/looks", "req.body is not read: the route has stream_body"),
        ("/twice", "req.stream cannot be sent to far: another call of this flow has it"),
        ("/late", "stream() comes too late: the call of far has been sent"),
    ] {
        let mut client = send(&serving, &format!("POST {path} HTTP/1.1\r\ncontent-length: 2\r\nconnection: close"));
        client.write_all(&body(0..2)).expect("sent");
        let (head, answer) = response(&client);
        assert!(head.starts_with("HTTP/1.1 500"), "{head}{answer}");
        serving.logged(message);
    }
    let config = std::fs::read_to_string(dir.path().join("fanin.toml")).expect("read");
    let config = config.replace("${FANIN_TEST_FAR}", "127.0.0.1:1");
    std::fs::write(dir.path().join("fanin.toml"), format!("{config}executor = {{ threads = 2, waiting = 2 }}\n"))
        .expect("written");
    let (status, _, error) = run(&["check", dir.path().to_str().expect("text")]);
    assert!(status != Some(0) && error.contains("does not work with threads"), "{error}");
}
