//! Channels over WebSocket: handshakes, events, and how clients come back.
#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};

use common::websocket::{ACCEPT, Client, KEY, PING, eventually, frame, member, publish, serve};

#[test]
fn the_flow_decides_about_the_handshake() {
    let (_dir, serving) = serve("", "");
    let valid = Client::valid();
    let (mut client, head) = Client::ask(
        &serving,
        "/events?token=sesame",
        &format!("{valid}sec-websocket-protocol: other, fanin.events.v1\r\norigin: http://localhost:8080\r\n"),
    );
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    for line in [
        "upgrade: websocket".to_owned(),
        "connection: upgrade".to_owned(),
        format!("sec-websocket-accept: {ACCEPT}"),
        "sec-websocket-protocol: fanin.events.v1".to_owned(),
        "x-mine: 1".to_owned(),
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    for name in ["content-type", "content-length", "transfer-encoding", "cache-control"] {
        assert!(!head.contains(name), "{name}: {head}");
    }
    client.text();
    let id = publish(&serving, "news?event=goal", "{\"a\":\n1}");
    assert_eq!(client.text(), format!("{{\"id\":\"{id}\",\"event\":\"goal\",\"data\":{{\"a\":\n1}}}}"));

    let (_, refused) = Client::ask(&serving, "/events?token=wrong", &valid);
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("application/problem+json"), "{refused}");
    let (_, plain) = Client::ask(&serving, "/events?token=sesame&plain=1", &valid);
    assert!(plain.starts_with("HTTP/1.1 200") && plain.contains("content-type: application/json"), "{plain}");
    // What was not offered is not chosen.
    let (_, other) =
        Client::ask(&serving, "/events?token=sesame", &format!("{valid}sec-websocket-protocol: other\r\n"));
    assert!(other.starts_with("HTTP/1.1 101") && !other.contains("sec-websocket-protocol"), "{other}");
    // The same route answers others as before, also those that name another protocol.
    let (_, events) = Client::ask(&serving, "/events?token=sesame", "");
    assert!(events.starts_with("HTTP/1.1 426") && events.contains("sec-websocket-version: 13\r\n"), "{events}");
    let mut h2c = serving.connect();
    write!(h2c, "GET /events?token=sesame HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        .expect("sent");
    let mut start = [0; 15];
    h2c.read_exact(&mut start).expect("a head");
    assert_eq!(&start, b"HTTP/1.1 200 OK");
}

#[test]
fn a_handshake_is_refused_with_its_reason() {
    let (_dir, serving) = serve("", "");
    let valid = Client::valid();
    let key = |key: &str| format!("sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n");
    for (headers, status) in [
        (format!("sec-websocket-version: 8\r\nsec-websocket-key: {KEY}\r\n"), 426),
        (format!("sec-websocket-version: 13, 8\r\nsec-websocket-key: {KEY}\r\n"), 426),
        ("sec-websocket-version: 13\r\n".to_owned(), 400),
        (key("AAAA"), 400),
        (key("not base 64 at all, no!!"), 400),
        (format!("{valid}sec-websocket-key: {KEY}\r\n"), 400),
        (format!("{valid}origin: https://evil.example\r\n"), 403),
        (format!("{valid}origin: http://localhost\r\n"), 403),
        (format!("{valid}origin: http://localhost:8080.evil.example\r\n"), 403),
        (format!("{valid}origin: null\r\n"), 403),
        (format!("{valid}origin: http://localhost:8080\r\norigin: http://localhost:8080\r\n"), 403),
        (format!("{valid}origin: http://localhost:8080\r\n"), 101),
        (format!("{valid}origin: https://LOCALHOST:8080\r\n"), 101),
        (format!("{valid}origin: https://shop.example\r\n"), 101),
        (valid.clone(), 101),
    ] {
        let (_, head) = Client::ask(&serving, "/events?token=sesame", &headers);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}{head}");
    }
    let (_, head) = Client::ask(&serving, "/open?token=sesame", &format!("{valid}origin: https://any.example\r\n"));
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    // What is sent before the switch is in no protocol yet.
    let mut early = serving.connect();
    let request = format!(
        "GET /events?token=sesame HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n{valid}\r\n"
    );
    early.write_all(&[request.as_bytes(), &frame(PING, b"x")].concat()).expect("sent");
    let mut answer = String::new();
    early.read_to_string(&mut answer).expect("no reset");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn an_event_reaches_all_clients_on_all_workers_by_either_protocol() {
    let (_dir, serving) = serve("", "");
    // More than the route's limit of 8, and later for longer than its timeout.
    let mut clients: Vec<Client> = (0..30).map(|_| Client::open(&serving, "").0).collect();
    let mut stream = serving.connect();
    write!(stream, "GET /events?token=sesame HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("retry: ") {
        line.clear();
        assert!(stream.read_line(&mut line).expect("a line") > 0);
    }
    for round in 0..3 {
        let id = publish(&serving, "news", &round.to_string());
        for client in &mut clients {
            assert_eq!(client.text(), format!("{{\"id\":\"{id}\",\"data\":{round}}}"));
        }
        while !line.starts_with("data: ") {
            line.clear();
            assert!(stream.read_line(&mut line).expect("a line") > 0);
        }
        assert_eq!(line, format!("data: {round}\n"));
        line.clear();
    }
    // A long event, and several channels, whose ids have a place each.
    let (mut several, _) = Client::open(&serving, "channels=a,b");
    let long = format!("\"{}\"", "ü".repeat(30_000));
    publish(&serving, "b?event=long", &long);
    let message = several.text();
    assert!(message.ends_with(&format!(",\"event\":\"long\",\"data\":{long}}}")), "{}", &message[..100]);
    assert!(member(&message, "id").contains('.'));
}

#[test]
fn a_client_comes_back_by_the_query() {
    let (_dir, serving) = serve("", "log_events = 2");
    let (client, first) = Client::open(&serving, "");
    drop(client);
    publish(&serving, "news", "1");
    publish(&serving, "news", "2");
    let again = format!("last-event-id={}", member(&first, "id"));
    let (mut client, _) = Client::open(&serving, &again);
    assert!(client.text().ends_with("\"data\":1}"));
    let two = client.text();
    assert!(two.ends_with("\"data\":2}"));
    // The id of an event over WebSocket is that of the same event in a stream.
    publish(&serving, "news", "3");
    let (mut later, _) = Client::open(&serving, &format!("last-event-id={}", member(&two, "id")));
    assert!(later.text().ends_with("\"data\":3}"));
    let (_, head) = Client::ask(&serving, &format!("/events?token=sesame&{again}"), &Client::valid());
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let (_, lost) = Client::open(&serving, &again);
    assert!(lost.ends_with("\"event\":\"lost\",\"data\":{},\"retry\":2000}"), "{lost}");
}

#[test]
fn limits_refuse_handshakes_and_who_leaves_makes_room() {
    let (_dir, serving) = serve("max_connections = 40", "max_subscribers = 2");
    let (first, _) = Client::open(&serving, "");
    let (_second, _) = Client::open(&serving, "");
    let ask = || Client::ask(&serving, "/events?token=sesame", &Client::valid());
    let (_, head) = ask();
    assert!(head.starts_with("HTTP/1.1 503") && head.contains("retry-after: "), "{head}");
    drop(first);
    eventually("there is room", || ask().1.starts_with("HTTP/1.1 101"));
}
