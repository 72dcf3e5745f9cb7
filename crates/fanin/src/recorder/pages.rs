//! The admin pages of recorded requests.

use std::sync::Arc;
use std::time::Duration;

use fanin_server::{DebugPage, DebugWork, PageLink};
use http::Method;
use serde_json::json;

use super::{Recorded, Recorder, STEP, by_route};

/// Computing time of one page.
const BUDGET: Duration = Duration::from_secs(2);
/// Requests on a page, unless the query sets it.
const REQUESTS: usize = 50;
/// Requests on a page at most.
const MOST: usize = 2000;

/// The pages, for the index.
pub fn links() -> Vec<PageLink> {
    vec![
        PageLink {
            href: "/requests",
            description: "the last requests with their calls, as JSON; ?slowest=20, ?route=…, ?failed",
        },
        PageLink {
            href: "/requests/by-route",
            description: "?route=GET+/…: what its recent requests waited for, and what shorter calls would gain",
        },
    ]
}

/// The work that makes a page. `None` if there is no such page.
pub fn page(recorder: &Arc<Recorder>, method: &Method, path: &str, query: Option<&str>) -> Option<DebugWork> {
    let query = Query::read(query.unwrap_or(""));
    let recorder = recorder.clone();
    let get = *method == Method::GET || *method == Method::HEAD;
    match path.strip_prefix("/requests")? {
        "" if get => Some(Box::new(move || as_json(&list(&recorder, &query)))),
        "/by-route" if get => Some(Box::new(move || as_json(&route(&recorder, &query)))),
        "/token" if *method == Method::POST => Some(Box::new(move || as_json(&json!({"token": recorder.token()})))),
        id if get => {
            let id = id.strip_prefix('/')?.to_owned();
            recorder.find(&id)?;
            Some(Box::new(move || {
                let trace = recorder.find(&id).map(|one| one.trace(one.is_full().then_some(query.step), BUDGET));
                as_json(&json!(trace))
            }))
        }
        _ => None,
    }
}

fn as_json(value: &serde_json::Value) -> DebugPage {
    DebugPage { kind: "application/json", body: value.to_string().into_bytes() }
}

/// What a query asks for.
struct Query {
    route: Option<String>,
    slowest: Option<usize>,
    last: usize,
    failed: bool,
    step: Duration,
}

impl Query {
    fn read(text: &str) -> Query {
        let mut query = Query { route: None, slowest: None, last: REQUESTS, failed: false, step: STEP };
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let number = value.parse::<usize>().ok();
            match &*name {
                "route" => query.route = Some(value.into_owned()),
                "slowest" => query.slowest = Some(number.unwrap_or(REQUESTS).min(MOST)),
                "last" => query.last = number.unwrap_or(REQUESTS).min(MOST),
                "failed" => query.failed = true,
                "step_us" => query.step = number.map_or(STEP, |micros| Duration::from_micros(micros as u64)),
                _ => {}
            }
        }
        query
    }

    fn wants(&self, request: &Recorded) -> bool {
        self.route.as_ref().is_none_or(|route| *route == *request.route)
            && (!self.failed || request.status.is_server_error() || request.partial)
    }
}

fn list(recorder: &Recorder, query: &Query) -> serde_json::Value {
    let mut found: Vec<Arc<Recorded>> = recorder.requests().into_iter().filter(|one| query.wants(one)).collect();
    if query.slowest.is_some() {
        found.sort_by_key(|one| std::cmp::Reverse(one.duration));
    }
    found.truncate(query.slowest.unwrap_or(query.last));
    json!({"requests": found.iter().map(|one| one.trace(None, BUDGET)).collect::<Vec<_>>()})
}

fn route(recorder: &Recorder, query: &Query) -> serde_json::Value {
    let requests: Vec<Arc<Recorded>> =
        recorder.requests().into_iter().filter(|one| one.is_full() && query.wants(one)).take(query.last).collect();
    json!(by_route::explain(query.route.as_deref().unwrap_or("all routes"), &requests, query.step, BUDGET))
}
