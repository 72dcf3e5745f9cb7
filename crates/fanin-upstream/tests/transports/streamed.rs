//! Answers whose body is not collected.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use fanin_upstream::{Answer, Bodies, BodySlot, CallError, ErrorKind, Request, StreamBounds, StreamedBody};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::common::{Client, Server, client, in_time, no_policies, raw, read_head, run, until};
use fanin_config::HttpVersion;
use tokio::task::spawn_local;

type Streamed = Result<(Answer, Box<StreamedBody>), CallError>;

fn into(slot: &Rc<BodySlot>) -> Bodies {
    Bodies { answer: Some(slot.clone()), ..Bodies::default() }
}

async fn stream_with(client: &Client, request: Request, bounds: StreamBounds) -> Streamed {
    let slot = BodySlot::new(bounds);
    let answer = client.upstream.stream(&client.worker, request, in_time().safe(), into(&slot)).await;
    let body = slot.take();
    assert_eq!(answer.is_ok(), body.is_some(), "a body comes with an answer and only with one");
    Ok((answer?, body.expect("a body")))
}

async fn stream(client: &Client, path: &str) -> Streamed {
    stream_with(client, Request::get(path), StreamBounds::default()).await
}

async fn next(body: &mut StreamedBody) -> Option<Result<Bytes, ErrorKind>> {
    poll_fn(|cx| body.poll_part(cx)).await
}

/// All that comes, and why it ended early.
async fn rest(body: &mut StreamedBody) -> (Vec<u8>, Option<ErrorKind>) {
    let mut all = Vec::new();
    loop {
        match next(body).await {
            Some(Ok(part)) => all.extend_from_slice(&part),
            Some(Err(kind)) => return (all, Some(kind)),
            None => return (all, None),
        }
    }
}

fn ended(client: &Client, outcome: &str) -> f64 {
    client.metric(&format!("fanin_upstream_streams_total{{upstream=\"u\",outcome=\"{outcome}\"}}"))
}

/// Answers every request on a connection with these bytes; with `close`, once.
async fn answering(answer: &'static [u8], close: bool) -> Server {
    raw(move |mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            stream.write_all(answer).await.unwrap();
            if close {
                return;
            }
        }
    })
    .await
}

async fn say(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

#[test]
fn parts_arrive_before_the_next_is_sent_and_the_connection_is_used_again() {
    run(async {
        let gate = Rc::new(Semaphore::new(0));
        let opened = gate.clone();
        let server = raw(move |mut stream| {
            let gate = opened.clone();
            async move {
                for framing in ["content-length: 9", "transfer-encoding: chunked"] {
                    let head = read_head(&mut stream).await.unwrap();
                    assert!(!head.contains("x-fanin-timeout-ms"), "it bounds the head only: {head}");
                    say(&mut stream, &format!("HTTP/1.1 200 OK\r\n{framing}\r\ncontent-type: a/b\r\n\r\n")).await;
                    for part in ["one", "two", "six"] {
                        gate.acquire().await.unwrap().forget();
                        let chunked = framing.contains("chunked");
                        say(&mut stream, &if chunked { format!("3\r\n{part}\r\n") } else { part.to_owned() }).await;
                    }
                    if framing.contains("chunked") {
                        say(&mut stream, "0\r\n\r\n").await;
                    }
                }
            }
        })
        .await;
        let client = client(&server.url(), |config| config.max_answer = 1);
        for (announced, framing) in [(Some(9), "length"), (None, "chunked")] {
            let (answer, mut body) = stream(&client, "/").await.unwrap();
            assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b""[..]));
            assert_eq!(answer.headers["content-type"], "a/b");
            assert_eq!(body.announced(), announced, "{framing}");
            assert_eq!(client.gauge("in_flight"), 1.0, "the permit is held until the end");
            for part in ["one", "two", "six"] {
                gate.add_permits(1);
                assert_eq!(next(&mut body).await.unwrap().unwrap(), part, "{framing}");
            }
            assert!(next(&mut body).await.is_none(), "{framing}");
            assert!(next(&mut body).await.is_none(), "also when it is polled again");
            assert_eq!(client.gauge("in_flight"), 0.0);
        }
        assert_eq!(server.connections(), 1);
        assert_eq!((ended(&client, "complete"), client.calls("2xx")), (2.0, 2.0));
        assert_eq!(client.metric("fanin_upstream_stream_bytes_total{upstream=\"u\"}"), 18.0);
    });
}

#[test]
fn a_reader_that_does_not_read_stops_the_upstream_and_one_that_leaves_closes_the_connection() {
    run(async {
        let (sent, closed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let seen = (sent.clone(), closed.clone());
        let server = raw(move |mut stream| {
            let (sent, closed) = seen.clone();
            async move {
                read_head(&mut stream).await.unwrap();
                say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n").await;
                let part = vec![7; 64 << 10];
                while stream.write_all(&part).await.is_ok() {
                    sent.set(sent.get() + part.len());
                }
                closed.set(true);
            }
        })
        .await;
        let client = client(&server.url(), |_| ());
        let (_, mut body) = stream(&client, "/").await.unwrap();
        next(&mut body).await.unwrap().unwrap();
        let mut last = 0;
        until(|| std::mem::replace(&mut last, sent.get()) == sent.get() && last > 0).await;
        assert!(sent.get() < 16 << 20, "{} bytes are in the kernel's buffers", sent.get());
        // Goes on when the reader does.
        while body.taken() < 32 << 20 {
            next(&mut body).await.unwrap().unwrap();
        }
        assert!(!closed.get());
        drop(body);
        until(|| closed.get()).await;
        until(|| client.gauge("connections") == 0.0).await;
        assert_eq!((client.gauge("in_flight"), ended(&client, "cancelled")), (0.0, 1.0));
    });
}

#[test]
fn an_upstream_that_breaks_off_is_seen_and_counts_against_it() {
    run(async {
        let cases: [(&[u8], &[u8]); 5] = [
            (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello", b"hello"),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", b"hello"),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", b"hel"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", b""),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b""),
        ];
        for (answer, came) in cases {
            let server = answering(answer, true).await;
            let client = client(&server.url(), |config| {
                config.breaker = Some(fanin_config::Breaker { calls: 1, share: 0.5, ..Default::default() });
            });
            let (_, mut body) = stream(&client, "/").await.unwrap();
            assert_eq!(rest(&mut body).await, (came.to_vec(), Some(ErrorKind::Protocol)), "{}", answer.escape_ascii());
            assert!(next(&mut body).await.is_none(), "it has ended");
            assert_eq!((ended(&client, "protocol"), client.gauge("in_flight")), (1.0, 0.0));
            assert_eq!(client.gauge("breaker"), 1.0, "the breaker has opened");
            let error = stream(&client, "/").await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Breaker, "{error}");
        }
    });
}

#[test]
fn an_invalid_chunk_breaks_the_body() {
    run(async {
        let server = raw(|mut stream| async move {
            read_head(&mut stream).await.unwrap();
            say(&mut stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            say(&mut stream, "x\r\nwrong").await;
            std::future::pending().await
        })
        .await;
        let client = client(&server.url(), no_policies);
        let (_, mut body) = stream(&client, "/").await.unwrap();
        assert_eq!(rest(&mut body).await, (b"hello".to_vec(), Some(ErrorKind::Protocol)));
    });
}

#[test]
fn a_body_that_is_too_large_fails_the_call_or_breaks_off() {
    run(async {
        let server = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789", false).await;
        let small = client(&server.url(), |config| config.max_stream = 9);
        let error = stream(&small, "/").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        assert_eq!(small.gauge("in_flight"), 0.0);
        let own = StreamBounds { max: Some(10), ..StreamBounds::default() };
        let (_, mut body) = stream_with(&small, Request::get("/"), own).await.unwrap();
        assert_eq!(rest(&mut body).await, (b"0123456789".to_vec(), None));

        let server = raw(|mut stream| async move {
            read_head(&mut stream).await.unwrap();
            say(&mut stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            while stream.write_all(b"4\r\nabcd\r\n").await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let client = client(&server.url(), |config| config.max_stream = 1000);
        let (_, mut body) = stream(&client, "/").await.unwrap();
        let (all, why) = rest(&mut body).await;
        assert!(all.len() <= 1000, "{}", all.len());
        assert_eq!(why, Some(ErrorKind::TooLarge));
        assert_eq!(ended(&client, "too_large"), 1.0);
        until(|| client.gauge("connections") == 0.0).await;
    });
}

#[test]
fn a_silent_upstream_ends_a_body_and_a_slow_reader_does_not() {
    run(async {
        let server = raw(|mut stream| async move {
            read_head(&mut stream).await.unwrap();
            say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            say(&mut stream, "def").await;
            std::future::pending().await
        })
        .await;
        let client = client(&server.url(), |config| config.stream_idle_timeout = Duration::from_millis(50));
        let (_, mut body) = stream(&client, "/").await.unwrap();
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "abc");
        // Far longer than the timeout, in which the next part has come.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "def");
        assert_eq!(rest(&mut body).await, (Vec::new(), Some(ErrorKind::Timeout)));
        assert_eq!((ended(&client, "timeout"), client.gauge("in_flight")), (1.0, 0.0));

        let whole = StreamBounds { timeout: Some(Duration::from_millis(50)), ..StreamBounds::default() };
        let (_, mut body) = stream_with(&client, Request::get("/"), whole).await.unwrap();
        assert_eq!(rest(&mut body).await.1, Some(ErrorKind::Timeout));
    });
}

#[test]
fn a_body_ends_with_its_connection_if_its_length_is_unknown() {
    run(async {
        let server = answering(b"HTTP/1.1 200 OK\r\n\r\nall of it", true).await;
        let client = client(&server.url(), |_| ());
        let (_, mut body) = stream(&client, "/").await.unwrap();
        assert_eq!(body.announced(), None);
        assert_eq!(rest(&mut body).await, (b"all of it".to_vec(), None));
    });
}

#[test]
fn answers_without_a_body_and_compressed_ones_pass_as_they_are() {
    run(async {
        let server = raw(|mut stream| async move {
            while let Some(head) = read_head(&mut stream).await {
                let answer = match head.split(' ').nth(1).unwrap() {
                    "/head" => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
                    "/unchanged" => "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n",
                    "/part" => {
                        "HTTP/1.1 206 Partial Content\r\ncontent-length: 2\r\ncontent-range: bytes 1-2/9\r\n\r\nbc"
                    }
                    "/none" => "HTTP/1.1 416 Range Not Satisfiable\r\ncontent-length: 0\r\n\r\n",
                    _ => "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\nnot gzip!",
                };
                say(&mut stream, answer).await;
            }
        })
        .await;
        let client = client(&server.url(), |_| ());
        for (path, status, expected) in [
            ("/head", 200, &b""[..]),
            ("/unchanged", 304, b""),
            ("/part", 206, b"bc"),
            ("/none", 416, b""),
            ("/gzip", 200, b"not gzip!"),
        ] {
            let mut request = Request::get(path);
            if path == "/head" {
                request.method = http::Method::HEAD;
            }
            let (answer, mut body) = stream_with(&client, request, StreamBounds::default()).await.unwrap();
            assert_eq!((answer.status.as_u16(), rest(&mut body).await), (status, (expected.to_vec(), None)), "{path}");
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_failed_attempt_is_repeated_and_leaves_no_body() {
    run(async {
        let server = raw(|mut stream| async move {
            let mut first = true;
            while read_head(&mut stream).await.is_some() {
                let (status, body) = if std::mem::take(&mut first) { (503, "busy") } else { (200, "done") };
                say(&mut stream, &format!("HTTP/1.1 {status} x\r\ncontent-length: 4\r\n\r\n{body}")).await;
            }
        })
        .await;
        let client = client(&server.url(), |_| ());
        let (answer, mut body) = stream(&client, "/").await.unwrap();
        assert_eq!((answer.status.as_u16(), rest(&mut body).await.0), (200, b"done".to_vec()));
        assert_eq!(client.gauge("in_flight"), 0.0);
        assert_eq!(client.metric("fanin_upstream_retries_total{upstream=\"u\"}"), 1.0);
    });
}

#[test]
fn limits_of_upstream_and_operation_are_held_until_the_end() {
    run(async {
        let server = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", false).await;
        let client = client(&server.url(), |config| {
            let mut operation = fanin_config::Operation::new("/big");
            (operation.limit, operation.max_waiting) = (Some(1), Some(0));
            config.operations.insert("big".to_owned(), operation);
        });
        let call = async || {
            let slot = BodySlot::new(StreamBounds::default());
            let context = fanin_upstream::CallContext { operation: Some(0), ..in_time().safe() };
            let answer = client.upstream.stream(&client.worker, Request::get("/big"), context, into(&slot)).await;
            answer.map(|_| slot.take().expect("a body"))
        };
        let mut first = call().await.unwrap();
        assert_eq!(call().await.unwrap_err().kind, ErrorKind::Limit);
        assert_eq!(rest(&mut first).await.0, b"hello");
        drop(call().await.unwrap());
        drop(call().await.unwrap());
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}

/// An HTTP/2 server. `answer` gets each request.
async fn serve2<A: Future<Output = ()> + 'static>(
    answer: impl Fn(String, h2::server::SendResponse<Bytes>) -> A + Clone + 'static,
) -> Server {
    raw(move |stream| {
        let answer = answer.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, respond))) = connection.accept().await {
                spawn_local(answer(request.uri().path().to_owned(), respond));
            }
        }
    })
    .await
}

fn client2(server: &Server, change: impl FnOnce(&mut fanin_config::Upstream)) -> Client {
    client(&server.url(), |config| {
        config.http = HttpVersion::Http2;
        change(config);
    })
}

/// Sends as much as the reader takes. Whether it took all.
async fn send_all(stream: &mut h2::SendStream<Bytes>, bytes: usize, sent: &Cell<usize>) -> bool {
    let mut left = bytes;
    while left > 0 {
        stream.reserve_capacity(left.min(64 << 10));
        let Some(Ok(room)) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return false };
        let part = vec![7; room.min(left)];
        left -= part.len();
        sent.set(sent.get() + part.len());
        if stream.send_data(part.into(), left == 0).is_err() {
            return false;
        }
    }
    true
}

fn head(headers: &[(&str, &str)]) -> http::Response<()> {
    let mut response = http::Response::builder();
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap()
}

#[test]
fn http2_parts_arrive_before_the_next_is_sent() {
    run(async {
        let gate = Rc::new(Semaphore::new(0));
        let opened = gate.clone();
        let server = serve2(move |_, mut respond| {
            let gate = opened.clone();
            async move {
                let mut stream = respond.send_response(head(&[("content-type", "text/event-stream")]), false).unwrap();
                for part in ["one", "two", "six"] {
                    gate.acquire().await.unwrap().forget();
                    stream.send_data(part.into(), part == "six").unwrap();
                }
            }
        })
        .await;
        let client = client2(&server, |config| config.max_answer = 1);
        let (answer, mut body) = stream(&client, "/").await.unwrap();
        assert_eq!(answer.headers["content-type"], "text/event-stream");
        assert_eq!((body.announced(), client.gauge("in_flight")), (None, 1.0));
        for part in ["one", "two", "six"] {
            gate.add_permits(1);
            assert_eq!(next(&mut body).await.unwrap().unwrap(), part);
        }
        assert!(next(&mut body).await.is_none());
        assert_eq!((client.gauge("in_flight"), ended(&client, "complete")), (0.0, 1.0));
    });
}

#[test]
fn http2_readers_that_do_not_read_stop_only_their_own_streams() {
    run(async {
        let (sent, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let seen = (sent.clone(), ends.clone());
        let server = serve2(move |path, mut respond| {
            let (sent, ends) = seen.clone();
            async move {
                let mut stream = respond.send_response(head(&[]), false).unwrap();
                if path == "/small" {
                    stream.send_data("small".into(), true).unwrap();
                } else if !send_all(&mut stream, usize::MAX, &sent).await {
                    ends.set(ends.get() + 1);
                }
            }
        })
        .await;
        let client = client2(&server, |config| config.max_connections = 1);
        let mut bodies = Vec::new();
        // Together they fill what would be the connection's window without them.
        for _ in 0..20 {
            bodies.push(stream(&client, "/endless").await.unwrap().1);
        }
        let mut last = 0;
        for _ in 0..3 {
            until(|| std::mem::replace(&mut last, sent.get()) == sent.get() && last > 0).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(sent.get() <= 20 << 20, "{} bytes for 20 windows", sent.get());
        assert_eq!(client.get("/small").await.unwrap().body, "small", "on the same connection");
        while bodies[0].taken() < 4 << 20 {
            next(&mut bodies[0]).await.unwrap().unwrap();
        }
        bodies.clear();
        until(|| ends.get() == 20).await;
        assert_eq!(client.get("/small").await.unwrap().body, "small");
        assert_eq!((server.connections(), client.gauge("in_flight"), ended(&client, "cancelled")), (1, 0.0, 20.0));
    });
}

#[test]
fn http2_streams_that_break_off_are_seen() {
    run(async {
        let server = serve2(|path, mut respond| async move {
            let length = if path == "/large" { "2000" } else { "10" };
            let mut stream = respond.send_response(head(&[("content-length", length)]), false).unwrap();
            stream.send_data("hello".into(), path == "/short").unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            match path.as_str() {
                "/reset" => stream.send_reset(h2::Reason::INTERNAL_ERROR),
                "/trailers" => stream.send_trailers(http::HeaderMap::new()).unwrap(),
                _ => std::future::pending().await,
            }
        })
        .await;
        let client = client2(&server, |config| {
            no_policies(config);
            config.max_stream = 1000;
            config.stream_idle_timeout = Duration::from_millis(200);
        });
        for (path, kind) in
            [("/reset", ErrorKind::Protocol), ("/trailers", ErrorKind::Protocol), ("/silent", ErrorKind::Timeout)]
        {
            let (_, mut body) = stream(&client, path).await.unwrap();
            assert_eq!(rest(&mut body).await, (b"hello".to_vec(), Some(kind)), "{path}");
        }
        assert_eq!(stream(&client, "/large").await.unwrap_err().kind, ErrorKind::TooLarge);
        // The library itself sees that the announced length does not come.
        let short = match stream(&client, "/short").await {
            Ok((_, mut body)) => rest(&mut body).await.1,
            Err(error) => Some(error.kind),
        };
        assert_eq!(short, Some(ErrorKind::Protocol));
        assert_eq!(client.gauge("in_flight"), 0.0);
    });
}
