//! The upstream: a gRPC server that answers by method, frame by frame.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue};
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};

pub const PROTO: &str = r#"syntax = "proto3";
package t;
service T {
  rpc Gated(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Late(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Gone(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Early(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Hang(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Broken(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Endless(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Large(M) returns (stream M) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Pay(M) returns (stream M);
  rpc One(M) returns (M) { option idempotency_level = NO_SIDE_EFFECTS; }
}
message M { string id = 1; }
"#;

/// The details of every status: `google.rpc.Status` with code 11 and one `t.M` whose id is `d`.
pub const DETAILS: &str = "CAsaHgoXdHlwZS5nb29nbGVhcGlzLmNvbS90Lk0SAwoBZA==";

/// A message `M` with its prefix.
pub fn message(id: &str) -> Bytes {
    let mut body = vec![0x0a];
    length_delimiter(id.len(), &mut body);
    body.extend_from_slice(id.as_bytes());
    Bytes::from([&[0][..], &(body.len() as u32).to_be_bytes(), &body].concat())
}

fn length_delimiter(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// A gRPC server that answers by method.
pub struct Far {
    pub port: u16,
    /// Lets `Gated` send one more message; its end after three.
    pub gate: Arc<Semaphore>,
    /// Messages that `Endless` has sent, and streams of it that were cancelled.
    pub sent: Arc<AtomicUsize>,
    pub cancelled: Arc<AtomicUsize>,
}

impl Far {
    pub fn start() -> Far {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("set");
        let port = listener.local_addr().expect("an address").port();
        let gate = Arc::new(Semaphore::new(0));
        let (sent, cancelled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let far = Far { port, gate: gate.clone(), sent: sent.clone(), cancelled: cancelled.clone() };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            LocalSet::new().block_on(&runtime, async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                while let Ok((stream, _)) = listener.accept().await {
                    let (gate, sent, cancelled) = (gate.clone(), sent.clone(), cancelled.clone());
                    spawn_local(async move {
                        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                            spawn_local(answer(method, respond, gate.clone(), sent.clone(), cancelled.clone()));
                        }
                    });
                }
            });
        });
        far
    }
}

async fn answer(
    method: String,
    mut respond: SendResponse<Bytes>,
    gate: Arc<Semaphore>,
    sent: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
) {
    let head = http::Response::builder().header("content-type", "application/grpc").header("set-cookie", "secret");
    let mut stream = respond.send_response(head.body(()).expect("valid"), false).expect("sent");
    let say = |stream: &mut SendStream<Bytes>, id: &str| stream.send_data(message(id), false).is_ok();
    match method.as_str() {
        "Gated" => {
            for id in ["a", "b\n", "c"] {
                gate.acquire().await.expect("open").forget();
                say(&mut stream, id);
            }
            end(&mut stream, "0");
        }
        "Pay" => {
            say(&mut stream, "paid");
            end(&mut stream, "0");
        }
        "Early" => end(&mut stream, "5"),
        "Late" => {
            say(&mut stream, "a");
            say(&mut stream, "b");
            end(&mut stream, "14");
        }
        "Gone" => {
            say(&mut stream, "a");
            end(&mut stream, "11");
        }
        "Large" => {
            say(&mut stream, "a");
            say(&mut stream, &"x".repeat(100_000));
            end(&mut stream, "0");
        }
        "Broken" => {
            say(&mut stream, "a");
            // The message must have arrived before the stream is reset.
            tokio::time::sleep(Duration::from_millis(300)).await;
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        "Endless" => {
            let part = message(&"x".repeat(1000));
            loop {
                stream.reserve_capacity(part.len());
                while stream.capacity() < part.len() {
                    if !matches!(poll_fn(|cx| stream.poll_capacity(cx)).await, Some(Ok(_))) {
                        cancelled.fetch_add(1, SeqCst);
                        return;
                    }
                }
                stream.send_data(part.clone(), false).expect("it has room");
                sent.fetch_add(1, SeqCst);
                tokio::task::yield_now().await;
            }
        }
        _ => {
            say(&mut stream, "a");
            let _reset = poll_fn(|cx| stream.poll_reset(cx)).await;
        }
    }
}

fn end(stream: &mut SendStream<Bytes>, status: &'static str) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    trailers.insert("grpc-message", HeaderValue::from_static("internal name"));
    trailers.insert("grpc-status-details-bin", HeaderValue::from_static(DETAILS));
    let _sent = stream.send_trailers(trailers);
}
