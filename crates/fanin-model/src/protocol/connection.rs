//! One connection: its age, its end, its requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;

use super::{Service, Serving, grpc, rest};

/// Time for a request's head over HTTP/1.1, and between requests.
const HEAD: Duration = Duration::from_secs(75);
/// Requests in progress that one HTTP/2 connection may have; more wait at the client.
const STREAMS: u32 = 1024;

/// Runs hyper's tasks on this thread.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// Counts the connection as long as it is there.
struct Open(Arc<Service>, Rc<Serving>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
        self.1.open.set(self.1.open.get() - 1);
    }
}

pub(super) async fn run(service: Arc<Service>, serving: Rc<Serving>, stream: TcpStream) {
    serving.open.set(serving.open.get() + 1);
    let open = Open(service.clone(), serving.clone());
    let config = service.models.config();
    let mut builder = Builder::new(Local);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(config.keepalive)
        .keep_alive_timeout(config.keepalive_timeout)
        .max_concurrent_streams(STREAMS);
    let served = serving.clone();
    let handler = service_fn(move |request: Request<Incoming>| {
        let (service, serving) = (service.clone(), served.clone());
        async move { Ok::<_, Infallible>(handle(service, serving, request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), handler));
    let age = async {
        match config.max_connection_age {
            // All connections of a client that started at once must not go at once.
            Some(age) => tokio::time::sleep(age.mul_f64(0.9 + 0.2 * fastrand::f64())).await,
            None => std::future::pending().await,
        }
    };
    let aged = tokio::select! {
        // The client's going, or its breaking of the protocol, ends the connection and nothing else.
        _ = connection.as_mut() => return,
        () = age => true,
        () = serving.drained() => false,
    };
    connection.as_mut().graceful_shutdown();
    if aged {
        let _ = tokio::time::timeout(config.max_connection_age_grace, connection).await;
    } else {
        // How long draining may take is bounded by the server.
        let _ = connection.await;
    }
    drop(open);
}

async fn handle(service: Arc<Service>, serving: Rc<Serving>, request: Request<Incoming>) -> Response<Reply> {
    let is_grpc = request
        .headers()
        .get(::http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc { grpc::handle(service, serving, request).await } else { rest::handle(service, request).await }
}

/// A response's body: one piece of data, and trailers for gRPC.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub data: Option<Bytes>,
    pub trailers: Option<HeaderMap>,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match self.data.take() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(Frame::trailers),
        };
        std::task::Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

/// A request's body could not be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// Larger than allowed.
    TooLarge,
    /// The client broke it off.
    Broken,
    /// The deadline came first.
    Late,
}

/// Reads a body of at most so many bytes, until the deadline.
pub(super) async fn read(mut body: Incoming, most: usize, deadline: tokio::time::Instant) -> Result<Bytes, BodyError> {
    use http_body_util::BodyExt;
    if body.size_hint().lower() > most as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut first: Option<Bytes> = None;
    let mut all: Vec<u8> = Vec::new();
    loop {
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(BodyError::Late),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(BodyError::Broken),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > most {
            return Err(BodyError::TooLarge);
        }
        match first.take() {
            // Most bodies are one frame: no copy.
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(before) => {
                all.reserve(body.size_hint().lower() as usize + before.len() + data.len());
                all.extend_from_slice(&before);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.into()))
}
