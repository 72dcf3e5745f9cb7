//! Servers that send more than one answer, or one before its request: no call gets what was not meant for it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{Server, client, raw, read_head, run, until};
use fanin_upstream::Request;
use http::Method;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

const EVIL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";

async fn good(stream: &mut TcpStream, path: &str) {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
    // A client that has found out closes.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Answers each request with its path. The first one of the first connection gets `first` instead and then `later`, 20 ms
/// afterwards.
async fn server(first: String, later: &'static str) -> Server {
    let is_first = Rc::new(Cell::new(true));
    raw(move |mut stream| {
        let (first, is_first) = (first.clone(), is_first.clone());
        async move {
            while let Some(head) = read_head(&mut stream).await {
                let path = head.split(' ').nth(1).unwrap().to_owned();
                if is_first.replace(false) {
                    let _ = stream.write_all(first.as_bytes()).await;
                    sleep(Duration::from_millis(20)).await;
                    let _ = stream.write_all(later.as_bytes()).await;
                } else {
                    good(&mut stream, &path).await;
                }
            }
        }
    })
    .await
}

#[test]
fn a_second_answer_in_the_bytes_of_the_first_is_not_used() {
    run(async {
        let head = "HTTP/1.1 200 OK\r\n";
        for (what, method, first, body) in [
            ("after a length", Method::GET, format!("{head}content-length: 2\r\n\r\nok{EVIL}"), "ok"),
            (
                "after chunks",
                Method::GET,
                format!("{head}transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{EVIL}"),
                "ok",
            ),
            ("after no body", Method::GET, format!("{head}content-length: 0\r\n\r\n{EVIL}"), ""),
            ("after 204", Method::GET, format!("HTTP/1.1 204 No Content\r\n\r\n{EVIL}"), ""),
            (
                "after 204 with a length",
                Method::GET,
                format!("HTTP/1.1 204 No Content\r\ncontent-length: 42\r\n\r\n{EVIL}"),
                "",
            ),
            ("after 304", Method::GET, format!("HTTP/1.1 304 Not Modified\r\ncontent-length: 42\r\n\r\n{EVIL}"), ""),
            ("after HEAD", Method::HEAD, format!("{head}content-length: 42\r\n\r\n{EVIL}"), ""),
            ("a part of one", Method::GET, format!("{head}content-length: 2\r\n\r\nokHTTP/1.1 200"), "ok"),
            ("a line end", Method::GET, format!("{head}content-length: 2\r\n\r\nok\r\n"), "ok"),
        ] {
            let server = server(first, "").await;
            let client = client(&server.url(), |_| ());
            let answer = client.call(Request { method, ..Request::get("/first") }).await;
            assert_eq!(answer.unwrap().body, body, "{what}");
            for path in ["/2", "/3", "/4"] {
                assert_eq!(client.get(path).await.unwrap().body, path, "{what}");
            }
            assert_eq!(server.connections(), 2, "{what}");
        }
    });
}

#[test]
fn a_second_answer_that_comes_later_is_not_used() {
    run(async {
        let server = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(), EVIL).await;
        let client = client(&server.url(), |_| ());
        assert_eq!(client.get("/first").await.unwrap().body, "ok");
        // It comes while the connection is idle, which is then closed.
        until(|| client.gauge("connections") == 0.0).await;
        for path in ["/2", "/3"] {
            assert_eq!(client.get(path).await.unwrap().body, path);
        }
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn ambiguous_framing_fails_the_call_and_ends_the_connection() {
    run(async {
        let inner = EVIL.len();
        for (what, headers, body) in [
            (
                "length and coding",
                "content-length: 5\r\ntransfer-encoding: chunked".to_owned(),
                format!("0\r\n\r\n{EVIL}"),
            ),
            (
                "coding and length",
                format!("transfer-encoding: chunked\r\ncontent-length: {inner}"),
                format!("0\r\n\r\n{EVIL}"),
            ),
            ("two lengths", format!("content-length: 0\r\ncontent-length: {inner}"), EVIL.to_owned()),
            ("a list of lengths", format!("content-length: 0, {inner}"), EVIL.to_owned()),
            ("a length with plus", "content-length: +0".to_owned(), EVIL.to_owned()),
            ("a folded length", "content-length:\r\n 0".to_owned(), EVIL.to_owned()),
            ("a folded header", "x: a\r\n b\r\ncontent-length: 0".to_owned(), EVIL.to_owned()),
            ("space before the colon", "content-length : 0".to_owned(), EVIL.to_owned()),
            ("CR in a value", "x: a\rcontent-length: 9\r\ncontent-length: 0".to_owned(), EVIL.to_owned()),
            ("NUL in a value", "x: a\0b\r\ncontent-length: 0".to_owned(), EVIL.to_owned()),
            ("an unknown coding", "transfer-encoding: xchunked\r\ncontent-length: 0".to_owned(), EVIL.to_owned()),
            ("chunked twice", "transfer-encoding: chunked, chunked".to_owned(), format!("0\r\n\r\n{EVIL}")),
            (
                "LF in a chunk extension",
                "transfer-encoding: chunked".to_owned(),
                format!("2;\nxx\r\nok\r\n0\r\n\r\n{EVIL}"),
            ),
            ("a chunk size with plus", "transfer-encoding: chunked".to_owned(), format!("+0\r\n\r\n{EVIL}")),
        ] {
            let server = server(format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n{body}"), "").await;
            // One attempt: a retry would meet the good server.
            let client = client(&server.url(), |upstream| upstream.retry = None);
            let answer = client.get("/first").await;
            assert!(answer.is_err(), "{what}: {answer:?}");
            for path in ["/2", "/3"] {
                assert_eq!(client.get(path).await.unwrap().body, path, "{what}");
            }
            assert_eq!(server.connections(), 2, "{what}");
        }
    });
}

#[test]
fn bare_line_feeds_end_lines_of_a_head_and_nothing_else() {
    run(async {
        // RFC 9112, section 2.2, allows it. There is one reading, and what follows is not used.
        let server = server(format!("HTTP/1.1 200 OK\ncontent-length: 2\n\nok{EVIL}"), "").await;
        let client = client(&server.url(), |_| ());
        assert_eq!(client.get("/first").await.unwrap().body, "ok");
        assert_eq!(client.get("/2").await.unwrap().body, "/2");
        assert_eq!(server.connections(), 2);
    });
}
