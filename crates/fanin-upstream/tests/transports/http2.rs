//! HTTP/2: many calls on one connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::common::{LONG, Server, Version, client, in_time, run, serve, text, until};
use bytes::Bytes;
use fanin_config::HttpVersion;
use fanin_upstream::{CallContext, ErrorKind, Request};
use futures_util::future::join_all;
use http::Method;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;

fn client2(server: &Server, change: impl FnOnce(&mut fanin_config::Upstream)) -> crate::common::Client {
    client(&server.url(), |config| {
        config.http = HttpVersion::Http2;
        config.max_connections = 4;
        change(config);
    })
}

#[test]
fn calls_share_a_connection() {
    run(async {
        let most = Rc::new(Cell::new((0, 0)));
        let count = most.clone();
        let server = serve(Version::Two, move |request| {
            let count = count.clone();
            async move {
                let (now, peak) = count.get();
                count.set((now + 1, peak.max(now + 1)));
                sleep(Duration::from_millis(5)).await;
                count.set((count.get().0 - 1, count.get().1));
                text(request.uri().path().to_owned())
            }
        })
        .await;
        let client = client2(&server, |_| ());
        let answers = join_all((0..90).map(|call| client.get(&format!("/{call}")))).await;
        for (call, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap().body, format!("/{call}"));
        }
        assert_eq!(server.connections(), 1);
        assert_eq!(most.get().1, 90);
        assert_eq!(client.gauge("connections"), 1.0);
    });
}

#[test]
fn a_request_arrives_unchanged() {
    run(async {
        let server = serve(Version::Two, |request| async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            text(format!("{} {} {:?} {}", head.method, head.uri, head.headers, body.len()))
        })
        .await;
        let client = client2(&server, |_| ());
        let mut request =
            Request { method: Method::POST, body: vec![b'x'; 3_000_000].into(), ..Request::get("/a?b=c") };
        request.headers.insert("connection", "close".parse().unwrap());
        request.headers.insert("x-one", "1".parse().unwrap());
        let answer = client.call(request).await.unwrap();
        let seen = std::str::from_utf8(&answer.body).unwrap();
        assert!(seen.starts_with(&format!("POST http://{}/a?b=c ", server.address)), "{seen}");
        assert!(seen.ends_with(" 3000000"), "{seen}");
        assert!(seen.contains("\"x-one\": \"1\"") && seen.contains("x-fanin-timeout-ms"), "{seen}");
        assert!(!seen.contains("close") && !seen.contains("\"host\""), "{seen}");
    });
}

#[test]
fn large_answers_and_heads_are_complete_and_larger_ones_are_refused() {
    run(async {
        let body: Bytes = (0..5_000_000u32).map(|at| at as u8).collect::<Vec<_>>().into();
        let sent = body.clone();
        let server = serve(Version::Two, move |request| {
            let head = request.method() == Method::HEAD;
            let mut response = text(if head { Bytes::new() } else { sent.clone() });
            response.headers_mut().insert("content-length", sent.len().into());
            std::future::ready(response)
        })
        .await;
        let whole = client2(&server, |_| ());
        let answers = join_all((0..8).map(|_| whole.get("/"))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().body == body));
        let head = whole.call(Request { method: Method::HEAD, ..Request::get("/") }).await.unwrap();
        assert!(head.body.is_empty());
        let small = client2(&server, |config| config.max_answer = 4_000_000);
        assert_eq!(small.get("/").await.unwrap_err().kind, ErrorKind::TooLarge);
        let head = small.call(Request { method: Method::HEAD, ..Request::get("/") }).await.unwrap();
        assert_eq!(head.status, 200, "the connection goes on");
    });
}

#[test]
fn more_calls_than_streams_open_further_connections_up_to_the_bound_and_then_wait() {
    run(async {
        // The server allows 200 streams a connection.
        let open = Rc::new(Cell::new(false));
        let gate = open.clone();
        let server = serve(Version::Two, move |_| {
            let gate = gate.clone();
            async move {
                until(|| gate.get()).await;
                text("late")
            }
        })
        .await;
        let client = client2(&server, |config| {
            config.max_connections = 2;
            config.limit = fanin_config::Limit::Fixed(1000);
        });
        let calls = join_all((0..500).map(|_| client.get("/")));
        tokio::pin!(calls);
        tokio::select! {
            _ = &mut calls => panic!("nothing is answered yet"),
            () = until(|| server.requests() == 400) => {}
        }
        open.set(true);
        assert!(calls.await.into_iter().all(|answer| answer.is_ok()));
        assert_eq!(server.connections(), 2);
        assert_eq!(server.requests(), 500);
    });
}

#[test]
fn a_dropped_call_ends_its_stream_and_nothing_else() {
    run(async {
        let server = serve(Version::Two, |request| async move {
            if request.uri().path() == "/slow" {
                sleep(LONG).await;
            }
            text("hello")
        })
        .await;
        let client = client2(&server, |_| ());
        client.get("/").await.unwrap();
        for _ in 0..300 {
            let short = CallContext { timeout: Some(Duration::from_millis(1)), ..in_time() };
            let error = client.upstream.call(&client.worker, Request::get("/slow"), short).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Timeout);
        }
        client.get("/").await.unwrap();
        // On a busy machine a connection may count as dead. There are never more than the allowed number.
        assert!(server.connections() <= 4);
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}

#[test]
fn a_refused_connection_and_a_peer_without_http2_are_errors() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let dead = client(&url, |config| config.http = HttpVersion::Http2);
        for error in join_all((0..20).map(|_| dead.get("/"))).await {
            assert_eq!(error.unwrap_err().kind, ErrorKind::Refused);
        }
        let one = serve(Version::One, |_| async { text("hello") }).await;
        let error = client2(&one, |_| ()).get("/").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
        assert!(error.detail.contains("HTTP/2"), "{error}");
    });
}

#[test]
fn calls_unprocessed_at_goaway_are_sent_elsewhere() {
    run(async {
        let first = Rc::new(Cell::new(true));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Rc::new(RefCell::new(Vec::new()));
        let log = served.clone();
        let server = spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (leaves, log) = (first.replace(false), log.clone());
                spawn_local(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        log.borrow_mut().push((leaves, request.uri().path().to_owned()));
                        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                        body.send_data(Bytes::from_static(b"ok"), true).unwrap();
                        if leaves {
                            connection.graceful_shutdown();
                        }
                    }
                });
            }
        });
        let client = client(&format!("http://{address}"), |config| config.http = HttpVersion::Http2);
        for call in 0..20 {
            let post = Request { method: Method::POST, ..Request::get(format!("/{call}")) };
            assert_eq!(client.call(post).await.unwrap().body, "ok");
        }
        let served = served.borrow();
        assert_eq!(served.len(), 20, "each once");
        assert!(served.iter().any(|(leaves, _)| !leaves), "{served:?}");
        server.abort();
    });
}

/// A relay that can stop forwarding without closing: a peer that vanishes.
async fn vanishing(to: std::net::SocketAddr) -> (String, Rc<Cell<bool>>, Rc<Cell<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (gone, accepted) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let (flag, count) = (gone.clone(), accepted.clone());
    spawn_local(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            count.set(count.get() + 1);
            let server = TcpStream::connect(to).await.unwrap();
            // Connections opened after the peer has vanished reach its successor.
            let flag = if flag.get() { Rc::new(Cell::new(false)) } else { flag.clone() };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let other = flag.clone();
            spawn_local(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    if !flag.get() {
                        to_server.write_all(&buffer[..read]).await.unwrap();
                    }
                }
            });
            spawn_local(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                    if !other.get() && to_client.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, gone, accepted)
}

#[test]
fn a_vanished_peer_fails_its_calls_and_no_others() {
    run(async {
        let server = serve(Version::Two, |_| async { text("hello") }).await;
        let (url, gone, accepted) = vanishing(server.address).await;
        let client = client(&url, |config| config.http = HttpVersion::Http2);
        client.get("/").await.unwrap();
        gone.set(true);
        let short = CallContext { timeout: Some(Duration::from_millis(50)), ..in_time() };
        let error = client.upstream.call(&client.worker, Request::get("/"), short).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        // The very next call succeeds, long before TCP gives up.
        assert_eq!(client.get("/").await.unwrap().body, "hello");
        assert_eq!(accepted.get(), 2);
        until(|| client.gauge("connections") == 1.0).await;
    });
}

#[test]
fn a_connection_without_calls_is_pinged_too() {
    run(async {
        let server = serve(Version::Two, |_| async { text("hello") }).await;
        let (url, gone, accepted) = vanishing(server.address).await;
        let client = client(&url, |config| {
            config.http = HttpVersion::Http2;
            config.keepalive = Duration::from_millis(20);
            config.keepalive_timeout = Duration::from_millis(200);
        });
        client.get("/").await.unwrap();
        sleep(Duration::from_millis(100)).await;
        assert_eq!(client.gauge("connections"), 1.0, "pongs keep it");
        gone.set(true);
        until(|| client.gauge("connections") == 0.0).await;
        assert_eq!(client.get("/").await.unwrap().body, "hello");
        assert_eq!(accepted.get(), 2);
    });
}
