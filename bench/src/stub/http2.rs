//! The backend over HTTP/2, for benchmarks with more requests in flight than there are file descriptors.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use super::bodies;

/// More than any benchmark has in flight.
const STREAMS: u32 = 100_000;

/// Serves HTTP/2 on `listen`, and to clients that speak HTTP/1.1 the count of requests under way (`/counters`).
pub fn run(listen: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(listen).await?;
        ready(listener.local_addr()?);
        let item = Bytes::from(bodies::item('f', 1024));
        let open = Rc::new(AtomicU64::new(0));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (item, open) = (item.clone(), Rc::clone(&open));
            let service = service_fn(move |request| answer(request, item.clone(), Rc::clone(&open)));
            spawn_local(serve(stream, service));
        }
    })
}

async fn serve<S>(stream: tokio::net::TcpStream, service: S)
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible> + 'static,
    S::Future: 'static,
{
    // The counters are asked for over HTTP/1.1, which begins with another letter than HTTP/2's preface.
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first == *b"G" => {
            let server = hyper::server::conn::http1::Builder::new();
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        }
        Ok(1) => {
            let mut server = http2::Builder::new(Local);
            server.max_concurrent_streams(STREAMS);
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        }
        _ => {}
    }
}

async fn answer(
    request: Request<Incoming>,
    item: Bytes,
    open: Rc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    if path == "/counters" {
        let open = open.load(Ordering::Relaxed);
        return Ok(Response::new(Full::new(format!("{{\"open\":{open}}}").into())));
    }
    let _open = Open::new(&open);
    match path.strip_prefix("/item/1024/").and_then(|rest| rest.split('/').next()?.parse().ok()) {
        Some(micros) => tokio::time::sleep(Duration::from_micros(micros)).await,
        None => std::future::pending().await,
    }
    Ok(Response::new(Full::new(item)))
}

/// Counts a request under way, however it ends.
struct Open<'a>(&'a AtomicU64);

impl<'a> Open<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs hyper's tasks on this thread.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}
