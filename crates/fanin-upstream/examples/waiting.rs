//! Memory of calls that wait: 20,000 calls in flight over HTTP/2 on an upstream that never answers.
//!
//! `cargo run --release -p fanin-upstream --example waiting -- [calls]` prints kilobytes of this process's memory for each
//! call, its future and its connection's share included. The upstream is a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use fanin_upstream::{CallContext, Request, Upstreams, WorkerClient};
use futures_util::FutureExt;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match argument.as_str() {
        "upstream" => LocalSet::new().block_on(&runtime, upstream()),
        calls => {
            let mut child = Command::new(std::env::current_exe().expect("a program"))
                .arg("upstream")
                .stdout(Stdio::piped())
                .spawn()
                .expect("the upstream runs");
            let mut address = String::new();
            BufReader::new(child.stdout.take().expect("piped")).read_line(&mut address).expect("an address");
            LocalSet::new().block_on(&runtime, wait(address.trim(), calls.parse().unwrap_or(20_000)));
            child.kill().expect("the upstream ends");
            child.wait().expect("the upstream has ended");
        }
    }
}

async fn upstream() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    while let Ok((stream, _)) = listener.accept().await {
        spawn_local(async move {
            let mut builder = h2::server::Builder::new();
            let builder = builder.max_concurrent_streams(100_000);
            let mut connection = builder.handshake::<_, bytes::Bytes>(stream).await.expect("HTTP/2");
            let mut kept = Vec::new();
            while let Some(Ok(request)) = connection.accept().await {
                kept.push(request);
            }
        });
    }
}

fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

async fn wait(address: &str, calls: usize) {
    let mut config = fanin_config::Upstream::new("u", format!("http://{address}").parse().expect("a URL"));
    config.http = fanin_config::HttpVersion::Http2;
    config.max_connections = 4;
    config.limit = fanin_config::Limit::Fixed(calls);
    config.timeout = HOUR;
    let upstreams = Upstreams::new([&config]).expect("an upstream");
    let upstream = upstreams.get("u").expect("is there");
    let worker = WorkerClient::new();
    let call = || upstream.call(&worker, Request::get("/ids?text=rust"), CallContext::new(Instant::now() + HOUR));
    println!("future of a call: {} bytes", size_of_val(&call()));
    let first = spawn_local(call());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = memory();
    let tasks: Vec<_> = (0..calls - 1).map(|_| spawn_local(call())).collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = memory();
    let pending = tasks.iter().filter(|task| !task.is_finished()).count();
    println!("{pending} calls wait, {:.2} KB each", (after - before) as f64 / 1024.0 / pending as f64);
    assert!(first.now_or_never().is_none());
}
