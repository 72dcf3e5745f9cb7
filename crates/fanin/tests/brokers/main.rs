//! Channels between two servers and a real broker: Redis or Valkey, and NATS.

#[path = "../common/mod.rs"]
mod common;
mod malformed;
mod outages;
mod settings;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Serving, TIMEOUT};
use fanin_testbed::Server;
use tempfile::TempDir;

const FLOWS: &str = r#"
load("@push", "push")

def events(req):
    return push.subscribe(req.query.get("channels", "news").split(","))

def publish(req):
    return {"id": push.publish(req.params["channel"], req.body, event = req.query.get("event"))}
"#;

const PASSWORD: &str = "secret-of-the-broker";
/// What the log says when the link is whole.
const WHOLE: &str = "events come from and go to other instances";

fn write(dir: &TempDir, push: &str) {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nworkers = 2\n[push]\nretry = \"200ms\"\n{push}\n\
         [[routes]]\npath = \"/events\"\nflow = \"flows.star:events\"\n\
         [[routes]]\npath = \"/publish/{{channel}}\"\nmethod = \"POST\"\nflow = \"flows.star:publish\"\n"
    );
    std::fs::write(dir.path().join("fanin.toml"), config).expect("written");
    std::fs::write(dir.path().join("flows.star"), FLOWS).expect("written");
}

fn serve(push: &str) -> (TempDir, Serving) {
    let dir = tempfile::tempdir().expect("a folder");
    write(&dir, push);
    let serving = Serving::start(dir.path());
    (dir, serving)
}

/// The keys for a broker.
fn keys(broker: &Server) -> String {
    let mut keys = format!("broker = {:?}\n", broker.url);
    if broker.ca.as_os_str().is_empty() {
        return keys;
    }
    keys.push_str(&format!("broker_tls = {{ ca = {:?} }}\n", broker.ca.to_str().expect("a path of text")));
    keys
}

/// Two servers that are linked.
fn two(push: &str) -> [(TempDir, Serving); 2] {
    let both = [serve(push), serve(push)];
    for (_, serving) in &both {
        serving.logged(WHOLE);
    }
    both
}

/// A subscriber.
struct Client(BufReader<TcpStream>);

impl Client {
    fn open(serving: &Serving, channels: &str) -> Client {
        let mut stream = serving.connect();
        write!(stream, "GET /events?channels={channels} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
        let mut client = Client(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(client.0.read_line(&mut head).expect("a line") > 0, "the connection ended: {head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let first = client.piece();
        assert!(first.starts_with("retry: 200\nid: ") && !first.contains("lost"), "{first}");
        client
    }

    /// The next chunk: one event or a comment.
    fn piece(&mut self) -> String {
        let mut size = String::new();
        self.0.read_line(&mut size).expect("a chunk's size");
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("the connection broke: {size:?}"));
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).expect("a chunk");
        chunk.truncate(size);
        String::from_utf8(chunk).expect("text")
    }

    /// The next event without its id.
    fn event(&mut self) -> String {
        let began = Instant::now();
        loop {
            // Comments come for ever.
            assert!(began.elapsed() < TIMEOUT, "no event");
            match self.piece().as_str() {
                ":\n\n" => {}
                piece => return piece.split_once('\n').expect("an id").1.to_owned(),
            }
        }
    }

    /// The data of the next event, which must not be `lost`.
    fn data(&mut self) -> String {
        let event = self.event();
        event
            .strip_prefix("data: ")
            .and_then(|data| data.strip_suffix("\n\n"))
            .unwrap_or_else(|| panic!("{event}"))
            .into()
    }

    /// Passes over events until one is `lost`.
    fn lost(&mut self) {
        while self.event() != "event: lost\ndata: {}\n\n" {}
    }

    /// Passes over events until there was one with each of these data.
    fn until(&mut self, data: &[&str]) {
        let mut missing: Vec<String> = data.iter().map(|data| format!("data: {data}\n\n")).collect();
        while !missing.is_empty() {
            let event = self.event();
            missing.retain(|data| !event.ends_with(data.as_str()));
        }
    }
}

fn publish(serving: &Serving, path: &str, body: &str) {
    let answer = post(serving, path, body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn post(serving: &Serving, path: &str, body: &str) -> String {
    let mut stream = serving.connect();
    let length = body.len();
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "POST /publish/{path} {head}\r\ncontent-length: {length}\r\n\r\n{body}").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// A page of the admin side.
fn admin(serving: &Serving, path: &str) -> String {
    let mut stream =
        TcpStream::connect_timeout(&serving.admin.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

fn metric(serving: &Serving, name: &str) -> u64 {
    let page = admin(serving, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("fanin_push_broker_{name} ")));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

#[allow(clippy::disallowed_methods, reason = "a test has a thread of its own")]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within a minute: {what}");
}

/// Publishes bytes as another client of the broker.
fn publish_raw(broker: &Server, messages: &[Vec<u8>]) {
    let address = broker.url.rsplit('@').next().expect("an address");
    let mut stream = TcpStream::connect_timeout(&address.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    if broker.url.starts_with("redis") {
        write!(stream, "AUTH fanin {PASSWORD}\r\n").expect("sent");
        for message in messages {
            write!(stream, "*3\r\n$7\r\nPUBLISH\r\n$12\r\nfanin:events\r\n${}\r\n", message.len()).expect("sent");
            stream.write_all(message).expect("sent");
            stream.write_all(b"\r\n").expect("sent");
        }
        // One answer each.
        BufReader::new(stream).lines().take(messages.len() + 1).for_each(|line| drop(line.expect("an answer")));
    } else {
        write!(stream, "CONNECT {{\"user\":\"fanin\",\"pass\":\"{PASSWORD}\",\"verbose\":false}}\r\n").expect("sent");
        for message in messages {
            write!(stream, "PUB fanin.events {}\r\n", message.len()).expect("sent");
            stream.write_all(message).expect("sent");
            stream.write_all(b"\r\n").expect("sent");
        }
        stream.write_all(b"PING\r\n").expect("sent");
        let pong = BufReader::new(stream).lines().map_while(Result::ok).any(|line| line == "PONG");
        assert!(pong, "it took them");
    }
}

/// A message as an instance named 7 sends it.
fn message(sequence: u64, name: &str, data: &[u8]) -> Vec<u8> {
    let lengths = [&4_u16.to_be_bytes()[..], &[name.len() as u8]].concat();
    [&b"F\x01\x01"[..], &7_u64.to_be_bytes(), &sequence.to_be_bytes(), &lengths, b"news", name.as_bytes(), data]
        .concat()
}

fn events_cross(kind: &str, options: &[&str]) {
    let broker = Server::broker(kind, options);
    let [(_a, a), (_b, b)] = two(&keys(&broker));
    let mut at = [Client::open(&a, "news"), Client::open(&b, "news"), Client::open(&b, "other,news")];
    // In order, once in each instance, whichever has published it.
    for round in 0..200 {
        publish(if round % 50 < 25 { &a } else { &b }, "news", &round.to_string());
        if round % 25 == 24 {
            for client in &mut at {
                for expected in round - 24..=round {
                    assert_eq!(client.data(), expected.to_string());
                }
            }
        }
    }
    publish(&a, "other?event=goal", "{\"by\": [7]}");
    assert_eq!(at[2].event(), "event: goal\ndata: {\"by\": [7]}\n\n");
    eventually("all is counted", || {
        (metric(&a, "sent_total"), metric(&b, "sent_total")) == (101, 100)
            && (metric(&a, "received_total"), metric(&b, "received_total")) == (100, 101)
    });
    for serving in [&a, &b] {
        assert_eq!((metric(serving, "connected"), metric(serving, "reconnects_total")), (1, 0));
        assert_eq!((metric(serving, "dropped_total"), metric(serving, "invalid_total")), (0, 0));
    }
    // What is published to the last goes out before the end.
    publish(&a, "news", "\"last\"");
    a.signal("-TERM");
    assert_eq!(at[1].data(), "\"last\"");
    assert_eq!(a.end().0, Some(0));
}

#[test]
fn events_cross_redis() {
    events_cross("redis", &[]);
}

#[test]
fn events_cross_redis_with_tls() {
    events_cross("redis", &["tls"]);
}

#[test]
fn events_cross_nats() {
    events_cross("nats", &[]);
}

#[test]
fn events_cross_nats_with_tls() {
    events_cross("nats", &["tls"]);
}

/// Far more at once than is read at once.
fn a_burst_arrives(kind: &str) {
    const COUNT: u64 = 30_000;
    let broker = Server::broker(kind, &[]);
    let (_dir, serving) =
        serve(&format!("{}log_events = 100000\nlog_size = \"1GiB\"\nmax_log_size = \"1GiB\"", keys(&broker)));
    serving.logged(WHOLE);
    let mut client = Client::open(&serving, "news");
    let messages: Vec<_> = (1..=COUNT).map(|number| message(number, "", number.to_string().as_bytes())).collect();
    publish_raw(&broker, &messages);
    for number in 1..=COUNT {
        assert_eq!(client.data(), number.to_string());
    }
    assert_eq!((metric(&serving, "received_total"), metric(&serving, "gaps_total")), (COUNT, 1));
}

#[test]
fn a_burst_crosses_redis() {
    a_burst_arrives("redis");
}

#[test]
fn a_burst_crosses_nats() {
    a_burst_arrives("nats");
}
