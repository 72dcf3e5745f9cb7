//! The admin pages.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::reload::Reloader;
use crate::{Application, Body, Loader, Problem, Response};

/// Connections at once; more wait in the kernel.
const CONNECTIONS: usize = 64;
/// A connection ends after this long, whatever it does.
const LIFE: Duration = Duration::from_secs(300);
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a page holds, for OpenMetrics.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the runtime ends, also while the server drains: that is when `/ready` matters.
pub(super) async fn run<L: Loader>(listener: TcpListener, reloader: Rc<Reloader<L>>) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(reloader.metrics.clone()));
    let pages = Rc::new(Pages { registry, reloader, debugging: Semaphore::new(1) });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Never an error: nobody closes it.
        let place = places.clone().acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections to the admin pages");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let pages = pages.clone();
        spawn_local(async move {
            let service = service_fn(|request| pages.clone().answer(request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            let _ = timeout(LIFE, connection).await;
            drop(place);
        });
    }
}

struct Pages<L: Loader> {
    /// The server's own metrics; the application's are in its generation.
    registry: Registry,
    reloader: Rc<Reloader<L>>,
    /// A debug page at a time.
    debugging: Semaphore,
}

impl<L: Loader> Pages<L> {
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Result<http::Response<Body>, Infallible> {
        let get = *request.method() == Method::GET || *request.method() == Method::HEAD;
        let mut response = match (request.uri().path(), get) {
            ("/health", true) => text(StatusCode::OK, "ok\n"),
            ("/ready", true) if self.reloader.is_draining() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            ("/ready", true) => text(StatusCode::OK, "ready\n"),
            ("/metrics", true) => self.metrics(),
            ("/config", true) => Response::json(self.reloader.current.load().app.config()),
            (path, true) if path.starts_with("/debug/") => self.debug(path, request.uri().query()).await,
            ("/reload", _) if *request.method() == Method::POST => self.reload().await,
            ("/reload", _) => not_allowed("POST"),
            ("/health" | "/ready" | "/metrics" | "/config", false) => not_allowed("GET, HEAD"),
            _ => Problem::new(StatusCode::NOT_FOUND, "no-page", "There is no such admin page")
                .member("pages", vec!["/health", "/ready", "/metrics", "/config", "/reload"])
                .into(),
        };
        if *request.method() == Method::HEAD {
            response.body = Body::empty();
        }
        let mut result = http::Response::new(response.body);
        *result.status_mut() = response.status;
        *result.headers_mut() = response.headers;
        Ok(result)
    }

    fn metrics(&self) -> Response {
        let mut page = String::with_capacity(16 << 10);
        let generation = self.reloader.current.load();
        let written = encode_registry(&mut page, &self.registry)
            .and_then(|()| encode_registry(&mut page, &generation.registry))
            .and_then(|()| encode_eof(&mut page));
        if written.is_err() {
            return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The metrics could not be written")
                .into();
        }
        let mut response = Response::new(StatusCode::OK, page);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
        response
    }

    async fn debug(&self, path: &str, query: Option<&str>) -> Response {
        let Some(work) = self.reloader.current.load().app.debug_page(path, query) else {
            return Problem::new(
                StatusCode::NOT_FOUND,
                "no-page",
                "There is no such page, or what it shows is switched off",
            )
            .into();
        };
        let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Such a page is being made already").into();
        let Ok(_only) = self.debugging.try_acquire() else { return busy() };
        // This thread has signals to hear.
        match tokio::task::spawn_blocking(work).await {
            Ok(page) => {
                let mut response = Response::new(StatusCode::OK, page.body);
                response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
                response
            }
            Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The page could not be made").into(),
        }
    }

    async fn reload(&self) -> Response {
        match self.reloader.reload("POST /reload").await {
            Ok(()) => {
                let generation = self.reloader.current.load().number;
                Response::json(serde_json::json!({"reloaded": true, "generation": generation}).to_string())
            }
            Err(error) => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "reload-failed", "The old configuration goes on")
                    .member("diagnostics", error.diagnostics)
                    .into()
            }
        }
    }
}

fn text(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(status, text);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn not_allowed(allow: &'static str) -> Response {
    let mut response =
        Response::from(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Another method is needed"));
    response.headers.insert(ALLOW, HeaderValue::from_static(allow));
    response
}
