//! A response, as tests look at it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_flow::{FlowError, FlowRecord};
use fanin_lang::value::Object;
use fanin_lang::{Kind, Stop, Value};
use fanin_trace::{CallTrace, Sharing};
use http::header::{CONTENT_TYPE, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::stub::split;
use crate::values::{self, number, structure};

/// What a request was answered.
pub(crate) struct Received {
    /// Method and target.
    pub(crate) request: String,
    /// Its route; empty if there is none.
    pub(crate) route: String,
    pub(crate) sent: Sent,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the body ended as it should.
    pub(crate) is_complete: bool,
    /// The upstreams whose optional calls failed, separated by commas.
    pub(crate) partial: Option<String>,
    pub(crate) error: Option<FlowError>,
    pub(crate) record: Option<Arc<FlowRecord>>,
    pub(crate) elapsed: Duration,
}

/// The request, for `always(req, result)`.
#[derive(Default)]
pub(crate) struct Sent {
    method: String,
    target: String,
    pub(crate) headers: HeaderMap,
    body: Bytes,
}

impl Sent {
    pub(crate) fn new(method: &Method, uri: &Uri, headers: HeaderMap, body: Bytes) -> Sent {
        Sent { method: method.to_string(), target: uri.to_string(), headers, body }
    }

    /// Method and path.
    pub(crate) fn place(&self) -> (Method, &str) {
        (Method::from_bytes(self.method.as_bytes()).unwrap_or_default(), split(&self.target).0)
    }

    pub(crate) fn value(&self) -> Value {
        let (path, query) = split(&self.target);
        let query: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        structure([
            ("method", Value::str(&self.method)),
            ("path", Value::str(path)),
            ("query", Value::record(query.iter().map(|(name, value)| (name.as_str(), Value::str(value))))),
            ("headers", values::headers(&self.headers)),
            ("json", values::json(&self.body).unwrap_or_default()),
            ("text", Value::str(&String::from_utf8_lossy(&self.body))),
        ])
    }
}

impl Received {
    /// The server's own answer, without a flow.
    pub(crate) fn by_server(request: String, status: StatusCode) -> Received {
        Received {
            request,
            route: String::new(),
            sent: Sent::default(),
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            is_complete: true,
            partial: None,
            error: None,
            record: None,
            elapsed: Duration::ZERO,
        }
    }

    /// The server's answer to a request whose flow has not ended by the deadline.
    pub(crate) fn late(request: String, route: String, elapsed: Duration) -> Received {
        let status = StatusCode::GATEWAY_TIMEOUT;
        Received { route, elapsed, ..Received::by_server(request, status) }
    }

    /// Its calls, in the order in which the flow made them.
    pub(crate) fn calls(&self) -> Vec<CallTrace> {
        self.record.as_ref().map_or_else(Vec::new, |record| record.calls())
    }

    /// The request in a line, why it failed, and its calls as bars.
    pub(crate) fn describe(&self) -> String {
        let millis = self.elapsed.as_secs_f64() * 1e3;
        let mut text = format!("{}   {}   {millis} ms", self.request, self.status.as_u16());
        if let Some(partial) = &self.partial {
            text.push_str(&format!("   partial: {partial}"));
        }
        text.push('\n');
        if let Some(error) = &self.error {
            text.push_str(&format!("{}: {}\n", error.kind, error.detail));
        }
        let calls = self.calls();
        if !calls.is_empty() {
            text.push_str(&fanin_trace::draw(&calls, self.elapsed));
        }
        text
    }
}

/// How many requests one after another: the longest chain of calls that were each made or sent after the one before had ended. A call
/// that a cache or a snapshot answers adds nothing.
pub(crate) fn rounds(calls: &[CallTrace]) -> usize {
    let mut depth = vec![0usize; calls.len()];
    // A call awaits only calls that were made before it, or that ended before it was sent.
    let mut order: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].sent.is_some()).collect();
    order.sort_by_key(|at| (calls[*at].sent, *at));
    for at in order {
        let awaited = calls[at].awaited.iter().filter_map(|before| depth.get(*before as usize)).max();
        let own = usize::from(!matches!(calls[at].sharing, Sharing::Cache | Sharing::Snapshot));
        depth[at] = own + awaited.copied().unwrap_or(0);
    }
    depth.into_iter().max().unwrap_or(0)
}

/// `Received` as a value.
pub(crate) struct ResponseObject(pub(crate) Rc<Received>);

impl fmt::Debug for ResponseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<response {} to {}>", self.0.status.as_u16(), self.0.request)
    }
}

const ATTRIBUTES: [&str; 15] = [
    "body", "calls", "complete", "cookies", "elapsed", "error", "headers", "json", "partial", "request", "rounds",
    "route", "sent", "status", "text",
];

impl Object for ResponseObject {
    fn type_name(&self) -> &'static str {
        "response"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, Stop> {
        let it = &self.0;
        let text = || String::from_utf8_lossy(&it.body).into_owned();
        Ok(Some(match name {
            "status" => Value::Int(it.status.as_u16().into()),
            "headers" => values::headers(&it.headers),
            "cookies" => cookies(&it.headers),
            "text" => Value::str(&text()),
            "body" if it.headers.get(CONTENT_TYPE).is_none_or(|kind| !is_json(kind.as_bytes())) => Value::str(&text()),
            "json" | "body" => match values::json(&it.body) {
                Some(value) => value,
                None => {
                    let start: String = text().chars().take(80).collect();
                    return Err(Stop::fail(Kind::Value, format!("the body of the response is no JSON: {start:?}")));
                }
            },
            "partial" => {
                let names = it.partial.iter().flat_map(|names| names.split(','));
                Value::list(names.map(|name| Value::str(name.trim())).collect())
            }
            "complete" => Value::Bool(it.is_complete),
            "elapsed" => number(it.elapsed.as_secs_f64() * 1e3),
            "request" => Value::str(&it.request),
            "route" => Value::str(&it.route),
            "sent" => it.sent.value(),
            "rounds" => Value::Int(rounds(&it.calls()) as i64),
            "calls" => Value::list(it.calls().iter().map(call).collect()),
            "error" => match &it.error {
                None => Value::None,
                Some(error) => structure([
                    ("kind", Value::str(error.kind)),
                    ("message", Value::str(&error.detail)),
                    ("upstream", error.upstream.as_deref().map_or(Value::None, Value::str)),
                ]),
            },
            _ => return Ok(None),
        }))
    }

    fn names(&self) -> Vec<&str> {
        ATTRIBUTES.to_vec()
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

/// The cookies that a response sets, by name: each with its value, and its attributes as text.
fn cookies(headers: &HeaderMap) -> Value {
    let lines = headers.get_all(SET_COOKIE).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    let all: Vec<(String, Value)> = lines
        .map(|line| {
            let (pair, attributes) = line.split_once(';').unwrap_or((&line, ""));
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let fields = structure([("value", Value::str(value)), ("attributes", Value::str(attributes.trim()))]);
            (name.to_owned(), fields)
        })
        .collect();
    Value::record(all.iter().map(|(name, value)| (name.as_str(), value.clone())))
}

fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    essence == b"application/json" || essence.ends_with(b"+json")
}

/// A call as a value.
fn call(call: &CallTrace) -> Value {
    let millis = |time: Duration| number(time.as_secs_f64() * 1e3);
    let (method, path) = call.target.split_once(' ').unwrap_or(("", &call.target));
    let batch = match call.sharing {
        Sharing::Batch { batch, .. } => Value::Int(batch.into()),
        _ => Value::None,
    };
    let shared = match call.sharing {
        Sharing::Alone => "",
        Sharing::Cache => "cache",
        Sharing::Snapshot => "snapshot",
        Sharing::SingleFlight => "single-flight",
        Sharing::Batch { .. } | Sharing::SharedBatch => "batch",
    };
    structure([
        ("upstream", Value::str(&call.upstream)),
        ("operation", call.operation.as_deref().map_or(Value::None, Value::str)),
        ("verb", Value::str(method)),
        ("path", Value::str(path)),
        ("line", Value::str(&call.line)),
        ("required", Value::Bool(call.required)),
        ("made", millis(call.made)),
        ("sent", call.sent.map_or(Value::None, millis)),
        ("ended", call.ended.map_or(Value::None, millis)),
        ("outcome", Value::str(&call.outcome)),
        ("shared", Value::str(shared)),
        ("batch", batch),
        ("attempts", Value::Int(call.attempts.len() as i64)),
        ("critical", Value::Bool(call.critical)),
    ])
}
