//! CPU of a call: the whole crate compared with hyper's connections alone, in interleaved runs.
//!
//! `cargo run --release -p fanin-upstream --example cost -- [calls] [pairs]` prints microseconds of this thread's CPU
//! for each call of 1 KB, 64 at a time, and the median ratio. The server runs on a thread of its own and is not
//! counted.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use fanin_upstream::{CallContext, Request, Upstreams, WorkerClient};
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::Instant;

const AT_ONCE: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let calls: usize = arguments.next().unwrap_or(200_000);
    let pairs: usize = arguments.next().unwrap_or(7);
    let server = serve();
    let mut ratios = Vec::new();
    println!("{:>12} {:>12} {:>8}", "bare us", "fanin us", "ratio");
    for _ in 0..pairs {
        let (bare, ours) = (measure(calls, bare(server, calls)), measure(calls, ours(server, calls)));
        println!("{bare:>12.2} {ours:>12.2} {:>8.3}", ours / bare);
        ratios.push(ours / bare);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ratios.len() / 2]);
}

/// Nanoseconds that this thread has been on a CPU.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

fn measure(calls: usize, work: impl Future<Output = ()>) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let before = cpu();
    LocalSet::new().block_on(&runtime, work);
    (cpu() - before) / 1e3 / calls as f64
}

async fn bare(server: SocketAddr, calls: usize) {
    let loops = (0..AT_ONCE).map(|_| async move {
        let stream = tokio::net::TcpStream::connect(server).await.expect("connected");
        stream.set_nodelay(true).expect("set");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.expect("connected");
        spawn_local(connection);
        for _ in 0..calls / AT_ONCE {
            let request = http::Request::get("/ids?text=rust")
                .header("host", "127.0.0.1")
                .body(Full::default())
                .expect("a request");
            sender.ready().await.expect("open");
            let answer = tokio::time::timeout(Duration::from_secs(1), sender.send_request(request));
            let body = answer.await.expect("in time").expect("answered").into_body();
            assert_eq!(body.collect().await.expect("a body").to_bytes().len(), 1024);
        }
    });
    join_all(loops).await;
}

async fn ours(server: SocketAddr, calls: usize) {
    let config = fanin_config::Upstream::new("u", format!("http://{server}").parse().expect("a URL"));
    let upstreams = Upstreams::new([&config]).expect("an upstream");
    let upstream = upstreams.get("u").expect("is there");
    let worker = WorkerClient::new();
    let worker = &worker;
    let loops = (0..AT_ONCE).map(|_| async move {
        for _ in 0..calls / AT_ONCE {
            let context = CallContext::new(Instant::now() + Duration::from_secs(1)).safe();
            let answer = upstream.call(worker, Request::get("/ids?text=rust"), context).await.expect("answered");
            assert_eq!(answer.body.len(), 1024);
        }
    });
    join_all(loops).await;
}

/// Answers each request, which ends with an empty line. One thread for each connection.
fn serve() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1024\r\n\r\n".to_vec();
        answer.extend_from_slice(&[b'1'; 1024]);
        for stream in listener.incoming().flatten() {
            let (mut stream, answer) = (stream, answer.clone());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let mut filled = 0;
                while let Ok(read @ 1..) = stream.read(&mut buffer[filled..]) {
                    filled += read;
                    if buffer[..filled].ends_with(b"\r\n\r\n") {
                        filled = 0;
                        if stream.write_all(&answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}
