//! Sending over HTTP/2: concurrent streams on each of a few connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::attempt::AttemptResult;
use crate::connect::tcp;
use crate::error::LoadError;
use crate::grpc;
use crate::plan::Plan;
use crate::protocol::Protocol;
use crate::tls::Tls;

type Body = Full<Bytes>;

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Http2Client {
    addr: SocketAddr,
    request: http::Request<Body>,
    tls: Option<Tls>,
    /// Connections, used round-robin and made at first use.
    slots: Vec<tokio::sync::Mutex<Option<http2::SendRequest<Body>>>>,
    next: AtomicUsize,
    /// The status is gRPC's, from the trailers.
    grpc: bool,
}

impl Http2Client {
    /// A client of `addr` that has not connected yet.
    pub(crate) fn new(plan: &Plan, addr: SocketAddr) -> Result<Self, LoadError> {
        let mut request = http::Request::new(Full::new(plan.request.body.clone()));
        *request.method_mut() = plan.request.method.clone();
        *request.headers_mut() = plan.request.headers.clone();
        *request.uri_mut() = plan.request.uri.clone();
        if plan.protocol == Protocol::Grpc {
            grpc::dress(&mut request, plan.timeout)?;
        }
        // HTTP/2 has the pseudo-header `:authority` instead.
        request.headers_mut().remove(http::header::HOST);
        let slots = (0..plan.connections).map(|_| tokio::sync::Mutex::default()).collect();
        let tls = match plan.request.secure {
            true => Some(Tls::new(&plan.trust, &plan.request.host, plan.protocol)?),
            false => None,
        };
        Ok(Self { addr, request, tls, slots, next: AtomicUsize::new(0), grpc: plan.protocol == Protocol::Grpc })
    }

    /// Sends the request once and reads the whole answer.
    pub(crate) async fn send(&self) -> AttemptResult {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        let mut sender = {
            let mut slot = slot.lock().await;
            match &*slot {
                Some(sender) if !sender.is_closed() => sender.clone(),
                _ => {
                    let Some(sender) = self.connect().await else { return AttemptResult::Connect };
                    slot.insert(sender).clone()
                }
            }
        };
        match sender.send_request(self.request.clone()).await {
            Ok(response) if self.grpc => grpc::read(response).await,
            Ok(response) => read(response).await,
            Err(_) => AttemptResult::Broken,
        }
    }

    async fn connect(&self) -> Option<http2::SendRequest<Body>> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // Before the server's SETTINGS arrive, an unlimited number of streams would be reset by it.
        builder.initial_max_send_streams(100).adaptive_window(false);
        let stream = tcp(self.addr).await?;
        match &self.tls {
            None => {
                let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
                tokio::spawn(async { drop(connection.await) });
                Some(sender)
            }
            Some(tls) => {
                let stream = tls.connect(stream).await.ok()?;
                let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
                tokio::spawn(async { drop(connection.await) });
                Some(sender)
            }
        }
    }
}

async fn read(response: http::Response<Incoming>) -> AttemptResult {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Err(_) => return AttemptResult::Broken,
        }
    }
    AttemptResult::Answer { status, bytes }
}
