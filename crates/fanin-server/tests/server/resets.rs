//! Clients that open HTTP/2 requests and reset them.

use std::sync::atomic::Ordering::SeqCst;

use crate::client_limits::{header, refused};
use crate::common::{Client, TestServer, eventually};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// HEADERS of a GET without a body. All fields are literal or of the static table.
fn headers(stream: u32, path: &str) -> Vec<u8> {
    let block = [&[0x82, 0x86, 0x01, 1, b'a', 0x04, path.len() as u8][..], path.as_bytes()].concat();
    [&[0, 0, block.len() as u8, 1, 5][..], &stream.to_be_bytes(), &block].concat()
}

/// The same of a client that a load balancer names.
fn headers_of(stream: u32, path: &str, client: &str) -> Vec<u8> {
    let mut frame = headers(stream, path);
    for text in ["x-forwarded-for", client] {
        frame.extend([&[text.len() as u8][..], text.as_bytes()].concat());
    }
    // A literal field begins with 0.
    let block = 9 + 7 + path.len();
    frame.insert(block, 0);
    frame[2] = (frame.len() - 9) as u8;
    frame
}

/// RST_STREAM with CANCEL.
fn reset(stream: u32) -> Vec<u8> {
    [&[0, 0, 4, 3, 0][..], &stream.to_be_bytes(), &[0, 0, 0, 8]].concat()
}

fn limited() -> TestServer {
    TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.proxy_protocol = true;
        setup.server.max_resets_per_client = Some(10);
    })
}

fn connect(server: &TestServer, client: &str) -> Client {
    let mut connection = server.connect();
    connection.send(header(client)).send(PREFACE);
    connection
}

/// Resets requests that run, until the server closes the connection. Gives how many ran.
fn flood(server: &TestServer, connection: &mut Client) -> usize {
    let before = server.shared.begun.load(SeqCst);
    for request in 0..50 {
        let (stream, begun) = (request * 2 + 1, server.shared.begun.load(SeqCst));
        if !connection.try_send(headers(stream, "/limiter")) {
            break;
        }
        eventually("it runs, or the connection is closed", || {
            server.shared.begun.load(SeqCst) > begun || refused(server, "resets") > 0.0
        });
        if refused(server, "resets") > 0.0 || !connection.try_send(reset(stream)) {
            break;
        }
        let dropped = server.shared.begun.load(SeqCst);
        eventually("it is given up", || server.shared.dropped.load(SeqCst) == dropped);
    }
    server.shared.begun.load(SeqCst) - before
}

/// The frames that the server sent until it closed: type and payload.
fn frames(connection: &mut Client) -> Vec<(u8, Vec<u8>)> {
    let (bytes, mut frames) = (connection.rest(), Vec::new());
    let mut rest = &bytes[..];
    while let Some((head, more)) = rest.split_first_chunk::<9>() {
        let (payload, behind) = more.split_at(usize::from(head[1]) << 8 | usize::from(head[2]));
        frames.push((head[3], payload.to_vec()));
        rest = behind;
    }
    frames
}

#[test]
fn a_client_that_resets_too_many_requests_is_told_to_calm_down() {
    let server = limited();
    let mut connection = connect(&server, "203.0.113.7");
    assert_eq!(flood(&server, &mut connection), 11, "ten may be reset");
    let last = frames(&mut connection).pop().unwrap();
    assert_eq!((last.0, last.1[4..].to_vec()), (7, vec![0, 0, 0, 11]), "GOAWAY, ENHANCE_YOUR_CALM");

    // Over a new connection its requests reach no application, those of others do.
    let begun = server.shared.begun.load(SeqCst);
    let mut again = connect(&server, "203.0.113.7");
    again.send(headers(1, "/limiter"));
    eventually("it is refused", || refused(&server, "resets") == 2.0);
    assert_eq!(server.shared.begun.load(SeqCst), begun);
    let mut other = connect(&server, "203.0.113.8");
    other.send(headers(1, "/limiter"));
    eventually("another client's request runs", || server.shared.begun.load(SeqCst) == begun + 1);
    let mut http1 = server.connect();
    http1.send(header("203.0.113.7"));
    assert_eq!(http1.get("/hello").status, 200, "HTTP/1.1 has no resets");
}

#[test]
fn loopback_has_the_bound_for_each_connection() {
    let server = TestServer::with(|setup| setup.server.max_resets_per_client = Some(10));
    let mut connection = server.connect();
    connection.send(PREFACE);
    assert_eq!(flood(&server, &mut connection), 11);
    let begun = server.shared.begun.load(SeqCst);
    let mut again = server.connect();
    again.send(PREFACE).send(headers(1, "/limiter"));
    eventually("it runs", || server.shared.begun.load(SeqCst) == begun + 1);
}

#[test]
fn a_trusted_load_balancer_has_no_bound_of_resets() {
    let server = TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.max_resets_per_client = Some(10);
    });
    let mut connection = server.connect();
    connection.send(PREFACE);
    assert_eq!(flood(&server, &mut connection), 50);
}

#[test]
fn behind_a_load_balancer_the_client_that_resets_is_refused_and_no_other() {
    let server = TestServer::with(|setup| {
        setup.server.trusted = vec!["127.0.0.1".parse().unwrap()];
        setup.server.forwarded_header = Some("x-forwarded-for".parse().unwrap());
        setup.server.max_resets_per_client = Some(10);
    });
    let mut connection = server.connect();
    connection.send(PREFACE);
    let (bad, good) = ("203.0.113.7", "203.0.113.8");
    for request in 0..11 {
        connection.send(headers_of(request * 2 + 1, "/limiter", bad));
        eventually("it runs", || server.shared.begun.load(SeqCst) == request as usize + 1);
        connection.send(reset(request * 2 + 1));
        eventually("it is given up", || server.shared.dropped.load(SeqCst) == request as usize + 1);
    }
    connection.send(headers_of(101, "/limiter", bad));
    eventually("it is refused", || refused(&server, "resets") == 1.0);
    connection.send(headers_of(103, "/limiter", good));
    eventually("another client's request runs on the same connection", || server.shared.begun.load(SeqCst) == 12);
}

#[test]
fn requests_that_end_with_their_connection_are_not_reset() {
    let server = limited();
    for round in 1..=3 {
        let mut connection = connect(&server, "203.0.113.7");
        for request in 0..10 {
            connection.send(headers(request * 2 + 1, "/limiter"));
        }
        eventually("they run", || server.shared.begun.load(SeqCst) == round * 10);
        drop(connection);
        eventually("they are given up", || server.shared.dropped.load(SeqCst) == round * 10);
    }
    assert_eq!(refused(&server, "resets"), 0.0);
}

#[test]
fn after_a_reset_a_request_that_is_reset_at_once_never_runs() {
    let server = TestServer::start();
    let mut connection = server.connect();
    connection.send(PREFACE).send(headers(1, "/limiter"));
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    connection.send(reset(1));
    eventually("it is given up", || server.shared.dropped.load(SeqCst) == 1);
    // Few enough that h2 itself does not close the connection.
    let pairs = (1..=15).flat_map(|request| [headers(request * 2 + 1, "/limiter"), reset(request * 2 + 1)].concat());
    connection.send(pairs.collect::<Vec<u8>>());
    connection.send(headers(101, "/limiter"));
    eventually("one that is not reset runs", || server.shared.begun.load(SeqCst) == 2);
    assert_eq!(server.shared.dropped.load(SeqCst), 1);
}
