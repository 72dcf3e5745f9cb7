//! The attacks: what hostile clients send, as scripts that all run on the same few lines of code.

use std::fmt::Write as _;
use std::time::Duration;

use super::frames::{self, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PING, RST_STREAM};

/// Which of the server's ports is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// That of the routes.
    Main,
    /// That of the routes, on a server with TLS.
    Tls,
    /// That of the admin pages.
    Admin,
    /// That of the models.
    Models,
}

/// What each connection of an attack does.
#[derive(Clone, Debug)]
pub enum Script {
    /// Sends `first`, then `drip` every `every`, and reads `read` bytes as often. A connection that the server closes comes again.
    Hold { first: Vec<u8>, drip: Vec<u8>, read: usize, every: Duration },
    /// Sends `first`, then what `next` gives for the numbers from 0 on, `rate` times a second on all connections together. Answers are
    /// read and thrown away.
    Flood { first: Vec<u8>, next: fn(u32) -> Vec<u8>, rate: f64 },
    /// Sends `request` on a connection of its own, reads to the end, `rate` times a second on all connections together.
    Repeat { request: Vec<u8>, rate: f64 },
}

/// An attack.
#[derive(Clone, Debug)]
pub struct Attack {
    /// What it is called in tables and on the command line.
    pub name: &'static str,
    /// Where it goes.
    pub port: Port,
    /// Connections at the same time.
    pub connections: usize,
    /// What each does.
    pub script: Script,
}

const SECOND: Duration = Duration::from_secs(1);

/// All attacks. `quick`: with fewer connections where there are thousands.
pub fn all(quick: bool) -> Vec<Attack> {
    let hold =
        |first: &[u8], drip: &[u8], read| Script::Hold { first: first.into(), drip: drip.into(), read, every: SECOND };
    let attack = |name, port, connections, script| Attack { name, port, connections, script };
    let many = if quick { 2_000 } else { 10_000 };
    let mut found = vec![
        attack("slow-read", Port::Main, 300, hold(&get("/large"), b"", 1)),
        attack("slow-head", Port::Main, 300, hold(b"GET /raw HTTP/1.1\r\nHost: hold\r\nX-Slow: ", b"a", 0)),
        attack(
            "slow-body",
            Port::Main,
            300,
            hold(b"POST /json HTTP/1.1\r\nHost: hold\r\nContent-Length: 1000000\r\n\r\n{\"a\": \"", b"a", 0),
        ),
        attack("window-0", Port::Main, 50, Script::Hold { first: window_0(), drip: ping(), read: 64, every: SECOND }),
        attack("reset-flood", Port::Main, 4, flood(&[], reset, 4_000.0)),
        attack(
            "continuation-flood",
            Port::Main,
            8,
            Script::Flood { first: endless_head(), next: continuation, rate: 800.0 },
        ),
        attack("header-bomb", Port::Main, 16, repeat(many_headers(), 100.0)),
        attack("large-header", Port::Main, 16, repeat(large_header(), 100.0)),
        attack("hpack-bomb", Port::Main, 16, flood(&[], hpack_bomb, 50.0)),
        attack("query-bomb", Port::Main, 16, repeat(query_bomb(), 50.0)),
        attack("deep-json", Port::Main, 8, repeat(post(&deep()), 10.0)),
        attack("wide-json", Port::Main, 8, repeat(post(&wide(false)), 10.0)),
        attack("escaped-json", Port::Main, 8, repeat(post(&wide(true)), 10.0)),
        attack("half-tls", Port::Tls, 500, hold(&CLIENT_HELLO_BEGIN, b"", 0)),
        attack("many-connections", Port::Main, many, hold(b"", b"", 0)),
    ];
    let ports = [("silent", Port::Main), ("silent-admin", Port::Admin), ("silent-models", Port::Models)];
    found.extend(ports.map(|(name, port)| attack(name, port, 1_000, hold(b"", b"", 0))));
    found
}

/// A record header and the begin of a ClientHello; the rest never comes.
const CLIENT_HELLO_BEGIN: [u8; 9] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: hold\r\n\r\n").into_bytes()
}

fn post(body: &str) -> Vec<u8> {
    format!("POST /json HTTP/1.1\r\nHost: hold\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn repeat(request: Vec<u8>, rate: f64) -> Script {
    Script::Repeat { request, rate }
}

fn flood(settings: &[(u16, u32)], next: fn(u32) -> Vec<u8>, rate: f64) -> Script {
    Script::Flood { first: frames::preface(settings), next, rate }
}

/// A hundred large responses, for none of which the client ever opens its window.
fn window_0() -> Vec<u8> {
    let requests = (0..100).flat_map(|n| frames::get(2 * n + 1, "/large"));
    frames::preface(&[(INITIAL_WINDOW_SIZE, 0)]).into_iter().chain(requests).collect()
}

fn ping() -> Vec<u8> {
    frames::frame(PING, 0, 0, &[0; 8])
}

/// A request that is cancelled at once.
fn reset(n: u32) -> Vec<u8> {
    let stream = 2 * (n % 1_000_000_000) + 1;
    [frames::get(stream, "/raw"), frames::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat()
}

/// The begin of a head that never ends.
fn endless_head() -> Vec<u8> {
    [frames::preface(&[]), frames::frame(HEADERS, END_STREAM, 1, &frames::head("/raw"))].concat()
}

/// A kilobyte of one-byte references to a header of the static table, as the continuation of a head.
fn continuation(_: u32) -> Vec<u8> {
    frames::frame(CONTINUATION, 0, 1, &[0x80 | 16; 1024])
}

/// A head of 16 KB that stands for 48 MB.
fn hpack_bomb(n: u32) -> Vec<u8> {
    frames::frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, &frames::hpack_bomb(4_000, 12_000))
}

fn many_headers() -> Vec<u8> {
    let mut request = String::from("GET /raw HTTP/1.1\r\nHost: hold\r\nConnection: close\r\n");
    for n in 0..3_000 {
        let _ = write!(request, "a{n}:\r\n");
    }
    (request + "\r\n").into_bytes()
}

fn large_header() -> Vec<u8> {
    format!("GET /raw HTTP/1.1\r\nHost: hold\r\nConnection: close\r\nX: {}\r\n\r\n", "a".repeat(1 << 20)).into_bytes()
}

/// As many names as fit into a head of 32 KB, in a request whose flow looks at its query.
fn query_bomb() -> Vec<u8> {
    let mut query = String::from("q=1");
    for n in 0..6_000 {
        let _ = write!(query, "&{n:x}");
    }
    query.truncate(31_000);
    format!("GET /query?{query} HTTP/1.1\r\nHost: hold\r\nConnection: close\r\n\r\n").into_bytes()
}

fn deep() -> String {
    "[".repeat(1_000_000)
}

/// An object of as many keys as fit into a body, whose last one the flow looks for.
fn wide(escaped: bool) -> String {
    let mut body = String::from("{");
    for n in 0..100_000u32 {
        if body.len() > 1_000_000 {
            break;
        }
        let _ = match escaped {
            // `\u006b` is `k`: each key must be decoded to be compared.
            true => write!(body, "\"\\u006b{n:x}\":1,"),
            false => write!(body, "\"k{n:x}\":1,"),
        };
    }
    body + "\"last\":1}"
}
