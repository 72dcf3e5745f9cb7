//! Messages that are none, and servers that are no brokers.

use std::io::{Read, Write};
use std::net::TcpListener;

use fanin_testbed::Server;

use crate::{Client, PASSWORD, WHOLE, keys, message, metric, publish, publish_raw, serve};

/// A server that sends a greeting, then what `answer` makes of what it gets, and then closes. Its port.
fn stranger(greeting: &'static [u8], answer: fn(&[u8]) -> Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut bytes = [0; 4096];
            let _ = stream.write_all(greeting);
            let count = stream.read(&mut bytes).unwrap_or(0);
            let _ = stream.write_all(&answer(&bytes[..count]));
        }
    });
    port
}

const GREETING: &[u8] = b"INFO {\"server_id\":\"X\",\"version\":\"2.10.0\",\"proto\":1,\"max_payload\":1048576}\r\n";

#[test]
fn servers_that_are_no_brokers_are_retried_and_harm_nobody() {
    let echo = |bytes: &[u8]| bytes.to_vec();
    for (scheme, greeting, answer) in [
        ("redis", &b""[..], (|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()) as fn(&[u8]) -> Vec<u8>),
        ("redis", b"", echo),
        ("redis", b"", |_| b"*1000000000\r\n".to_vec()),
        ("redis", b"", |_| b"*9223372036854775807\r\n".to_vec()),
        ("redis", b"", |_| b"$-7\r\n".to_vec()),
        ("redis", b"", |_| b"*1\r\n".repeat(1000)),
        ("redis", b"", |_| Vec::new()),
        ("nats", b"HTTP/1.1 400 Bad Request\r\n\r\n", echo),
        ("nats", GREETING, echo),
        ("nats", GREETING, |_| b"MSG a 1 99999999999999999999\r\n".to_vec()),
        ("nats", GREETING, |_| b"MSG a 1 18446744073709551615\r\n".to_vec()),
        ("nats", b"INFO {}\r\n", |_| b"PONG\r\nMSG\r\n\xff\r\n".to_vec()),
        ("nats", GREETING, |_| b"-ERR 'Authorization Violation'\r\n".to_vec()),
    ] {
        let port = stranger(greeting, answer);
        let (_dir, serving) = serve(&format!("broker = \"{scheme}://fanin:{PASSWORD}@127.0.0.1:{port}\""));
        let line = serving.logged("no events from and to other instances");
        assert!(line.contains(&format!("{scheme}://127.0.0.1:{port}")), "{line}");
        assert!(!line.contains(PASSWORD), "{line}");
        let mut client = Client::open(&serving, "news");
        publish(&serving, "news", "1");
        assert_eq!(client.data(), "1");
        // It goes on trying, and ends as asked.
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0));
    }
}

fn messages_are_wrong(kind: &str) {
    let broker = Server::broker(kind, &[]);
    let (_dir, serving) = serve(&keys(&broker));
    serving.logged(WHOLE);
    let mut client = Client::open(&serving, "news");
    publish_raw(&broker, &[message(10, "goal", b"1")]);
    assert_eq!(client.event(), "event: goal\ndata: 1\n\n");
    let mut wrong = vec![b"".to_vec(), b"nonsense".to_vec(), vec![0; 200_000], b"F\x01\x00".to_vec()];
    wrong.push(message(10, "repeated", b"1"));
    wrong.push(message(11, "lost", b"1"));
    wrong.push(message(12, "a\nb", b"1"));
    wrong.push(message(13, "", b"{\"broken\": "));
    wrong.push(message(14, "", b"\"\xff\""));
    wrong.push(message(15, "", format!("\"{}\"", "x".repeat(65 << 10)).as_bytes()));
    publish_raw(&broker, &wrong);
    publish_raw(&broker, &[message(16, "", b"2")]);
    assert_eq!(client.data(), "2");
    assert_eq!((metric(&serving, "invalid_total"), metric(&serving, "received_total")), (wrong.len() as u64, 2));
    // One is missing: the client hears of it before the next.
    publish_raw(&broker, &[message(18, "", b"3")]);
    assert_eq!(client.event(), "event: lost\ndata: {}\n\n");
    assert_eq!(client.data(), "3");
    assert_eq!(metric(&serving, "reconnects_total"), 0);
    if kind == "redis" {
        // One that is far too large is not even read.
        publish_raw(&broker, &[vec![0; 4 << 20]]);
        let line = serving.logged("no events from and to other instances");
        assert!(line.contains("it sent a message of more than"), "{line}");
        serving.logged(WHOLE);
        client.lost();
        publish_raw(&broker, &[message(19, "", b"4")]);
        assert_eq!(client.data(), "4");
    }
}

#[test]
fn messages_from_redis_are_wrong() {
    messages_are_wrong("redis");
}

#[test]
fn messages_from_nats_are_wrong() {
    messages_are_wrong("nats");
}
