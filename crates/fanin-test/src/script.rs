//! Answers the attempts of a test's flows from its stubs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanin_config::{Batch, ParamLocation, QueryLists, Upstream, UpstreamKind};
use fanin_lang::Program;
use fanin_lang::Value;
use fanin_lang::value::view;
use fanin_upstream::{ErrorKind, Stub, StubAnswer, StubFailure, StubFuture, StubRequest};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::deviate::Deviations;
use crate::functions;
use crate::setting::Setting;
use crate::stub::{AnswerSpec, End, Fail, Planned, SentRequest, Status, StubRule, Stubs, split};
use crate::values::{self, number};

/// What a test shares with the stubs that answer its flows.
pub(crate) struct Shared {
    pub(crate) stubs: Stubs,
    pub(crate) deviations: Deviations,
    /// Whether the server would not be ready yet: what is requested now is not the flows' doing.
    pub(crate) is_starting: Cell<bool>,
    /// The test's program, for stubs that are functions.
    pub(crate) program: Program,
    pub(crate) random: RefCell<fastrand::Rng>,
    /// When the test began, in virtual time.
    pub(crate) epoch: Cell<Option<Instant>>,
    pub(crate) setting: Arc<Setting>,
}

/// Answers attempts from stubs.
pub(crate) struct Script(pub(crate) Rc<Shared>);

impl Shared {
    /// Milliseconds of virtual time since the test began.
    pub(crate) fn now(&self) -> f64 {
        self.epoch.get().map_or(0.0, |epoch| epoch.elapsed().as_secs_f64() * 1e3)
    }

    /// The configuration of an upstream.
    pub(crate) fn config(&self, upstream: &str) -> Option<&Upstream> {
        self.setting.config.upstreams.get(upstream)
    }

    /// What the flow called: an operation, a statement, a method, or a verb.
    fn method_of(&self, request: &StubRequest) -> String {
        let config = self.config(&request.upstream);
        let named = request
            .operation
            .zip(config)
            .and_then(|(at, config)| config.named_calls().get_index(at as usize).map(|(name, _)| name.clone()));
        named.unwrap_or_else(|| match config.map(Upstream::kind) {
            None | Some(UpstreamKind::Http) => request.method.as_str().to_ascii_lowercase(),
            Some(_) => split(&request.path_and_query).0.rsplit('/').next().unwrap_or_default().to_owned(),
        })
    }
}

impl Stub for Script {
    fn answer(&self, request: StubRequest) -> StubFuture {
        let shared = &self.0;
        let method = shared.method_of(&request);
        shared.stubs.sent.borrow_mut().push(SentRequest {
            request: request.clone(),
            method: method.clone(),
            at: shared.now(),
            left: request.deadline.saturating_duration_since(Instant::now()),
            is_start: shared.is_starting.get(),
            planned: None,
        });
        let deviations = match shared.is_starting.get() {
            true => Vec::new(),
            false => shared.deviations.of(&request, &method),
        };
        let rules = shared.stubs.rules.borrow();
        let found = rules.iter().rev().find_map(|rule| Some((rule.clone(), rule.find(&request, &method)?)));
        drop(rules);
        let Some((rule, params)) = found else {
            let (path, _) = split(&request.path_and_query);
            let what = format!("there is no stub for {}.{method} {} {path}", request.upstream, request.method);
            shared.stubs.problem(what.clone());
            return Box::pin(async move { Err(StubFailure { kind: ErrorKind::Refused, detail: what }) });
        };
        let (nth, spec) = rule.next();
        let built = build(shared, &rule, spec, &request, &params, nth);
        let healthy = match &built {
            Ok((delay, Outcome::Answer(answer))) => Some((*delay, answer.status, answer.body.clone())),
            _ => None,
        };
        let deviates = !deviations.is_empty();
        let built = built.and_then(|built| deviated(shared, built, deviations));
        if let Ok((delay, outcome)) = &built
            && let Some(sent) = shared.stubs.sent.borrow_mut().last_mut()
        {
            sent.planned = Some(Planned { healthy, deviates, delay: *delay, end: End::of(outcome) });
        }
        let (delay, outcome) = match built {
            Ok(built) => built,
            Err(problem) => {
                shared.stubs.problem(format!("the stub of {} at {}: {problem}", rule.describe(), rule.position));
                let failure = StubFailure { kind: ErrorKind::Protocol, detail: problem };
                return Box::pin(async move { Err(failure) });
            }
        };
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            match outcome {
                Outcome::Answer(answer) => Ok(answer),
                Outcome::Fails(failure) => Err(failure),
                Outcome::Never => std::future::pending().await,
            }
        })
    }
}

enum Outcome {
    Answer(StubAnswer),
    Fails(StubFailure),
    Never,
}

impl End {
    fn of(outcome: &Outcome) -> End {
        match outcome {
            Outcome::Answer(_) => End::Answer,
            Outcome::Fails(StubFailure { kind: ErrorKind::Refused | ErrorKind::Connect, .. }) => End::NotSent,
            Outcome::Fails(_) => End::Fails,
            Outcome::Never => End::Never,
        }
    }
}

/// What a request is answered if its answer deviates from the stub's.
fn deviated(
    shared: &Shared,
    (mut delay, mut outcome): (Duration, Outcome),
    deviations: Vec<(AnswerSpec, Vec<crate::deviate::Edit>)>,
) -> Result<(Duration, Outcome), String> {
    for (spec, edits) in deviations {
        if let Some(other) = spec.delay {
            delay = other.draw(&mut shared.random.borrow_mut());
        }
        if spec.answer.is_some() || spec.text.is_some() || spec.status.is_some() || spec.fail.is_some() {
            outcome = outcome_of(&spec)?;
        }
        if let Outcome::Answer(answer) = &mut outcome {
            for edit in edits {
                answer.body = edit.apply(&answer.body)?.into();
            }
        }
    }
    Ok((delay, outcome))
}

/// After how long a request is answered, and what.
fn build(
    shared: &Shared,
    rule: &StubRule,
    spec: AnswerSpec,
    request: &StubRequest,
    params: &[(String, String)],
    nth: u64,
) -> Result<(Duration, Outcome), String> {
    let mut spec = spec;
    if let Some(items) = &rule.items {
        let whole = batch_answer(shared, request, items)?;
        spec.answer = Some(whole);
    } else if let Some(answer) = &spec.answer
        && functions::is_function(answer)
    {
        let call = call_value(request, params, nth, shared.now());
        let given = functions::run(&shared.program, answer, vec![call])?;
        let defaults = AnswerSpec { answer: None, ..spec };
        spec = match values::reply_of(&given)? {
            Some(reply) => reply.or(&defaults),
            None => AnswerSpec { answer: Some(given), ..defaults },
        };
        if spec.answer.as_ref().is_some_and(functions::is_function) {
            return Err("a function gave another function".to_owned());
        }
    }
    let delay = spec.delay.map_or(Duration::ZERO, |delay| delay.draw(&mut shared.random.borrow_mut()));
    Ok((delay, outcome_of(&spec)?))
}

/// What a request is answered.
fn outcome_of(spec: &AnswerSpec) -> Result<Outcome, String> {
    let json = || HeaderValue::from_static("application/json");
    let mut headers: HeaderMap = spec.headers.iter().cloned().collect();
    Ok(match spec.fail {
        Some(Fail::Timeout) => Outcome::Never,
        Some(Fail::Kind(kind)) => Outcome::Fails(StubFailure { kind, detail: format!("the stub says {kind}") }),
        Some(Fail::TooLarge) => Outcome::Fails(StubFailure {
            kind: ErrorKind::TooLarge,
            detail: "the stub says that the body is larger than max_answer".to_owned(),
        }),
        Some(Fail::Decode) => {
            headers.entry(CONTENT_TYPE).or_insert_with(json);
            let body = Bytes::from_static(b"{\"broken\":");
            Outcome::Answer(StubAnswer { status: StatusCode::OK, headers, body, message: None })
        }
        None => {
            let (status, message) = match &spec.status {
                None => (StatusCode::OK, None),
                Some(Status::Http(status)) => (*status, None),
                Some(Status::Grpc(code, status)) => (*status, Some((*code).to_owned())),
            };
            let body = match (&spec.answer, &spec.text) {
                (Some(value), _) => {
                    headers.entry(CONTENT_TYPE).or_insert_with(json);
                    fanin_flow::to_json(value)?
                }
                (None, Some(text)) => {
                    let plain = || HeaderValue::from_static("text/plain; charset=utf-8");
                    headers.entry(CONTENT_TYPE).or_insert_with(plain);
                    Bytes::copy_from_slice(text.as_bytes())
                }
                (None, None) => Bytes::new(),
            };
            Outcome::Answer(StubAnswer { status, headers, body, message })
        }
    })
}

/// A request, as functions of stubs see it.
fn call_value(request: &StubRequest, params: &[(String, String)], nth: u64, at: f64) -> Value {
    let mut fields = request_fields(request);
    fields.push(("params", Value::record(params.iter().map(|(name, value)| (name.as_str(), Value::str(value))))));
    fields.push(("number", Value::Int(i64::try_from(nth).unwrap_or(i64::MAX))));
    fields.push(("at", number(at)));
    values::structure(fields)
}

/// What a request has, as values.
pub(crate) fn request_fields(request: &StubRequest) -> Vec<(&'static str, Value)> {
    let (path, query) = split(&request.path_and_query);
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let mut first: Vec<(&str, Value)> = Vec::new();
    let mut all: Vec<(&str, Vec<Value>)> = Vec::new();
    for (name, value) in &pairs {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(Value::str(value)),
            None => {
                first.push((name, Value::str(value)));
                all.push((name, vec![Value::str(value)]));
            }
        }
    }
    let text = String::from_utf8_lossy(&request.body);
    vec![
        ("upstream", Value::str(&request.upstream)),
        ("verb", Value::str(request.method.as_str())),
        ("path", Value::str(path)),
        ("query", Value::record(first)),
        ("query_all", Value::record(all.into_iter().map(|(name, values)| (name, Value::list(values))))),
        ("headers", values::headers(&request.headers)),
        ("json", values::json(&request.body).unwrap_or_default()),
        ("text", Value::str(&text)),
    ]
}

/// The answer of a batched operation: the items of the keys that the request asks for.
fn batch_answer(shared: &Shared, request: &StubRequest, items: &Value) -> Result<Value, String> {
    let config = shared.config(&request.upstream);
    let calls = config.map(Upstream::named_calls).unwrap_or_default();
    let at = request.operation.ok_or("items is for operations with a batch")?;
    let (_, operation) = calls.get_index(at as usize).ok_or("items is for operations with a batch")?;
    let batch = operation.batch.as_ref().ok_or("items is for operations with a batch")?;
    if config.map(Upstream::kind) != Some(UpstreamKind::Http) {
        return Err("items is for HTTP upstreams: write answer = a function of the call".to_owned());
    }
    let lists = config.map_or(QueryLists::default(), |config| config.query_lists);
    let param = operation.params.as_ref().and_then(|params| params.get(&batch.key));
    let name = param.map_or(batch.key.as_str(), |param| param.wire_name(&batch.key));
    let keys = match param.map(|param| param.location) {
        Some(ParamLocation::Json) => body_keys(&request.body, name)?,
        Some(ParamLocation::Header) => return Err("items does not read keys from headers".to_owned()),
        _ => query_keys(&request.path_and_query, name, lists),
    };
    let entries = view::entries(items).ok_or("items must be a dict: an item for each key")?;
    let mut found: Vec<(String, Value)> = Vec::new();
    for key in keys {
        if let Some((_, item)) = entries.iter().find(|(own, _)| values::plain(own) == key) {
            found.push((key, item.clone()));
        }
    }
    Ok(shape(batch, found))
}

fn shape(batch: &Batch, found: Vec<(String, Value)>) -> Value {
    let all = match &batch.match_field {
        Some(_) => Value::list(found.into_iter().map(|(_, item)| item).collect()),
        None => Value::record(found.iter().map(|(key, item)| (key.as_str(), item.clone()))),
    };
    match &batch.items {
        Some(member) => Value::record([(member.as_str(), all)]),
        None => all,
    }
}

fn query_keys(path_and_query: &str, name: &str, lists: QueryLists) -> Vec<String> {
    let (_, query) = split(path_and_query);
    let values = form_urlencoded::parse(query.as_bytes()).filter(|(given, _)| given == name);
    let split = |value: &str| match lists {
        QueryLists::Comma => value.split(',').map(ToOwned::to_owned).collect(),
        QueryLists::Repeat => vec![value.to_owned()],
    };
    values.flat_map(|(_, value)| split(&value)).collect()
}

fn body_keys(body: &[u8], name: &str) -> Result<Vec<String>, String> {
    let body: serde_json::Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let keys = body.get(name).and_then(|keys| keys.as_array().cloned()).unwrap_or_default();
    let text = |key: serde_json::Value| match key {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(keys.into_iter().map(text).collect())
}
