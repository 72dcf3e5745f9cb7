//! Flows that compute without an end, and large values: others on the same worker are served meanwhile.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use common::{Serving, TIMEOUT, run};
use tempfile::TempDir;

const FLOWS: &str = r#"load("@upstreams", "far")

def quick(req):
    first = far.get("/first")
    return {"second": far.get("/second", query = {"n": first["n"] + 1})["n"]}

def loops():
    n = 0
    for i in range(1000000000000):
        n += i % 7

def ordering():
    items = [i * 7919 % 100003 for i in range(60000)]
    for i in range(1000000000):
        items = sorted(items, key = lambda item: -item)

def words():
    text = "a," * 60000
    for i in range(1000000000):
        text.split(",")

def encoding():
    items = [{"id": i, "tags": [i, i]} for i in range(10000)]
    for i in range(1000000000):
        json.decode(json.encode(items))

def texts():
    text = "ab" * 500000
    for i in range(1000000000):
        (text + str(i % 10)).upper()

BUSY = [loops, ordering, words, encoding, texts]

def busy(req):
    BUSY[int(req.params["which"])]()
"#;

const KINDS: usize = 5;

const CONFIG: &str = r#"[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 1
# How long others wait is not looked at here.
queueing = "off"
stall = "60s"

[flow]
max_steps = 1000000000000000
max_memory = "1000GiB"

[upstreams.far]
url = "http://${FANIN_TEST_FAR}"
timeout = "60s"

[[routes]]
method = "GET"
path = "/quick"
flow = "flows.star:quick"
timeout = "60s"

[[routes]]
method = "GET"
path = "/busy/{which}"
flow = "flows.star:busy"
timeout = "10m"
"#;

/// Answers every request with a number.
fn backend() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{\"n\": 7}");
                    }
                }
            });
        }
    });
    address
}

#[test]
fn ten_flows_without_an_end_do_not_keep_others_from_being_served() {
    let dir = TempDir::new().expect("a folder");
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
    std::fs::write(dir.path().join("fanin.toml"), CONFIG).expect("written");
    let serving = Serving::with(dir.path(), &[("FANIN_TEST_FAR", &backend())]);
    let address = serving.listen.parse().expect("an address");
    let mut busy: Vec<TcpStream> = (0..2 * KINDS)
        .map(|at| {
            let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("connected");
            write!(stream, "GET /busy/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", at % KINDS).expect("sent");
            stream
        })
        .collect();
    for _ in 0..20 {
        let answer = serving.get("/quick");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("{\"second\":7}"), "{answer}");
    }
    // And they were at it all the time: none has ended.
    for (at, stream) in busy.iter_mut().enumerate() {
        stream.set_nonblocking(true).expect("set");
        match stream.read(&mut [0; 1000]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("busy flow {at} has ended: {other:?}"),
        }
    }
}

#[test]
fn a_source_of_ten_megabytes_is_one_clear_error() {
    let dir = TempDir::new().expect("a folder");
    let long = FLOWS.to_owned() + &"# a word\n".repeat(1_200_000);
    assert!(long.len() > 10 << 20);
    std::fs::write(dir.path().join("flows.star"), long).expect("written");
    let config = CONFIG.replace("${FANIN_TEST_FAR}", "127.0.0.1:1");
    std::fs::write(dir.path().join("fanin.toml"), config).expect("written");
    let (status, stdout, stderr) = run(&["check", dir.path().to_str().expect("a path of text")]);
    assert_eq!(status, Some(1));
    let told = format!("{stdout}{stderr}");
    assert_eq!(told.matches("flows.star is larger than 1048576 bytes").count(), 1, "{told}");
    // And not the ten megabytes.
    assert!(told.len() < 10_000, "{} bytes", told.len());
}
