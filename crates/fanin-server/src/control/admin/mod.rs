//! The admin pages: health, metrics, configuration, reload, and an index of them at `/`.
//!
//! - `listener`: connections. `access`: who may use which page. `dashboard`: the dashboard and its history. `purge`: what is to be purged.

mod access;
mod dashboard;
mod listener;
mod purge;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::reload::Reloader;
use crate::{Application, Body, DebugWork, Loader, PageLink, Problem, Response, metrics};

/// Pages of recorded requests that are made at the same time.
const EXPLAINING: usize = 4;

/// Refused requests are logged once in this time.
const REFUSALS_EVERY: Duration = Duration::from_secs(1);

/// The content type of OpenMetrics.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The pages of the index, besides the application's.
const PAGES: [PageLink; 7] = [
    PageLink { href: "/dashboard", description: "what the server does now and did in the last 15 minutes, for people" },
    PageLink { href: "/health", description: "200 while the process runs, for liveness probes" },
    PageLink {
        href: "/ready",
        description: "200 while the server accepts requests, 503 while it drains, for readiness probes",
    },
    PageLink { href: "/metrics", description: "metrics for Prometheus (OpenMetrics text)" },
    PageLink { href: "/config", description: "the configuration in force as JSON, secrets masked" },
    PageLink {
        href: "/reload",
        description: "POST: loads the configuration again, as SIGHUP does; a broken one is refused",
    },
    PageLink {
        href: "/cache/purge",
        description: "POST: purges responses from the caches of routes, by tag=TAG, path=PATH or all=true",
    },
];

/// Serves the pages on `admin`, and health and readiness alone on `probes`.
pub(super) fn start<L: Loader>(admin: Option<TcpListener>, probes: Option<TcpListener>, reloader: &Rc<Reloader<L>>) {
    if let Some(admin) = admin {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(reloader.metrics.clone()));
        let (reloader, refused) = (reloader.clone(), Cell::new(None));
        let dashboard = dashboard::Dashboard::start(&reloader);
        let pages = Rc::new(Pages {
            registry,
            reloader,
            dashboard,
            debugging: Semaphore::new(1),
            explaining: Semaphore::new(EXPLAINING),
            refused,
        });
        spawn_local(listener::run(admin, move |peer, request| pages.clone().answer(peer, request)));
    }
    if let Some(probes) = probes {
        let reloader = reloader.clone();
        spawn_local(listener::run(probes, move |_, request| {
            let response = probe(&request, &reloader);
            async { response }
        }));
    }
}

fn reads(request: &Request<Incoming>) -> bool {
    *request.method() == Method::GET || *request.method() == Method::HEAD
}

/// `/health` and `/ready`.
fn probe<L: Loader>(request: &Request<Incoming>, reloader: &Reloader<L>) -> Response {
    let mut response = match (request.uri().path(), reads(request)) {
        ("/health", true) => text(StatusCode::OK, "ok\n"),
        ("/ready", true) if reloader.is_draining() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        ("/ready", true) => text(StatusCode::OK, "ready\n"),
        ("/health" | "/ready", false) => not_allowed("GET, HEAD"),
        _ => Problem::new(StatusCode::NOT_FOUND, "no-page", "There are only /health and /ready here").into(),
    };
    if *request.method() == Method::HEAD {
        response.body = Body::empty();
    }
    response
}

struct Pages<L: Loader> {
    /// The server's metrics; the application's are in its generation.
    registry: Registry,
    reloader: Rc<Reloader<L>>,
    dashboard: Rc<dashboard::Dashboard>,
    /// One debug page at a time.
    debugging: Semaphore,
    /// Few pages of recorded requests at a time.
    explaining: Semaphore,
    /// When a refused request was logged last.
    refused: Cell<Option<Instant>>,
}

impl<L: Loader> Pages<L> {
    async fn answer(self: Rc<Self>, peer: SocketAddr, request: Request<Incoming>) -> Response {
        let path = request.uri().path();
        if access::is_public(path) {
            return probe(&request, &self.reloader);
        }
        if let Err(response) = access::check(request.method(), path, request.headers(), &self.reloader.server()) {
            self.log_refusal(peer, &request, response.status);
            return *response;
        }
        let get = reads(&request);
        let mut response = match (path, get) {
            ("/", true) => self.index(),
            ("/metrics", true) => self.metrics(request.headers()),
            ("/config", true) => Response::json(self.reloader.current.load().app.config()),
            ("/dashboard", true) => dashboard::page(),
            ("/dashboard/data", true) => self.dashboard.data(&self.reloader, request.uri().query()),
            ("/dashboard/plans", true) => self.plans().await,
            (path, true) if path.starts_with("/debug/") => {
                self.debug(request.method(), path, request.uri().query(), &self.debugging).await
            }
            ("/requests/token", _) if *request.method() != Method::POST => not_allowed("POST"),
            (path, _) if path == "/requests" || path.starts_with("/requests/") => {
                self.debug(request.method(), path, request.uri().query(), &self.explaining).await
            }
            ("/reload", _) if *request.method() == Method::POST => self.reload(peer).await,
            ("/cache/purge", _) if *request.method() == Method::POST => self.purge(peer, request.uri().query()),
            ("/reload" | "/cache/purge", _) => not_allowed("POST"),
            ("/" | "/metrics" | "/config" | "/dashboard" | "/dashboard/data" | "/dashboard/plans", false) => {
                not_allowed("GET, HEAD")
            }
            _ => Problem::new(StatusCode::NOT_FOUND, "no-page", "There is no such admin page")
                .member(
                    "pages",
                    self.links().iter().map(|page| page.href).filter(|href| !href.contains('?')).collect::<Vec<_>>(),
                )
                .into(),
        };
        if *request.method() == Method::HEAD {
            response.body = Body::empty();
        }
        response
    }

    fn log_refusal(&self, peer: SocketAddr, request: &Request<Incoming>, status: StatusCode) {
        let now = Instant::now();
        if self.refused.get().is_none_or(|at| now.duration_since(at) >= REFUSALS_EVERY) {
            self.refused.set(Some(now));
            let (method, page, status) = (request.method().as_str(), request.uri().path(), status.as_u16());
            tracing::warn!(target: "fanin::audit", %peer, method, page, status, "refused on the admin pages");
        }
    }

    fn links(&self) -> Vec<PageLink> {
        let mut links = PAGES.to_vec();
        links.extend(self.reloader.current.load().app.debug_pages());
        links
    }

    fn index(&self) -> Response {
        let mut page = String::from(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Fanin admin</title></head>\n<body>\n\
             <h1>Fanin admin</h1>\n<ul>\n",
        );
        for PageLink { href, description } in self.links() {
            page.push_str(&format!("<li><a href=\"{href}\">{href}</a>: {description}</li>\n"));
        }
        let generation = self.reloader.current.load().number;
        page.push_str(&format!("</ul>\n<p>Configuration generation {generation}.</p>\n</body>\n</html>\n"));
        let mut response = Response::new(StatusCode::OK, page);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        response
    }

    fn metrics(&self, headers: &HeaderMap) -> Response {
        let generation = self.reloader.current.load();
        let more = |to: &mut _| generation.app.exemplars(to);
        let page = match accepts_openmetrics(headers) {
            true => metrics::write_with_exemplars(&self.registry, &self.reloader.metrics, &generation.registry, more),
            false => metrics::write(&self.registry, &generation.registry),
        };
        let Ok(page) = page else {
            return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The metrics could not be written")
                .into();
        };
        let mut response = Response::new(StatusCode::OK, page);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
        response
    }

    async fn debug(&self, method: &Method, path: &str, query: Option<&str>, at_a_time: &Semaphore) -> Response {
        let Some(work) = self.reloader.current.load().app.debug_page(method, path, query) else {
            return Problem::new(StatusCode::NOT_FOUND, "no-page", "There is no such page, or its feature is disabled")
                .into();
        };
        self.made(work, at_a_time).await
    }

    /// The plans of all routes. They are made once for each configuration.
    async fn plans(&self) -> Response {
        let generation = self.reloader.current.load_full();
        if let Some(plans) = self.dashboard.known_plans(generation.number) {
            return Response::json(plans);
        }
        let Some(work) = generation.app.plans() else { return Response::json("[]") };
        let response = self.made(work, &self.debugging).await;
        if response.status == StatusCode::OK {
            self.dashboard.keep_plans(generation.number, response.body.to_bytes());
        }
        response
    }

    /// A page that takes longer to make.
    async fn made(&self, work: DebugWork, at_a_time: &Semaphore) -> Response {
        let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Another debug page is being made").into();
        let Ok(_only) = at_a_time.try_acquire() else { return busy() };
        // Not on this thread, which handles signals.
        match tokio::task::spawn_blocking(work).await {
            Ok(page) => {
                let mut response = Response::new(StatusCode::OK, page.body);
                response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
                response
            }
            Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The page could not be made").into(),
        }
    }

    fn purge(&self, peer: SocketAddr, query: Option<&str>) -> Response {
        let caches = &self.reloader.metrics.caches;
        let purge = match purge::parse(query.unwrap_or("")) {
            Ok(purge) => purge,
            Err(detail) => {
                let problem = Problem::new(StatusCode::BAD_REQUEST, "bad-request", "Nothing was purged");
                return problem.detail(detail).into();
            }
        };
        if purge.all {
            caches.clear();
        }
        for target in &purge.targets {
            caches.purge_target(target);
        }
        if !purge.tags.is_empty() {
            caches.purge_tags(purge.tags.iter().map(String::as_bytes));
        }
        let (tags, paths, all) = (purge.tags.join(" "), purge.targets.len(), purge.all);
        tracing::info!(target: "fanin::audit", %peer, page = "/cache/purge", tags, paths, all, "used on the admin pages");
        Response::json(serde_json::json!({"purged": true}).to_string())
    }

    async fn reload(&self, peer: SocketAddr) -> Response {
        let result = self.reloader.reload("POST /reload").await;
        let outcome = if result.is_ok() { "reloaded" } else { "refused" };
        tracing::info!(target: "fanin::audit", %peer, page = "/reload", outcome, "used on the admin pages");
        match result {
            Ok(()) => {
                let generation = self.reloader.current.load().number;
                Response::json(serde_json::json!({"reloaded": true, "generation": generation}).to_string())
            }
            Err(error) => Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "reload-failed",
                "The configuration is invalid; the old one stays in force",
            )
            .member("diagnostics", error.diagnostics)
            .into(),
        }
    }
}

/// Whether a reader names OpenMetrics. Others may take an exemplar for a broken line.
fn accepts_openmetrics(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("application/openmetrics-text"))
}

fn text(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(status, text);
    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn not_allowed(allow: &'static str) -> Response {
    let mut response = Response::from(Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        "This page does not have this method",
    ));
    response.headers.insert(ALLOW, HeaderValue::from_static(allow));
    response
}
