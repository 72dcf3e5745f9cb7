//! A scripted host for tests: it records calls, and settles them in the order that a test chooses.

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use arcstr::ArcStr;
use bytes::Bytes;
use fanin_json::Doc;

use crate::error::{Diagnostic, Failure, Kind, Position};
use crate::host::{CallSite, Effect, Host, HostCall, HostObject, HostRef, Method};
use crate::machine::{Instance, Machine, Run};
use crate::meter::Limits;
use crate::native::Globals;
use crate::pending::{CallHandle, Outcome, PendingValue};
use crate::program::{Loaded, Loader, Program};
use crate::program_order::ProgramOrder;
use crate::value::capture::{Readiness, readiness};
use crate::value::view::{self, Kind as ValueKind};
use crate::value::{FrozenValue, Value};

/// A host object whose `get` reads and whose `post` writes, unless it is called with `safe = True` or
/// `unordered = True`.
#[derive(Debug)]
pub struct Service(pub &'static str);

const METHODS: [&str; 2] = ["get", "post"];

impl HostObject for Service {
    fn type_name(&self) -> &str {
        "upstream"
    }

    fn name(&self) -> &str {
        self.0
    }

    fn method(&self, name: &str, literal: &dyn Fn(&str) -> Option<Value>) -> Option<Method> {
        let yes = |name| matches!(literal(name), Some(Value::Bool(true)));
        let id = METHODS.iter().position(|method| *method == name)?;
        let effect = if name == "get" || yes("safe") || yes("unordered") { Effect::Read } else { Effect::Write };
        Some(Method { id: id as u32, effect })
    }

    fn names(&self) -> Vec<&str> {
        METHODS.to_vec()
    }
}

/// Loads files from a list, and the services `a`, `b` and `c` from `@upstreams`.
#[derive(Debug)]
pub struct Files(pub Vec<(&'static str, String)>);

impl Loader for Files {
    fn load(&self, module: &str, _from: &str) -> Result<Loaded, String> {
        if module == "@upstreams" {
            let service = |name| (ArcStr::from(name), FrozenValue::Host(HostRef::new(Service(name))));
            return Ok(Loaded::Values(vec![service("a"), service("b"), service("c")]));
        }
        if let Some(values) = module.strip_prefix('@').and_then(crate::modules::find) {
            return Ok(Loaded::Values(values));
        }
        match self.0.iter().find(|(name, _)| *name == module) {
            Some((name, text)) => Ok(Loaded::Source { name: ArcStr::from(*name), text: text.clone() }),
            None => Err(format!("there is no file {module}")),
        }
    }

    fn effect(&self, method: &str) -> Option<Effect> {
        match method {
            "get" => Some(Effect::Read),
            "post" => Some(Effect::Write),
            _ => None,
        }
    }
}

/// A program of one file, which can load the services.
///
/// # Errors
/// What is wrong with it.
pub fn program(text: &str) -> Result<Program, Vec<Diagnostic>> {
    let text = format!("load(\"@upstreams\", \"a\", \"b\", \"c\")\n{text}");
    Program::load(Arc::new(Globals::standard()), &Files(vec![("test.star", text)]), &["test.star"])
}

/// What a call is answered with.
#[derive(Debug, Clone)]
pub enum Answer {
    /// JSON.
    Json(String),
    /// The call fails.
    Fail,
}

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its arguments are not all there.
    Arguments,
    /// It was sent.
    Sent,
    /// It was answered, or could not be sent.
    Settled,
}

/// A call that was made.
#[derive(Debug)]
pub struct TestCall {
    /// `a.get`
    pub name: String,
    /// Its arguments, captured.
    pub args: Vec<Value>,
    /// Keyword arguments.
    pub named: Vec<(ArcStr, Value)>,
    /// Its pending.
    pub pending: PendingValue,
    /// Its effect.
    pub effect: Effect,
    /// Its place in program order.
    pub order: ProgramOrder,
    /// Its place in the source.
    pub position: Position,
    /// Where it is.
    pub state: State,
    /// Its arguments as JSON, once it was sent.
    pub text: String,
}

impl TestCall {
    fn flag(&self, name: &str) -> bool {
        self.named.iter().any(|(given, value)| given == name && matches!(value, Value::Bool(true)))
    }
}

struct Source {
    name: String,
}

impl CallHandle for Source {
    fn attribute(&self, name: &str, outcome: &Outcome) -> Result<Option<Value>, Failure> {
        let failed = matches!(outcome, Err(_) | Ok(Value::Absent(_)));
        match (name, outcome) {
            ("failed", _) => Ok(Some(Value::Bool(failed))),
            ("error", Err(failure) | Ok(Value::Absent(failure))) => Ok(Some(Value::str(&failure.message))),
            ("error", Ok(_)) => Ok(Some(Value::None)),
            ("status", Ok(_)) => Ok(Some(Value::Int(200))),
            ("status", Err(failure)) => Err((**failure).clone()),
            _ => Ok(None),
        }
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["failed", "error", "status"]
    }

    fn describe(&self) -> String {
        format!("the answer of {}", self.name)
    }
}

/// Answers a call by its name and its arguments as JSON.
pub type Answers = Box<dyn Fn(&str, &str) -> Answer>;

/// The scripted host.
pub struct TestHost {
    /// Calls in the order they were made.
    pub calls: Vec<TestCall>,
    /// Calls in the order they were sent, as `a.get("/x")`.
    pub sent: Vec<String>,
    /// What was printed.
    pub printed: Vec<String>,
    answers: Answers,
    /// Whether a call that is sent is answered at once.
    at_once: Box<dyn FnMut() -> bool>,
    program: Program,
}

impl TestHost {
    /// A host that answers as `answers` says, each call at once if `at_once` gives true.
    pub fn new(program: &Program, answers: Answers, at_once: Box<dyn FnMut() -> bool>) -> Self {
        Self { calls: Vec::new(), sent: Vec::new(), printed: Vec::new(), answers, at_once, program: program.clone() }
    }

    /// Sends calls whose arguments have come.
    pub fn send_ready(&mut self) {
        loop {
            let mut changed = false;
            for at in 0..self.calls.len() {
                if self.calls[at].state == State::Arguments {
                    changed |= self.try_send(at);
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn try_send(&mut self, at: usize) -> bool {
        let call = &self.calls[at];
        let all =
            Value::list(call.args.iter().cloned().chain(call.named.iter().map(|(_, value)| value.clone())).collect());
        let outcome = match readiness(&all) {
            Readiness::Pending(_) => return false,
            Readiness::Ready => None,
            Readiness::Failed(failure) => {
                Some(if call.flag("optional") { Ok(Value::Absent(failure)) } else { Err(failure) })
            }
            Readiness::Absent(failure) => Some(Ok(Value::Absent(failure))),
            Readiness::TooDeep => Some(Err(Rc::new(Failure::new(Kind::Limit, "too deep")))),
        };
        if let Some(outcome) = outcome {
            self.calls[at].state = State::Settled;
            self.calls[at].pending.settle_shared(outcome);
            return true;
        }
        let mut text = String::new();
        for (index, arg) in call.args.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            json(arg, &mut text);
        }
        for (name, value) in &call.named {
            if name == "query" || name == "json" {
                text.push(',');
                json(value, &mut text);
            }
        }
        self.sent.push(format!("{}({text})", call.name));
        self.calls[at].text = text;
        self.calls[at].state = State::Sent;
        if (self.at_once)() {
            self.settle(at);
        }
        true
    }

    /// Calls that were sent and not answered.
    pub fn open(&self) -> Vec<usize> {
        (0..self.calls.len()).filter(|at| self.calls[*at].state == State::Sent).collect()
    }

    /// Answers a call.
    pub fn settle(&mut self, at: usize) {
        let call = &mut self.calls[at];
        call.state = State::Settled;
        let outcome = match (self.answers)(&call.name, &call.text) {
            Answer::Json(text) => match Doc::parse(Bytes::from(text), 128) {
                Ok(doc) => Ok(Value::json(doc)),
                Err(error) => Err(Failure::new(Kind::Host, error.to_string()).at(call.position.clone())),
            },
            Answer::Fail => {
                let failure =
                    Failure::new(Kind::Host, format!("{}({}) failed", call.name, call.text)).at(call.position.clone());
                if call.flag("optional") { Ok(Value::Absent(Rc::new(failure))) } else { Err(failure) }
            }
        };
        let pending = call.pending.clone();
        pending.settle(outcome);
    }
}

impl Host for TestHost {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, Failure> {
        let name = format!("{}.{}", call.object.name(), METHODS[call.method as usize]);
        let args = call.args.pos.iter().map(|value| call.capture(value)).collect::<Result<_, _>>()?;
        let named = call
            .args
            .names
            .iter()
            .zip(call.args.named)
            .map(|(name, value)| call.capture(value).map(|value| (name.clone(), value)))
            .collect::<Result<_, _>>()?;
        let pending = PendingValue::call(Rc::new(Source { name: call.object.name().to_owned() }));
        self.calls.push(TestCall {
            name,
            args,
            named,
            pending: pending.clone(),
            effect: call.effect,
            order: call.order.clone(),
            position: self.program.position(call.call_site),
            state: State::Arguments,
            text: String::new(),
        });
        self.send_ready();
        Ok(Value::Pending(pending))
    }

    fn barrier(&mut self, order: &ProgramOrder) -> Option<PendingValue> {
        self.calls
            .iter()
            .filter(|call| call.order < *order && !call.flag("optional"))
            .filter(|call| !matches!(call.pending.outcome(), Some(Ok(_))))
            .min_by(|a, b| a.order.cmp(&b.order))
            .map(|call| call.pending.clone())
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }

    fn print(&mut self, text: &str, _site: CallSite) {
        self.printed.push(text.to_owned());
    }

    fn made(&self, doc: &Doc) -> Option<Position> {
        self.calls.iter().find_map(|call| match call.pending.outcome() {
            Some(Ok(Value::Json { doc: own, .. })) if own.same(doc) => Some(call.position.clone()),
            _ => None,
        })
    }

    fn origin(&self, doc: &Doc) -> Option<String> {
        self.calls.iter().find_map(|call| match call.pending.outcome() {
            Some(Ok(Value::Json { doc: own, .. })) if own.same(doc) => Some(format!("the answer of {}", call.name)),
            _ => None,
        })
    }
}

/// Runs a function to its end. `pick` chooses which open call is answered next: it is given how many
/// there are. The result is JSON; what it holds of answers has come.
///
/// # Errors
/// The flow's failure.
///
/// # Panics
/// If nothing can run and no call is open: the machine has lost a fiber.
pub fn run(
    program: &Program,
    function: &str,
    args: Vec<Value>,
    limits: Limits,
    host: &mut TestHost,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Result<String, Box<Failure>> {
    let Some(function) = program.function("test.star", function) else {
        return Err(Box::new(Failure::new(Kind::Name, format!("there is no function {function}"))));
    };
    let mut machine = Machine::new();
    let mut instance = Instance::new(program, function, args, limits)?;
    loop {
        match instance.run(&mut machine, host, 1000) {
            Run::Failed(failure) => return Err(failure),
            Run::Yielded => {}
            Run::Waiting => {
                host.send_ready();
                if instance.is_ready() {
                    continue;
                }
                let open = host.open();
                assert!(!open.is_empty(), "nothing can run and nothing is in flight");
                host.settle(open[pick(open.len())]);
                host.send_ready();
            }
            Run::Done(value) => loop {
                host.send_ready();
                match readiness(&value) {
                    Readiness::Ready | Readiness::Absent(_) => {
                        let mut text = String::new();
                        json(&value, &mut text);
                        return Ok(text);
                    }
                    Readiness::Failed(failure) => return Err(Box::new((*failure).clone())),
                    Readiness::TooDeep => return Err(Box::new(Failure::new(Kind::Limit, "nested too deep"))),
                    Readiness::Pending(_) => {
                        let open = host.open();
                        assert!(!open.is_empty(), "the result waits for nothing");
                        host.settle(open[pick(open.len())]);
                    }
                }
            },
        }
    }
}

/// A value that is all there as JSON, near enough for tests.
pub fn json(value: &Value, out: &mut String) {
    json_within(value, out, 0);
}

fn json_within(value: &Value, out: &mut String, depth: usize) {
    // Deeper than anything that the language itself looks through, or a value within itself.
    if depth > crate::value::compare::MAX_NESTING {
        out.push_str("\"<deep>\"");
        return;
    }
    let Ok(value) = value.decide() else {
        out.push_str("\"<failed>\"");
        return;
    };
    match &value {
        Value::None => out.push_str("null"),
        Value::Bool(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Int(value) => {
            let _ = write!(out, "{value}");
        }
        Value::BigInt(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Float(value) => crate::value::display::write_float(out, *value),
        Value::Str(text) => crate::value::display::write_quoted(out, text),
        other => match view::kind(other) {
            ValueKind::List | ValueKind::Tuple | ValueKind::Set | ValueKind::Range => {
                out.push('[');
                for (at, item) in view::elements(other).unwrap_or_default().iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    json_within(item, out, depth + 1);
                }
                out.push(']');
            }
            ValueKind::Dict => {
                out.push('{');
                for (at, (key, value)) in view::entries(other).unwrap_or_default().iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    json_within(key, out, depth + 1);
                    out.push(':');
                    json_within(value, out, depth + 1);
                }
                out.push('}');
            }
            ValueKind::Struct => {
                out.push('{');
                for (at, (name, value)) in crate::value::compare::fields(other).iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    let _ = write!(out, "{:?}:", name.as_str());
                    json_within(value, out, depth + 1);
                }
                out.push('}');
            }
            _ => {
                let _ = write!(out, "\"<{}>\"", view::type_name(other));
            }
        },
    }
}
