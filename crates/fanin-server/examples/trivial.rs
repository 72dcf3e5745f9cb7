//! What the server costs: a trivial application (`ADDRESS`) or a bare hyper loop on one thread (`ADDRESS bare`).
//!
//! Load it with `wrk` from another core and compare CPU seconds per request. The access log goes to `/dev/null`, metrics are
//! on.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fanin_config::{AccessLog, Server};
use fanin_server::{
    Application, LoadError, Loader, Options, Request, Response, RouteSpec, Worker, WorkerContext, start,
};
use http::{HeaderValue, Method};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::runtime::{Builder, LocalOptions};

const BODY: &[u8] = br#"{"id":7,"name":"a trivial answer"}"#;

struct App(Server);
struct AppWorker;
struct AppLoader(SocketAddr);

impl Loader for AppLoader {
    type App = App;

    fn load(&self, _: Option<&Arc<App>>) -> Result<App, LoadError> {
        Ok(App(Server {
            listen: vec![self.0],
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            workers: 1,
            limit: 50_000,
            max_connections: 50_000,
            access_log: AccessLog::File("/dev/null".into()),
            ..Server::default()
        }))
    }
}

impl Application for App {
    type Worker = AppWorker;

    fn server(&self) -> &Server {
        &self.0
    }

    fn routes(&self) -> Vec<RouteSpec> {
        vec![
            RouteSpec::new(Method::GET, "/items/{id}"),
            // Nothing gets in: what a refusal costs.
            RouteSpec { limit: 0, max_waiting: 0, ..RouteSpec::new(Method::GET, "/refused") },
            // Nothing gets out: what a waiting request costs.
            RouteSpec { timeout: Duration::from_secs(600), limit: 50_000, ..RouteSpec::new(Method::GET, "/never") },
        ]
    }

    fn worker(self: &Arc<Self>, _: WorkerContext) -> AppWorker {
        AppWorker
    }
}

impl Worker for AppWorker {
    type Future = Either<Ready<Response>, Never>;

    fn handle(&self, request: Request) -> Self::Future {
        if request.path() == "/never" {
            return Either::Right(Never(request));
        }
        Either::Left(ready(Response::json(Bytes::from_static(BODY))))
    }
}

/// Keeps its request and answers nothing.
struct Never(#[allow(dead_code, reason = "is kept, as a flow keeps it")] Request);

impl Future for Never {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }
}

/// One of two futures.
enum Either<A, B> {
    Left(A),
    Right(B),
}

impl<A: Future<Output = Response> + Unpin, B: Future<Output = Response> + Unpin> Future for Either<A, B> {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        match self.get_mut() {
            Either::Left(future) => Pin::new(future).poll(cx),
            Either::Right(future) => Pin::new(future).poll(cx),
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().and_then(|text| text.parse().ok()).expect("usage: trivial ADDRESS [bare]");
    if arguments.next().is_none() {
        let handle = start(AppLoader(address), Options::default()).expect("starts");
        println!("admin pages at {:?}", handle.admin());
        handle.wait();
        return;
    }
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.expect("binds");
        loop {
            let (stream, _) = listener.accept().await.expect("accepts");
            stream.set_nodelay(true).expect("sets");
            tokio::task::spawn_local(async move {
                let service = service_fn(async |_| {
                    let mut response = http::Response::new(Full::new(Bytes::from_static(BODY)));
                    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
                    Ok::<_, Infallible>(response)
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}
