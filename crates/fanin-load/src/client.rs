//! Sending: pools of connections for HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::error::LoadError;
use crate::grpc;
use crate::plan::{Plan, Protocol};
use crate::tls::Tls;

/// What became of a request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// An answer came, whole.
    Answer {
        status: u16,
        /// Bytes of its body.
        bytes: u64,
    },
    /// No connection.
    Connect,
    /// The connection broke, or what came was no HTTP.
    Broken,
}

type Body = Full<Bytes>;

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Client {
    addr: SocketAddr,
    request: http::Request<Body>,
    tls: Option<Tls>,
    pool: Pool,
    /// Answers have gRPC's status in their trailers.
    grpc: bool,
}

#[derive(Debug)]
enum Pool {
    /// Idle connections, the last used on top, and how many more may be made or used.
    Http1 { idle: Mutex<Vec<http1::SendRequest<Body>>>, permits: Semaphore },
    /// Connections used in turns, made at their first use.
    Http2 { slots: Vec<tokio::sync::Mutex<Option<http2::SendRequest<Body>>>>, next: AtomicUsize },
}

impl Client {
    /// A client of `addr` that has not connected yet.
    pub(crate) fn new(plan: &Plan, addr: SocketAddr) -> Result<Arc<Self>, LoadError> {
        let mut request = http::Request::new(Full::new(plan.request.body.clone()));
        *request.method_mut() = plan.request.method.clone();
        *request.headers_mut() = plan.request.headers.clone();
        *request.uri_mut() = plan.request.uri.clone();
        let pool = match plan.protocol {
            Protocol::Http1 => {
                // Origin form, as a client without a proxy sends it.
                let target = plan.request.uri.path_and_query().map_or("/", |target| target.as_str());
                *request.uri_mut() = target.parse().unwrap_or_default();
                Pool::Http1 {
                    idle: Mutex::default(),
                    permits: Semaphore::new(plan.connections.min(Semaphore::MAX_PERMITS)),
                }
            }
            Protocol::Http2 | Protocol::Grpc => {
                if plan.protocol == Protocol::Grpc {
                    grpc::dress(&mut request, plan.timeout)?;
                }
                // The authority of the URL says it.
                request.headers_mut().remove(http::header::HOST);
                let slots = (0..plan.connections).map(|_| tokio::sync::Mutex::default()).collect();
                Pool::Http2 { slots, next: AtomicUsize::new(0) }
            }
        };
        let tls = match plan.request.secure {
            true => Some(Tls::new(&plan.trust, &plan.request.host, plan.protocol)?),
            false => None,
        };
        Ok(Arc::new(Self { addr, request, tls, pool, grpc: plan.protocol == Protocol::Grpc }))
    }

    /// Sends the request once and reads the whole answer.
    pub(crate) async fn send(&self) -> Sent {
        match &self.pool {
            Pool::Http1 { idle, permits } => self.send_http1(idle, permits).await,
            Pool::Http2 { slots, next } => {
                let slot = &slots[next.fetch_add(1, Ordering::Relaxed) % slots.len()];
                self.send_http2(slot).await
            }
        }
    }

    async fn send_http1(&self, idle: &Mutex<Vec<http1::SendRequest<Body>>>, permits: &Semaphore) -> Sent {
        // The semaphore is never closed.
        let Ok(_permit) = permits.acquire().await else { return Sent::Connect };
        let mut request = self.request.clone();
        loop {
            let reused = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let was_idle = reused.is_some();
            let mut sender = match reused {
                Some(mut sender) => match sender.ready().await {
                    Ok(()) => sender,
                    Err(_) => continue,
                },
                None => match self.connect_http1().await {
                    Some(sender) => sender,
                    None => return Sent::Connect,
                },
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let sent = read(response).await;
                    if sent != Sent::Broken {
                        idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
                    }
                    return sent;
                }
                // The server closed an idle connection in the same moment, and nothing was sent on it.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if was_idle => request = unsent,
                    _ => return Sent::Broken,
                },
            }
        }
    }

    async fn connect_http1(&self) -> Option<http1::SendRequest<Body>> {
        let stream = self.stream().await?;
        match &self.tls {
            None => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
                tokio::spawn(async { drop(connection.await) });
                Some(sender)
            }
            Some(tls) => {
                let stream = tls.connect(stream).await.ok()?;
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
                tokio::spawn(async { drop(connection.await) });
                Some(sender)
            }
        }
    }

    async fn send_http2(&self, slot: &tokio::sync::Mutex<Option<http2::SendRequest<Body>>>) -> Sent {
        let mut sender = {
            let mut slot = slot.lock().await;
            match &*slot {
                Some(sender) if !sender.is_closed() => sender.clone(),
                _ => {
                    let Some(sender) = self.connect_http2().await else { return Sent::Connect };
                    slot.insert(sender).clone()
                }
            }
        };
        match sender.send_request(self.request.clone()).await {
            Ok(response) if self.grpc => grpc::read(response).await,
            Ok(response) => read(response).await,
            Err(_) => Sent::Broken,
        }
    }

    async fn connect_http2(&self) -> Option<http2::SendRequest<Body>> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // Until the server says how many streams it takes, as many as one likes would be a storm that it resets.
        builder.initial_max_send_streams(100).adaptive_window(false);
        let stream = self.stream().await?;
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

    async fn stream(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(self.addr).await.ok()?;
        stream.set_nodelay(true).ok()?;
        Some(stream)
    }
}

async fn read(response: http::Response<Incoming>) -> Sent {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Err(_) => return Sent::Broken,
        }
    }
    Sent::Answer { status, bytes }
}
