//! One connection: its age, its end, its requests.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;

use super::client::{Client, End, Open};
use super::place::Place;
use super::reply::Reply;
use super::{Service, Serving, grpc, rest};
use crate::InferError;

/// Time for a request's head over HTTP/1.1, and between requests.
const HEAD: Duration = Duration::from_secs(75);
/// Requests in progress that one HTTP/2 connection may have; more wait at the client.
const STREAMS: u32 = 1024;

/// A request must have come whole within this, whatever time its client gives it.
pub(super) const WHOLE: Duration = Duration::from_secs(30);

/// Runs hyper's tasks on this thread.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

pub(super) async fn run(service: Arc<Service>, serving: Rc<Serving>, stream: TcpStream) {
    let open = Open::new(service, serving);
    let client = open.client();
    let config = client.service.models.config();
    let mut builder = Builder::new(Local);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(config.keepalive)
        .keep_alive_timeout(config.keepalive_timeout)
        .max_concurrent_streams(STREAMS);
    let asks = client.clone();
    let handler = service_fn(move |request: Request<Incoming>| {
        let client = asks.clone();
        async move {
            let mut response = handle(&client, request).await;
            response.body_mut().goes_to(client);
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), handler));
    // All connections of a client that started at once must not go at once.
    let age = |age: Duration| tokio::time::sleep(age.mul_f64(0.9 + 0.2 * fastrand::f64()));
    let mut age = pin!(config.max_connection_age.map(age));
    // By hand, not by `select!`: this is polled a few times for each request, and a look at two cells is nothing.
    let aged = poll_fn(|cx| {
        // The client's going, or its breaking of the protocol, ends the connection and nothing else.
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        match client.poll_end(cx) {
            Some(End::Untaken) => {
                client.service.untaken.fetch_add(1, Relaxed);
                return Poll::Ready(None);
            }
            Some(End::Drain) => return Poll::Ready(Some(false)),
            None => {}
        }
        match age.as_mut().as_pin_mut().map(|age| age.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Some(true)),
            _ => Poll::Pending,
        }
    });
    let Some(aged) = aged.await else { return };
    connection.as_mut().graceful_shutdown();
    if aged {
        let _ = tokio::time::timeout(config.max_connection_age_grace, connection).await;
    } else {
        // How long draining may take is bounded by the server.
        let _ = connection.await;
    }
    drop(open);
}

async fn handle(client: &Client, request: Request<Incoming>) -> Response<Reply> {
    let is_grpc = request
        .headers()
        .get(::http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc { grpc::handle(client, request).await } else { rest::handle(&client.service, request).await }
}

/// A request's body could not be had.
#[derive(Debug)]
pub(super) enum BodyError {
    /// Larger than allowed.
    TooLarge,
    /// All requests together hold too much.
    Full(InferError),
    /// The client broke it off.
    Broken,
    /// Its time was over before it was there.
    Late,
}

/// Reads a body of at most so many bytes, until then. They are the place's.
pub(super) async fn read(
    mut body: Incoming,
    most: usize,
    until: tokio::time::Instant,
    place: &mut Place,
) -> Result<Bytes, BodyError> {
    use http_body_util::BodyExt;
    if body.size_hint().lower() > most as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut first: Option<Bytes> = None;
    let mut all: Vec<u8> = Vec::new();
    loop {
        let frame = match tokio::time::timeout_at(until, body.frame()).await {
            Err(_) => return Err(BodyError::Late),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(BodyError::Broken),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > most {
            return Err(BodyError::TooLarge);
        }
        place.add(data.len()).map_err(BodyError::Full)?;
        match first.take() {
            // Most bodies are one frame: no copy.
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(before) => {
                // Room grows with what really comes, not with what is promised.
                all.extend_from_slice(&before);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.into()))
}
