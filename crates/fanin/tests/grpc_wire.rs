//! Routes that serve gRPC methods, byte by byte: what no well-behaved client sends, and what the server decides before a flow.
#![cfg(unix)]

mod common;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use common::{Serving, TIMEOUT};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};
use tempfile::TempDir;

const PROTO: &str = "syntax = \"proto3\";\npackage t;\n\
    service T { rpc Echo(M) returns (M); rpc Wait(M) returns (M); rpc Many(M) returns (stream M); rpc Join(stream M) returns (M); }\n\
    message M { string id = 1; }\n";

const FLOW: &str = r#"load("@upstreams", "far")

def echo(req):
    return {"id": req.body["id"]}

def wait(req):
    return {"id": far.get("/")["id"]}

def many(req):
    return [{"id": "x" * 1000} for _ in range(4000)]

def join(req):
    return {"id": ",".join([one["id"] for one in req.body])}

def plain(req):
    return {"not": "grpc"}
"#;

/// A server whose upstream takes calls and never answers.
struct Tier {
    serving: Serving,
    calls: Receiver<TcpStream>,
    _dir: TempDir,
}

impl Tier {
    fn start() -> Tier {
        Tier::with("")
    }

    /// With more keys of the section `[server]`.
    fn with(server: &str) -> Tier {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let far = listener.local_addr().expect("an address");
        let (sender, calls) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if sender.send(stream).is_err() {
                    break;
                }
            }
        });
        let dir = tempfile::tempdir().expect("a folder");
        let toml = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\naccess_log = \"off\"\nqueueing = \"off\"\n{server}\n\
             [grpc]\nproto = \"t.proto\"\n\
             [upstreams.far]\nurl = \"http://{far}\"\ntimeout = \"50s\"\nretry = \"off\"\nhedge = \"off\"\n\
             [[routes]]\ngrpc = \"t.T/Echo\"\nflow = \"t.star:echo\"\nmax_body = \"2MiB\"\ntimeout = \"30s\"\n\
             [[routes]]\ngrpc = \"t.T/Wait\"\nflow = \"t.star:wait\"\ntimeout = \"55s\"\nlimit = 1\nmax_waiting = 0\n\
             [[routes]]\ngrpc = \"t.T/Many\"\nflow = \"t.star:many\"\ntimeout = \"30s\"\n\
             [[routes]]\ngrpc = \"t.T/Join\"\nflow = \"t.star:join\"\nmax_body = \"64KiB\"\ntimeout = \"30s\"\n\
             [[routes]]\nmethod = \"POST\"\npath = \"/plain\"\nflow = \"t.star:plain\"\n"
        );
        for (name, text) in [("fanin.toml", toml.as_str()), ("t.proto", PROTO), ("t.star", FLOW)] {
            std::fs::write(dir.path().join(name), text).expect("written");
        }
        Tier { serving: Serving::start(dir.path()), calls, _dir: dir }
    }

    /// The connection of a call that a flow has made.
    async fn called(&self) -> TcpStream {
        // The client's connection runs on this thread, too.
        let call = async {
            loop {
                match self.calls.try_recv() {
                    Ok(stream) => return stream,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let stream = tokio::time::timeout(TIMEOUT, call).await.expect("a call");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        stream
    }

    async fn connect(&self) -> SendRequest<Bytes> {
        let stream = tokio::net::TcpStream::connect(&self.serving.listen).await.expect("connected");
        let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(async move {
            let _ended = connection.await;
        });
        sender
    }
}

/// A message `M` with its prefix.
fn message(id: &str) -> Bytes {
    let mut body = vec![0x0a];
    let mut length = id.len();
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
    body.extend_from_slice(id.as_bytes());
    Bytes::from([&[0][..], &(body.len() as u32).to_be_bytes(), &body].concat())
}

async fn send(
    sender: &SendRequest<Bytes>,
    path: &str,
    headers: &[(&'static str, &'static str)],
    body: Bytes,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut request = Request::post(format!("http://test{path}")).header("content-type", "application/grpc");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut sender = sender.clone().ready().await.expect("ready");
    let (response, mut stream) = sender.send_request(request.body(()).expect("valid"), false).expect("sent");
    stream.send_data(body, true).expect("sent");
    (response, stream)
}

/// Head, body and trailers.
async fn whole(response: ResponseFuture) -> (HeaderMap, Vec<u8>, HeaderMap) {
    let response = response.await.expect("a response");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/grpc".parse().expect("valid"))
    );
    let (head, mut body): (_, RecvStream) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.expect("a part");
        body.flow_control().release_capacity(part.len()).expect("released");
        bytes.extend_from_slice(&part);
    }
    let trailers = body.trailers().await.expect("an end").unwrap_or_default();
    (head.headers, bytes, trailers)
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

#[test]
fn messages_of_every_size_are_answered() {
    let tier = Tier::start();
    run(async {
        let client = tier.connect().await;
        // The last is converted off the worker, both ways.
        for size in [0, 1, 1000, 1_500_000] {
            let sent = if size == 0 { Bytes::from_static(&[0; 5]) } else { message(&"x".repeat(size)) };
            let (_, body, trailers) = whole(send(&client, "/t.T/Echo", &[], sent.clone()).await.0).await;
            assert_eq!(trailers["grpc-status"], "0");
            assert!(body == sent, "{size}");
        }
    });
}

#[test]
fn what_is_no_call_gets_one_clear_status() {
    let tier = Tier::start();
    run(async {
        let client = tier.connect().await;
        let whole_message = message("abc");
        let cases = [
            ("/t.T/Echo", whole_message.slice(..whole_message.len() - 1), "3", "cut off"),
            ("/t.T/Echo", Bytes::new(), "12", "no message"),
            ("/t.T/Echo", Bytes::from([&whole_message[..], &whole_message].concat()), "12", "more than one"),
            ("/t.T/Echo", Bytes::from_static(b"\0\0\0\0\x02\x0a\x05"), "3", "not a valid t.M"),
            ("/t.T/Echo", message(&"x".repeat(3 << 20)), "8", "2097152"),
            // A number where the text belongs, and no protobuf at all.
            ("/t.T/Echo", Bytes::from_static(b"\0\0\0\0\x02\x08\x07"), "3", "not a valid t.M: id: "),
            ("/t.T/Echo", Bytes::from_static(b"\0\0\0\0\x0b{\"id\": \"7\"}"), "3", "not a valid t.M"),
            ("/t.T/Echo", Bytes::from_static(b"\0\xff\xff\xff\xffab"), "8", "2097152"),
            ("/t.T/None", message("a"), "12", "route"),
            // It serves HTTP: its flow must not run for a client that cannot read the answer.
            ("/plain", message("a"), "12", "route"),
        ];
        for (path, body, status, text) in cases {
            let (head, body, trailers) = whole(send(&client, path, &[], body).await.0).await;
            assert!(body.is_empty() && trailers.is_empty(), "a status in the head: {body:?} {trailers:?}");
            assert_eq!(head["grpc-status"], status, "{path} {head:?}");
            assert!(head["grpc-message"].to_str().expect("text").contains(text), "{head:?}");
        }
        let (head, ..) = whole(send(&client, "/t.T/Echo", &[("grpc-timeout", "soon")], message("a")).await.0).await;
        assert_eq!(head["grpc-status"], "3");
    });
}

#[test]
fn the_clients_deadline_ends_the_flow() {
    let tier = Tier::start();
    run(async {
        let client = tier.connect().await;
        // The client itself waits on: it is the server that ends the call.
        let (head, ..) = whole(send(&client, "/t.T/Wait", &[("grpc-timeout", "100m")], message("a")).await.0).await;
        assert_eq!(head["grpc-status"], "4", "{head:?}");
        // The call of the flow ended with it.
        let mut rest = Vec::new();
        tier.called().await.read_to_end(&mut rest).expect("closed");
    });
}

#[test]
fn a_cancelled_call_ends_its_flow_and_a_full_route_says_when_to_come_back() {
    let tier = Tier::start();
    run(async {
        let client = tier.connect().await;
        let (first, mut stream) = send(&client, "/t.T/Wait", &[], message("a")).await;
        let first = tokio::spawn(first);
        let mut call = tier.called().await;
        let (head, ..) = whole(send(&client, "/t.T/Wait", &[], message("a")).await.0).await;
        assert_eq!(
            (&head["grpc-status"], &head["retry-after"]),
            (&"14".parse().expect("valid"), &"1".parse().expect("valid"))
        );
        stream.send_reset(Reason::CANCEL);
        assert!(first.await.expect("joined").is_err());
        tokio::task::spawn_blocking(move || call.read_to_end(&mut Vec::new()).expect("closed")).await.expect("joined");
    });
}

/// Echo's status for a client of its own.
async fn echo_status(tier: &Tier) -> http::HeaderValue {
    let client = tier.connect().await;
    let (_, _, trailers) = whole(send(&client, "/t.T/Echo", &[], message("a")).await.0).await;
    trailers["grpc-status"].clone()
}

#[test]
fn a_client_that_never_reads_is_closed() {
    let tier = Tier::with("slow_reader_timeout = \"1s\"");
    run(async {
        let stream = tokio::net::TcpStream::connect(&tier.serving.listen).await.expect("connected");
        let (sender, connection) =
            h2::client::Builder::new().initial_window_size(0).handshake(stream).await.expect("HTTP/2");
        let connection = tokio::spawn(connection);
        let (many, _stream) = send(&sender, "/t.T/Many", &[], message("a")).await;
        let many = many.await.expect("a response");
        assert_eq!(many.status(), 200);
        // Its messages are not taken; the client does not leave by itself.
        let _ended = tokio::time::timeout(TIMEOUT, connection).await.expect("the server closes it").expect("joined");
        drop((many, sender));
        assert_eq!(echo_status(&tier).await, "0");
    });
}

#[test]
fn a_message_that_comes_byte_by_byte_has_a_deadline() {
    let tier = Tier::with("body_timeout = \"1s\"");
    run(async {
        let client = tier.connect().await;
        let request = Request::post("http://test/t.T/Echo").header("content-type", "application/grpc");
        let mut sender = client.clone().ready().await.expect("ready");
        let (response, mut stream) = sender.send_request(request.body(()).expect("valid"), false).expect("sent");
        let slowly = async {
            for byte in message(&"x".repeat(100)).iter() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if stream.send_data(Bytes::copy_from_slice(&[*byte]), false).is_err() {
                    break;
                }
            }
            std::future::pending().await
        };
        let (head, ..) = tokio::select! { whole = whole(response) => whole, () = slowly => unreachable!() };
        assert_eq!(head["grpc-status"], "4", "{head:?}");
    });
}

#[test]
fn a_stream_of_messages_without_an_end_is_refused_at_the_limit() {
    let tier = Tier::start();
    run(async {
        let client = tier.connect().await;
        let joined = Bytes::from([message("a"), message("b")].concat());
        let (_, body, trailers) = whole(send(&client, "/t.T/Join", &[], joined).await.0).await;
        assert_eq!((body, &trailers["grpc-status"]), (message("a,b").to_vec(), &"0".parse().expect("valid")));
        let request = Request::post("http://test/t.T/Join").header("content-type", "application/grpc");
        let mut sender = client.clone().ready().await.expect("ready");
        let (response, mut stream) = sender.send_request(request.body(()).expect("valid"), false).expect("sent");
        let endless = async {
            while stream.send_data(message(&"x".repeat(1000)), false).is_ok() {
                tokio::task::yield_now().await;
            }
            std::future::pending().await
        };
        let (head, ..) = tokio::select! { whole = whole(response) => whole, () = endless => unreachable!() };
        assert_eq!(head["grpc-status"], "8", "{head:?}");
    });
}

#[test]
fn a_thousand_calls_that_are_reset_leave_nothing_behind() {
    let tier = Tier::start();
    run(async {
        let mut opened = 0;
        // A connection whose client resets too many calls is closed.
        for _ in 0..100 {
            let client = tier.connect().await;
            while opened < 1000
                && let Ok(mut sender) = client.clone().ready().await
            {
                let request = Request::post("http://test/t.T/Wait").header("content-type", "application/grpc");
                let Ok((_response, mut stream)) = sender.send_request(request.body(()).expect("valid"), false) else {
                    break;
                };
                let _closed = stream.send_data(message("a"), true);
                stream.send_reset(Reason::CANCEL);
                opened += 1;
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(opened, 1000);
        assert_eq!(echo_status(&tier).await, "0");
        // The only place of the route is free again: this call waits for its upstream, until its deadline.
        let client = tier.connect().await;
        let waits = async {
            while whole(send(&client, "/t.T/Wait", &[("grpc-timeout", "100m")], message("a")).await.0).await.0["grpc-status"]
                != "4"
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waits).await.expect("the place is free");
    });
}
