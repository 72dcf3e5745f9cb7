//! WebSockets frame by frame: what no well-behaved client sends, clients that are slow or silent, and how connections end.
#![cfg(unix)]

mod common;

use common::websocket::{
    CLOSE, Client, PING, PONG, TEXT, admin_page, eventually, frame, member, metric, publish, serve,
};

/// What a client sends, and the code that it is closed with.
#[test]
fn frames_against_the_rules_close_with_the_right_code() {
    let (_dir, serving) = serve("", "");
    let long = vec![b'a'; 5000];
    let mut huge = vec![0x82, 0x80 | 127];
    huge.extend((1_u64 << 62).to_be_bytes());
    huge.extend([0; 4]);
    let cases: [(&str, Vec<u8>, u16); 16] = [
        ("a text", frame(TEXT, b"hello"), 1003),
        ("bytes", frame(0x82, b"hello"), 1003),
        ("an empty text", frame(TEXT, b""), 1003),
        (
            "a text in three parts, with a ping between",
            [frame(0x01, b"a"), frame(PING, b""), frame(0x00, b"b"), frame(0x80, b"c")].concat(),
            1003,
        ),
        ("a long message", frame(TEXT, &long), 1009),
        ("a long message in parts", [frame(0x01, &long[..3000]), frame(0x80, &long[..3000])].concat(), 1009),
        ("a length of 4 EiB", huge, 1009),
        ("a text that is not UTF-8", frame(TEXT, &[0xff, 0xfe]), 1007),
        ("a frame without a mask", vec![PING, 1, b'x'], 1002),
        ("a reserved bit", frame(0x80 | 0x40 | 0x01, b"x"), 1002),
        ("a reserved kind", frame(0x83, b"x"), 1002),
        ("a reserved kind of control", frame(0x8b, b"x"), 1002),
        ("a ping in parts", frame(0x09, b"x"), 1002),
        ("a long ping", frame(PING, &[0; 126]), 1002),
        ("a rest without a start", frame(0x80, b"x"), 1002),
        ("half a close code", frame(CLOSE, &[3]), 1002),
    ];
    for (what, bytes, code) in cases {
        let (mut client, _) = Client::open(&serving, "");
        client.send_bytes(&bytes);
        let mut next = client.frame();
        if next.0 == PONG {
            next = client.frame();
        }
        assert_eq!((next.0, next.1.get(..2)), (CLOSE, Some(&u16::to_be_bytes(code)[..])), "{what}: {next:?}");
        client.ended();
    }
    // Byte by byte it is the same.
    let (mut client, _) = Client::open(&serving, "");
    for byte in frame(TEXT, b"hello") {
        client.send_bytes(&[byte]);
    }
    assert_eq!(client.close().0, 1003);
    client.ended();
    // The subscribers are gone.
    eventually("nobody is left", || metric(&serving, "fanin_push_subscribers") == "0");
}

#[test]
fn pings_are_answered_and_a_close_is_too() {
    let (_dir, serving) = serve("", "");
    let (mut client, _) = Client::open(&serving, "");
    client.send(PING, b"are you there");
    assert_eq!(client.frame(), (PONG, b"are you there".to_vec()));
    client.send(PONG, b"nobody asked");
    client.send(CLOSE, &[3, 232, b'b', b'y', b'e']);
    assert_eq!(client.close(), (1000, "bye".to_owned()));
    client.ended();
    let (mut client, _) = Client::open(&serving, "");
    client.send(CLOSE, &[]);
    assert_eq!(client.frame(), (CLOSE, Vec::new()));
    client.ended();
    // One that leaves within a frame has had its 101, too.
    let (mut gone, _) = Client::open(&serving, "");
    gone.send_bytes(&frame(PING, b"half of this")[..9]);
    drop(gone);
    eventually("nobody is left", || metric(&serving, "fanin_push_subscribers") == "0");
    serving.signal("-TERM");
    let (status, access) = serving.end();
    assert_eq!(status, Some(0));
    let lines: Vec<&str> = access.lines().filter(|line| line.contains("/events")).collect();
    assert_eq!(lines.len(), 3, "{access}");
    for line in lines {
        assert!(line.contains("\"status\":101"), "{line}");
        let bytes: u64 = line
            .split("\"bytes\":")
            .nth(1)
            .and_then(|rest| rest.split([',', '}']).next())
            .expect("bytes")
            .parse()
            .expect("a number");
        assert!((30..200).contains(&bytes), "{line}");
    }
}

#[test]
fn a_client_that_answers_no_ping_is_found() {
    let (_dir, serving) = serve("", "heartbeat = \"1s\"");
    let (mut quiet, _) = Client::open(&serving, "");
    let (mut half, _) = Client::open(&serving, "");
    half.send_bytes(&frame(PING, b"half of this")[..9]);
    for client in [&mut quiet, &mut half] {
        let mut pings = 0;
        let (code, reason) = loop {
            match client.frame() {
                (PING, payload) if payload.is_empty() => pings += 1,
                (CLOSE, payload) => break (payload[..2].to_vec(), String::from_utf8(payload[2..].to_vec())),
                other => panic!("{other:?}"),
            }
        };
        assert!((2..=3).contains(&pings), "{pings}");
        assert_eq!((&code[..], reason.as_deref()), (&1008_u16.to_be_bytes()[..], Ok("pings were not answered")));
        client.ended();
    }
    // Who answers stays, also while events come.
    let (mut live, _) = Client::open(&serving, "");
    for round in 0..4 {
        publish(&serving, "news", &round.to_string());
        loop {
            match live.frame() {
                (PING, payload) => live.send(PONG, &payload),
                (TEXT, payload) if payload.ends_with(format!("\"data\":{round}}}").as_bytes()) => break,
                (TEXT, _) => {}
                other => panic!("{other:?}"),
            }
        }
        let ping = live.frame();
        assert_eq!(ping, (PING, Vec::new()));
        live.send(PONG, b"");
    }
}

#[test]
fn a_flood_of_pings_is_ended() {
    let (_dir, serving) = serve("", "");
    let (mut client, _) = Client::open(&serving, "");
    let pings = frame(PING, b"").repeat(100);
    for _ in 0..11 {
        client.send_bytes(&pings);
    }
    let mut pongs = 0;
    let close = loop {
        match client.frame() {
            (PONG, _) => pongs += 1,
            other => break other,
        }
    };
    assert_eq!((close.0, &close.1[..2]), (CLOSE, &1008_u16.to_be_bytes()[..]));
    assert!((900..=1001).contains(&pongs), "{pongs}");
}

#[test]
fn a_client_that_does_not_read_is_told_or_dropped_and_slows_nobody() {
    let (_dir, serving) = serve("", "log_events = 4");
    let (mut slow, _) = Client::open(&serving, "");
    let (mut quick, _) = Client::open(&serving, "");
    // Far more than the sockets hold.
    let text = "x".repeat(60_000);
    for round in 0..400 {
        publish(&serving, "news", &format!("{{\"round\": {round}, \"text\": \"{text}\"}}"));
        assert!(quick.text().contains(&format!("\"data\":{{\"round\": {round}, ")));
    }
    let mut events = 0;
    let told = loop {
        let message = slow.text();
        if message.contains("\"event\":\"lost\"") {
            break message;
        }
        assert!(message.contains(&format!("\"data\":{{\"round\": {events}, ")), "{}", &message[..100]);
        events += 1;
    };
    assert!(events < 399, "{events}");
    assert_eq!(slow.close(), (1013, "events are lost".to_owned()));
    slow.send(CLOSE, &1013_u16.to_be_bytes());
    slow.ended();
    // It comes back where the channel is.
    let (mut again, start) = Client::open(&serving, &format!("last-event-id={}", member(&told, "id")));
    assert!(!start.contains("lost"), "{start}");
    publish(&serving, "news", "1");
    assert!(again.text().ends_with("\"data\":1}"));
}

#[test]
fn a_client_below_the_least_rate_is_closed() {
    let (_dir, serving) =
        serve("min_read_rate = \"1MiB\"\nslow_reader_timeout = \"1s\"", "log_events = 1000\nlog_size = \"64MiB\"");
    let (_slow, _) = Client::open(&serving, "");
    let text = format!("\"{}\"", "x".repeat(60_000));
    for _ in 0..300 {
        publish(&serving, "news", &text);
    }
    eventually("it is closed", || metric(&serving, "fanin_push_subscribers") == "0");
    assert!(admin_page(&serving, "/metrics").contains("slow"), "the reason is counted");
}

#[test]
fn a_drain_tells_clients_and_closes() {
    let (_dir, serving) = serve("", "");
    let mut clients: Vec<Client> = (0..10).map(|_| Client::open(&serving, "").0).collect();
    serving.signal("-TERM");
    for (at, client) in clients.iter_mut().enumerate() {
        let last = client.text();
        assert!(last.starts_with("{\"event\":\"drain\",\"data\":{},\"retry\":"), "{last}");
        assert_eq!(client.close(), (1001, "the server ends".to_owned()));
        // Half of them do not answer; the server does not wait for those for long.
        if at % 2 == 0 {
            client.send(CLOSE, &1001_u16.to_be_bytes());
        }
        client.ended();
    }
    let (status, access) = serving.end();
    assert_eq!(status, Some(0));
    assert_eq!(access.matches("\"status\":101").count(), 10, "{access}");
}

#[test]
fn no_client_delays_a_drain() {
    let push = "log_events = 1000\nlog_size = \"64MiB\"\nmax_event = \"1MiB\"\nheartbeat = \"60s\"";
    let (_dir, serving) = serve("idle_timeout = \"3s\"", push);
    let (_full, _) = Client::open(&serving, "channels=much");
    let text = format!("\"{}\"", "x".repeat(900_000));
    for _ in 0..20 {
        publish(&serving, "much", &text);
    }
    let (mut closing, _) = Client::open(&serving, "");
    let (leaving, _) = Client::open(&serving, "");
    let (mut half, _) = Client::open(&serving, "");
    half.send_bytes(&frame(PING, b"half of this")[..9]);
    serving.signal("-TERM");
    // Its close crosses the server's: one of them is the last frame.
    closing.send(CLOSE, &1000_u16.to_be_bytes());
    drop(leaving);
    let mut next = closing.frame();
    if next.0 == TEXT {
        next = closing.frame();
    }
    assert_eq!(next.0, CLOSE, "{next:?}");
    closing.ended();
    assert!(half.text().starts_with("{\"event\":\"drain\""));
    assert_eq!(half.close().0, 1001);
    half.ended();
    // The client that reads nothing ends it by a bound of its own, not by `drain_timeout`.
    let (status, access) = serving.end();
    assert_eq!(status, Some(0));
    assert_eq!(access.matches("\"status\":101").count(), 4, "{access}");
}
