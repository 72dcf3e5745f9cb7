//! Many requests at once over HTTP/2: more than file descriptors allow with a connection each.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Failure;

/// Streams that a server takes on one connection; all servers here allow at least that many.
const STREAMS: usize = 100;

/// HTTP/2 connections to one server.
#[derive(Debug)]
pub struct Streams {
    connections: Vec<SendRequest<Empty<Bytes>>>,
    uri: http::Uri,
}

impl Streams {
    /// Connects so often that `requests` can be under way at once.
    pub async fn connect(addr: SocketAddr, target: &str, requests: usize) -> Result<Self, Failure> {
        let uri =
            format!("http://{addr}{target}").parse().map_err(|error| Failure::Usage(format!("{target}: {error}")))?;
        let mut connections = Vec::new();
        for _ in 0..requests.div_ceil(STREAMS) {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            let handshake = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(|error| Failure::Wrong(error.to_string()))?;
            tokio::spawn(async { drop(connection.await) });
            connections.push(sender);
        }
        Ok(Self { connections, uri })
    }

    /// Sends `requests` of which nobody expects an answer. Dropping the set cancels them.
    pub fn send(&self, requests: usize) -> JoinSet<Result<Duration, String>> {
        let mut tasks = JoinSet::new();
        for number in 0..requests {
            tasks.spawn(one(self.connections[number % self.connections.len()].clone(), self.uri.clone()));
        }
        tasks
    }

    /// Keeps `requests` under way for `time`, then waits for the last; latencies of the right answers, and how many were wrong.
    pub async fn keep(&self, requests: usize, time: Duration) -> (Vec<Duration>, u64) {
        let end = Instant::now() + time;
        let mut tasks = self.send(requests);
        let (mut latencies, mut errors, mut next) = (Vec::new(), 0, 0);
        while let Some(done) = tasks.join_next().await {
            match done {
                Ok(Ok(latency)) => latencies.push(latency),
                _ => errors += 1,
            }
            if Instant::now() < end {
                next += 1;
                tasks.spawn(one(self.connections[next % self.connections.len()].clone(), self.uri.clone()));
            }
        }
        (latencies, errors)
    }
}

async fn one(mut sender: SendRequest<Empty<Bytes>>, uri: http::Uri) -> Result<Duration, String> {
    let start = Instant::now();
    let mut request = http::Request::new(Empty::new());
    *request.uri_mut() = uri;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    response.into_body().collect().await.map_err(|error| error.to_string())?;
    if status == 200 { Ok(start.elapsed()) } else { Err(status.to_string()) }
}
