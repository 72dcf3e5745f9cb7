//! Malformed and ambiguous requests over HTTP/1.1: those of `fanin_testbed::malformed`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fanin_testbed::malformed::{AFTER, requests};

use crate::common::{TestServer, eventually};

/// Statuses of all responses to these bytes, on a connection of their own that the server closes.
#[expect(clippy::disallowed_methods, reason = "the test has a thread of its own")]
fn statuses(server: &TestServer, bytes: &[u8]) -> Vec<u16> {
    let mut client = TcpStream::connect(server.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(&[bytes, AFTER].concat()).unwrap();
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).unwrap();
    let replies = String::from_utf8_lossy(&replies).into_owned();
    // Problems have the words in their text, without a number.
    replies.split("HTTP/1.1 ").skip(1).filter_map(|reply| reply.get(..3)?.parse().ok()).collect()
}

#[test]
fn malformed_requests_are_refused_or_read_in_one_way() {
    let server = TestServer::start();
    let wrong: Vec<String> = requests()
        .filter_map(|(name, bytes, expected)| {
            let seen = statuses(&server, &bytes);
            (seen != expected).then(|| format!("{name}: {seen:?} instead of {expected:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// hyper reads on while a request is in progress.
#[test]
fn a_malformed_request_behind_one_in_progress_is_refused() {
    let server = TestServer::with(|setup| setup.server.workers = 1);
    let mut client = server.connect();
    client.send_get("/limiter");
    eventually("it runs", || server.shared.begun.load(SeqCst) == 1);
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    // The only worker has read it when it answers what came later.
    (0..3).for_each(|_| assert_eq!(server.get("/hello").status, 200));
    server.shared.limiter.add_permits(1);
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.reply().status, 400);
    assert!(client.is_closed());
}
