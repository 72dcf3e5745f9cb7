//! Requests and answers over HTTP/1.1.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};

use crate::common::{Version, client, raw, read_head, run, serve, text, until};
use bytes::Bytes;
use fanin_upstream::{ErrorKind, Fault, Request};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;

#[test]
fn connections_are_kept_and_used_again() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let client = client(&server.url(), |_| ());
        for _ in 0..20 {
            assert_eq!(client.get("/").await.unwrap().body, "hello");
        }
        assert_eq!((server.requests(), server.connections()), (20, 1));
        assert_eq!(client.calls("2xx"), 20.0);
        assert_eq!(client.gauge("connections"), 1.0);
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}

#[test]
fn a_call_dropped_before_it_is_sent_sends_nothing_and_leaves_its_connection() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let client = client(&server.url(), |_| ());
        client.get("/").await.unwrap();
        // The call has the connection and is in the write batch; then its request ends.
        let mut call = Box::pin(client.get("/dropped"));
        assert!(futures_util::poll!(&mut call).is_pending());
        drop(call);
        assert_eq!(client.get("/").await.unwrap().body, "hello");
        assert_eq!((server.requests(), server.connections()), (2, 1));
    });
}

#[test]
fn the_last_task_that_polled_a_call_is_woken() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let client = client(&server.url(), |_| ());
        client.get("/").await.unwrap();
        let mut call = Box::pin(client.get("/"));
        // As in a flow whose second call starts before the first has been sent.
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(call.await.unwrap().body, "hello");
    });
}

#[test]
fn a_request_arrives_unchanged() {
    run(async {
        let server = serve(Version::One, |request| async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            text(format!("{} {} {:?} {}", head.method, head.uri, head.headers, String::from_utf8_lossy(&body)))
        })
        .await;
        let client = client(&format!("{}/base/", server.url()), |config| {
            config.headers.insert("x-key", HeaderValue::from_static("ours"));
        });
        let mut headers = HeaderMap::new();
        headers.append("x-many", HeaderValue::from_static("1"));
        headers.append("x-many", HeaderValue::from_static("2"));
        headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
        headers.insert("content-length", HeaderValue::from_static("1"));
        headers.insert("host", HeaderValue::from_static("evil"));
        let request =
            Request { method: Method::POST, path_and_query: "/a%2Fb?q=%C3%BC".into(), headers, body: "body".into() };
        let answer = client.call(request).await.unwrap();
        let seen = std::str::from_utf8(&answer.body).unwrap();
        assert!(seen.starts_with("POST /base/a%2Fb?q=%C3%BC "), "{seen}");
        assert!(seen.ends_with(" body"), "{seen}");
        for header in [
            format!("\"host\": \"{}\"", server.address),
            "\"x-key\": \"ours\"".into(),
            "\"x-many\": \"1\", \"x-many\": \"2\"".into(),
            "\"content-length\": \"4\"".into(),
            "\"x-fanin-timeout-ms\": \"1".into(),
        ] {
            assert!(seen.contains(&header), "{header} in {seen}");
        }
        assert!(!seen.contains("chunked") && !seen.contains("evil"), "{seen}");
    });
}

#[test]
fn any_status_is_an_answer_and_redirects_are_not_followed() {
    run(async {
        let server = serve(Version::One, |request| async move {
            let status: u16 = request.uri().path()[1..].parse().unwrap();
            let mut response = text(if status == 204 { "" } else { "body" });
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert("location", HeaderValue::from_static("/200"));
            response.headers_mut().insert("keep-alive", HeaderValue::from_static("timeout=5"));
            response
        })
        .await;
        let client = client(&server.url(), |_| ());
        for status in [200, 204, 302, 404, 500, 503] {
            let answer = client.get(&format!("/{status}")).await.unwrap();
            assert_eq!(answer.status.as_u16(), status);
            assert_eq!(answer.headers["location"], "/200");
            assert!(!answer.headers.contains_key("keep-alive"), "{:?}", answer.headers);
        }
        let head = client.call(Request { method: Method::HEAD, ..Request::get("/200") }).await.unwrap();
        assert_eq!((head.status, head.body), (StatusCode::OK, Bytes::new()));
        assert_eq!(client.calls("5xx"), 2.0);
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn nothing_that_cannot_be_sent_is_sent() {
    run(async {
        let server = serve(Version::One, |_| async { text("") }).await;
        let client = client(&server.url(), |_| ());
        for path in ["no-slash", "http://else.where/", "/a b", "/a\r\nx: y", ""] {
            let error = client.get(path).await.unwrap_err();
            assert_eq!(
                (error.kind, error.fault, error.retry),
                (ErrorKind::Protocol, Fault::Us, false),
                "{path:?}: {error}"
            );
        }
        assert_eq!(server.requests(), 0);
    });
}

#[test]
fn a_dead_endpoint_refuses_every_call_that_waits() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let client = client(&url, |_| ());
        let calls = (0..200).map(|_| client.get("/"));
        for result in futures_util::future::join_all(calls).await {
            let error = result.unwrap_err();
            assert_eq!((error.kind, error.fault, error.retry), (ErrorKind::Refused, Fault::Upstream, true));
            assert!(error.to_string().starts_with("upstream u: refused after "), "{error}");
        }
        assert_eq!(client.gauge("in_flight"), 0.0);
        until(|| client.gauge("connections") + client.gauge("connecting") == 0.0).await;
    });
}

/// Answers each request on a connection with the same bytes, and then closes if `close` is set.
async fn always(bytes: &'static [u8], close: bool) -> crate::common::Server {
    raw(move |mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            stream.write_all(bytes).await.unwrap();
            if close {
                return;
            }
        }
    })
    .await
}

#[test]
fn half_a_body_is_an_error_that_names_the_upstream() {
    run(async {
        for (bytes, detail) in [
            (&b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf!"[..], "broke off after 5 of 10 bytes"),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf!\r\n", "broke off after 5 bytes"),
        ] {
            let server = always(bytes, true).await;
            let client = client(&server.url(), |_| ());
            let error = client.get("/").await.unwrap_err();
            assert_eq!((error.kind, error.fault), (ErrorKind::Protocol, Fault::Upstream), "{error}");
            assert!(error.to_string().contains("upstream u: protocol") && error.detail.contains(detail), "{error}");
        }
    });
}

#[test]
fn an_answer_without_http_is_an_error() {
    run(async {
        for bytes in [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], b"", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"] {
            let server = always(bytes, true).await;
            let client = client(&server.url(), |_| ());
            let error = client.get("/").await.unwrap_err();
            assert_eq!((error.kind, error.fault), (ErrorKind::Protocol, Fault::Upstream), "{bytes:?}: {error}");
        }
    });
}

#[test]
fn a_huge_answer_is_not_read() {
    run(async {
        let announced = always(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", false).await;
        let client_of = |url: &str| client(url, |config| config.max_answer = 1 << 20);
        let client = client_of(&announced.url());
        let error = client.get("/").await.unwrap_err();
        assert_eq!((error.kind, error.retry), (ErrorKind::TooLarge, false), "{error}");

        let sent = Rc::new(RefCell::new(0usize));
        let counted = sent.clone();
        let endless = raw(move |mut stream| {
            let counted = counted.clone();
            async move {
                read_head(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
                let chunk = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
                while stream.write_all(&chunk).await.is_ok() {
                    *counted.borrow_mut() += chunk.len();
                }
                *counted.borrow_mut() |= 1 << 40;
            }
        })
        .await;
        let client = client_of(&endless.url());
        assert_eq!(client.get("/").await.unwrap_err().kind, ErrorKind::TooLarge);
        until(|| *sent.borrow() >= 1 << 40).await;
        assert!(*sent.borrow() - (1 << 40) < 64 << 20, "the connection is closed");
        until(|| client.gauge("connections") == 0.0).await;
    });
}

#[test]
fn a_large_answer_is_complete() {
    run(async {
        let body: Vec<u8> = (0..3_000_000u32).map(|at| at as u8).collect();
        let sent = Bytes::from(body);
        let expected = sent.clone();
        let server = serve(Version::One, move |_| std::future::ready(text(sent.clone()))).await;
        let client = client(&server.url(), |_| ());
        assert_eq!(client.get("/").await.unwrap().body, expected);
        assert_eq!(client.get("/").await.unwrap().body, expected);
        assert_eq!(server.connections(), 1);
    });
}

/// Serves `first` on the first connection, once, and closes it *after* the next request has come. Later connections are
/// served normally. This is the race with a server that closes an idle connection.
async fn closes_while_idle() -> (crate::common::Server, Rc<RefCell<Vec<String>>>) {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    let count = Rc::new(RefCell::new(0));
    let server = raw(move |mut stream| {
        let log = log.clone();
        *count.borrow_mut() += 1;
        let first = *count.borrow() == 1;
        async move {
            let mut served = 0;
            while let Some(head) = read_head(&mut stream).await {
                log.borrow_mut().push(head.lines().next().unwrap().to_owned());
                if first && served == 1 {
                    return;
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                served += 1;
            }
        }
    })
    .await;
    (server, seen)
}

#[test]
fn a_safe_call_that_meets_a_closing_connection_is_sent_again() {
    run(async {
        let (server, seen) = closes_while_idle().await;
        let client = client(&server.url(), |_| ());
        client.get("/1").await.unwrap();
        assert_eq!(client.get("/2").await.unwrap().body, "ok");
        assert_eq!(*seen.borrow(), ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /2 HTTP/1.1"]);
        assert_eq!(client.metric("fanin_upstream_resent_total{upstream=\"u\"}"), 1.0);
    });
}

#[test]
fn a_call_with_effects_is_never_sent_twice() {
    run(async {
        let (server, seen) = closes_while_idle().await;
        let client = client(&server.url(), |_| ());
        client.get("/1").await.unwrap();
        let post = Request { method: Method::POST, body: "x".into(), ..Request::get("/2") };
        let error = client.call(post).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
        assert_eq!(*seen.borrow(), ["GET /1 HTTP/1.1", "POST /2 HTTP/1.1"]);
    });
}

#[test]
fn a_restart_of_the_server_costs_no_call_even_with_effects() {
    run(async {
        let server = serve(Version::One, |_| async { text("old") }).await;
        let client = client(&server.url(), |_| ());
        let calls = (0..8).map(|_| client.get("/"));
        futures_util::future::join_all(calls).await;
        assert!(server.connections() > 1);
        let address = server.address;
        drop(server);
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        until(|| socket.bind(address).is_ok()).await;
        let server = crate::common::serve_on(socket.listen(64).unwrap(), Version::One, |_| async { text("new") });
        // The old connections are known to be closed, so they must not be used.
        until(|| client.gauge("connections") == 0.0).await;
        for _ in 0..8 {
            let post = Request { method: Method::POST, ..Request::get("/") };
            assert_eq!(client.call(post).await.unwrap().body, "new");
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_connection_with_close_is_not_reused() {
    run(async {
        let server = serve(Version::One, |_| async {
            let mut response = text("bye");
            response.headers_mut().insert("connection", HeaderValue::from_static("close"));
            response
        })
        .await;
        let client = client(&server.url(), |_| ());
        for _ in 0..3 {
            let answer = client.get("/").await.unwrap();
            assert_eq!(answer.body, "bye");
            assert!(!answer.headers.contains_key("connection"));
        }
        assert_eq!(server.connections(), 3);
    });
}

#[test]
fn an_unused_connection_is_closed_after_the_idle_timeout() {
    run(async {
        let server = serve(Version::One, |_| async { text("hello") }).await;
        let client = client(&server.url(), |config| config.idle_timeout = std::time::Duration::from_millis(50));
        client.get("/").await.unwrap();
        assert_eq!(client.gauge("connections"), 1.0);
        until(|| client.gauge("connections") == 0.0).await;
        client.get("/").await.unwrap();
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn the_header_of_remaining_time_has_the_configured_name_or_is_not_sent() {
    run(async {
        let server = serve(Version::One, |request| async move { text(format!("{:?}", request.headers())) }).await;
        let named = client(&server.url(), |config| {
            config.timeout_header = Some(HeaderName::from_static("x-left"));
        });
        let seen = named.get("/").await.unwrap().body;
        let seen = std::str::from_utf8(&seen).unwrap();
        let left = seen.split("\"x-left\": \"").nth(1).unwrap().split('"').next().unwrap();
        assert!((1..=20_000).contains(&left.parse::<u64>().unwrap()), "{seen}");
        let silent = client(&server.url(), |config| config.timeout_header = None);
        assert_eq!(silent.get("/").await.unwrap().body, format!("{{\"host\": \"{}\"}}", server.address));
    });
}

#[test]
fn a_part_is_known_to_be_unrequested() {
    run(async {
        let server = serve(Version::One, |request| async move {
            let status: u16 = request.uri().path()[1..].parse().unwrap();
            let mut response = text("part");
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        })
        .await;
        let plain = client(&server.url(), |_| ());
        let ranged = client(&server.url(), |config| {
            config.headers.insert("range", HeaderValue::from_static("bytes=0-3"));
        });
        let mut request = Request::get("/206");
        request.headers.insert("range", HeaderValue::from_static("bytes=0-3"));
        let mut found = Vec::new();
        for call in [plain.get("/200"), plain.get("/206"), ranged.get("/206")] {
            found.push(call.await.unwrap());
        }
        found.push(plain.call(request).await.unwrap());
        let found: Vec<_> = found.iter().map(|answer| (answer.unrequested_part, answer.is_success())).collect();
        assert_eq!(found, [(false, true), (true, false), (false, true), (false, true)]);
    });
}
