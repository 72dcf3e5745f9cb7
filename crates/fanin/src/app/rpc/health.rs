//! `grpc.health.v1`: whether services are served. They are until the server drains.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fanin_server::rpc::Status;
use fanin_server::{Aborted, Body, BodyStream, Request, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use tokio::sync::watch;

const NOT_FOUND: u8 = 5;
const RESOURCE_EXHAUSTED: u8 = 8;

/// Most clients that watch at the same time, over all workers.
const MAX_WATCHING: usize = 10_000;

/// What is served, and whether still. Reloads keep it, so that whoever watches hears of them.
#[derive(Debug)]
pub(in crate::app) struct Health(watch::Sender<State>);

#[derive(Clone, Debug, Default)]
struct State {
    services: BTreeSet<String>,
    drains: bool,
}

impl State {
    /// The status of a service; the empty name is the server.
    fn of(&self, service: &str) -> Option<&'static str> {
        let is_known = service.is_empty() || self.services.contains(service);
        is_known.then_some(if self.drains { "NOT_SERVING" } else { "SERVING" })
    }
}

impl Default for Health {
    fn default() -> Health {
        Health(watch::Sender::new(State::default()))
    }
}

impl Health {
    /// A configuration is served from now on.
    pub(in crate::app) fn serves(&self, services: &[String]) {
        self.0.send_if_modified(|state| {
            let services: BTreeSet<String> = services.iter().cloned().collect();
            let changed = state.services != services;
            state.services = services;
            changed
        });
    }

    /// The server drains.
    pub(in crate::app) fn drain(&self) {
        self.0.send_if_modified(|state| !std::mem::replace(&mut state.drains, true));
    }

    /// The status of the service that a request names.
    ///
    /// # Errors
    /// There is no such service.
    pub(super) fn check(&self, request: &Bytes) -> Result<Response, Box<Status>> {
        let service = service(request);
        match self.0.borrow().of(&service) {
            Some(status) => Ok(Response::json(json(status))),
            None => Err(Box::new(Status::new(NOT_FOUND, format!("{service} is not served here")))),
        }
    }

    /// The statuses of all services.
    pub(super) fn list(&self) -> Response {
        let state = self.0.borrow();
        let names = state.services.iter().map(String::as_str).chain([""]);
        let statuses: serde_json::Map<String, serde_json::Value> = names
            .filter_map(|name| Some((name.to_owned(), serde_json::json!({ "status": state.of(name)? }))))
            .collect();
        Response::json(serde_json::json!({ "statuses": statuses }).to_string())
    }

    /// The status of a service, now and whenever it changes, as lines of JSON. A service that is not known may come. Whoever watches holds
    /// no permit: the number of watching clients has a bound of its own.
    ///
    /// # Errors
    /// Too many watch already.
    pub(super) fn watch(&self, request: &Request) -> Result<Response, Box<Status>> {
        if self.0.receiver_count() >= MAX_WATCHING {
            return Err(Box::new(Status::new(RESOURCE_EXHAUSTED, format!("{MAX_WATCHING} clients watch already"))));
        }
        let (service, mut states) = (service(&request.body), self.0.subscribe());
        states.mark_changed();
        let body = Body::stream(Watch { service, told: None, change: Box::pin(changed(states)), drains: false });
        let mut response = Response::new(StatusCode::OK, body);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
        Ok(response)
    }
}

/// The service that a request names.
fn service(request: &Bytes) -> String {
    let request: serde_json::Value = serde_json::from_slice(request).unwrap_or_default();
    request["service"].as_str().unwrap_or_default().to_owned()
}

fn json(status: &str) -> String {
    format!("{{\"status\":\"{status}\"}}\n")
}

/// The state after the next change; `None` if there will be none.
async fn changed(mut states: watch::Receiver<State>) -> Option<(State, watch::Receiver<State>)> {
    states.changed().await.ok()?;
    let state = states.borrow_and_update().clone();
    Some((state, states))
}

type Change = Pin<Box<dyn Future<Output = Option<(State, watch::Receiver<State>)>>>>;

/// The statuses of a service, one after the other.
struct Watch {
    service: String,
    told: Option<&'static str>,
    change: Change,
    drains: bool,
}

impl BodyStream for Watch {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        loop {
            if self.drains {
                return Poll::Ready(Some(Err(Aborted("the server is shutting down"))));
            }
            let Some((state, states)) = ready!(self.change.as_mut().poll(cx)) else { return Poll::Ready(None) };
            self.drains = state.drains;
            self.change = Box::pin(changed(states));
            let status = state.of(&self.service).unwrap_or("SERVICE_UNKNOWN");
            if self.told != Some(status) {
                self.told = Some(status);
                return Poll::Ready(Some(Ok(Frame::data(json(status).into()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_served_until_the_server_drains() {
        let health = Health::default();
        health.serves(&["a.B".to_owned()]);
        let check = |name: &str| {
            let response = health.check(&format!("{{\"service\":\"{name}\"}}").into());
            response.map(|response| response.body.to_bytes()).map_err(|status| status.code)
        };
        assert_eq!(check("").unwrap(), "{\"status\":\"SERVING\"}\n");
        assert_eq!(check("a.B").unwrap(), "{\"status\":\"SERVING\"}\n");
        assert_eq!(check("a.C"), Err(NOT_FOUND));
        let all = r#"{"statuses":{"":{"status":"SERVING"},"a.B":{"status":"SERVING"}}}"#;
        assert_eq!(health.list().body.to_bytes(), all);
        health.drain();
        assert_eq!(check("a.B").unwrap(), "{\"status\":\"NOT_SERVING\"}\n");
        health.serves(&[]);
        assert_eq!(check("a.B"), Err(NOT_FOUND));
    }
}
