//! `eval`: what evaluating the page flow costs without any I/O, beside the starlark crate on the same function.
//!
//! Each side is a process that evaluates it many times and prints nanoseconds; they run in turns. On ours each call gives
//! a slot that is settled already, so what is measured is the machine: no request is parsed and nothing is sent.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use fanin_lang::native::Globals;
use fanin_lang::{
    Effect, Failure as FlowFailure, FrozenValue, Host, HostCall, HostObject, HostRef, Instance, Limits, Loaded, Loader,
    Machine, Method, Outcome, Program, Run, Slot, SlotSource, Value,
};
use serde_json::json;

use crate::process::{self, SERVER_CORE};
use crate::report::{Report, Table, median};
use crate::{Failure, Options};

const FLOW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/eval/page.star");
const LIMITS: Limits = Limits { steps: 10_000_000, memory: 64 << 20, depth: 64, fibers: 10_000 };

/// Runs the benchmark; `other` is the starlark crate's side.
pub fn run(options: &Options, other: Option<PathBuf>) -> Result<Report, Failure> {
    process::pin(SERVER_CORE)?;
    let count = if options.quick { 200_000 } else { 1_000_000 }.to_string();
    let other = match other {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("fanin-bench-starlark"),
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..if options.quick { 3 } else { 9 } {
        ours.push(nanos(&std::env::current_exe()?, &["eval-ours", &count])?);
        theirs.push(nanos(&other, &[FLOW, &count])?);
    }
    let mut report = Report::new("eval");
    let mut table =
        Table::new("One evaluation of the page flow, five calls without I/O", &["machine", "median ns", "least ns"]);
    for (name, all) in [("fanin-lang", &ours), ("starlark crate", &theirs)] {
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        table.rows.push(vec![name.into(), format!("{:.0}", median(all.iter().copied())), format!("{least:.0}")]);
    }
    report.tables.push(table);
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
    report.at_most("fanin-lang / starlark crate", median(ratios), 1.0, "");
    report.data = json!({"ours": ours, "theirs": theirs});
    Ok(report)
}

fn nanos(program: &Path, arguments: &[&str]) -> Result<f64, Failure> {
    let output = Command::new(program).args(arguments).output().map_err(|error| {
        std::io::Error::new(error.kind(), format!("{}: {error}; bench/run eval builds it", program.display()))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        Failure::Wrong(format!("{} gives no figure: {}", program.display(), String::from_utf8_lossy(&output.stderr)))
    })
}

/// Our side: nanoseconds of one evaluation.
pub fn ours(count: u32) -> Result<f64, Failure> {
    let globals = Arc::new(Globals::standard());
    let program = Program::load(globals, &Files, &["page.star"]).map_err(|diagnostics| {
        Failure::Wrong(diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })?;
    evaluate(&program, count / 4)?;
    let start = cpu_nanos();
    evaluate(&program, count)?;
    Ok((cpu_nanos() - start) as f64 / f64::from(count))
}

/// CPU time of this thread: neighbours on the core do not count.
fn cpu_nanos() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn evaluate(program: &Program, count: u32) -> Result<(), Failure> {
    let function = program.function("page.star", "page").ok_or_else(|| Failure::Wrong("no `page`".into()))?;
    let mut machine = Machine::new();
    let mut host = Settled { source: Rc::new(Source) };
    for _ in 0..count {
        let request = Value::object(Request { params: Value::record([("id", Value::str("12345"))]) });
        let instance = Instance::new(program, function, vec![request], LIMITS);
        let mut instance = instance.map_err(|failure| Failure::Wrong(failure.to_string()))?;
        match instance.run(&mut machine, &mut host, u64::MAX) {
            Run::Done(value) => drop(std::hint::black_box(value)),
            other => return Err(Failure::Wrong(format!("the flow is not done: {other:?}"))),
        }
    }
    Ok(())
}

/// The flow's file, and the upstream.
struct Files;

impl Loader for Files {
    fn load(&self, module: &str, _from: &str) -> Result<Loaded, String> {
        match module {
            "@upstreams" => Ok(Loaded::Values(vec![("backend".into(), FrozenValue::Host(HostRef::new(Upstream)))])),
            "page.star" => {
                let text = std::fs::read_to_string(FLOW).map_err(|error| error.to_string())?;
                Ok(Loaded::Source { name: module.into(), text })
            }
            _ => Err(format!("no file {module}")),
        }
    }

    fn effect(&self, method: &str) -> Option<Effect> {
        (method == "get").then_some(Effect::Read)
    }
}

struct Upstream;

impl HostObject for Upstream {
    fn type_name(&self) -> &str {
        "upstream"
    }

    fn name(&self) -> &str {
        "backend"
    }

    fn method(&self, name: &str, _: &dyn Fn(&str) -> Option<Value>) -> Option<Method> {
        (name == "get").then_some(Method { id: 0, effect: Effect::Read })
    }

    fn names(&self) -> Vec<&str> {
        vec!["get"]
    }
}

/// A host whose calls have succeeded before they were made.
struct Settled {
    source: Rc<dyn SlotSource>,
}

impl Host for Settled {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, FlowFailure> {
        std::hint::black_box((call.args.pos, call.args.named));
        let slot = Slot::call(Rc::clone(&self.source));
        slot.settle(Ok(Value::None));
        Ok(Value::Pending(slot))
    }

    fn barrier(&mut self, _: &fanin_lang::Order) -> Option<Slot> {
        None
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

struct Source;

impl SlotSource for Source {
    fn attribute(&self, _: &str, _: &Outcome) -> Result<Option<Value>, FlowFailure> {
        Ok(None)
    }

    fn attributes(&self) -> &'static [&'static str] {
        &[]
    }

    fn describe(&self) -> String {
        "answer of backend".into()
    }
}

/// `req`, as far as the flow looks at it.
#[derive(Debug)]
struct Request {
    params: Value,
}

impl fanin_lang::value::Object for Request {
    fn type_name(&self) -> &'static str {
        "request"
    }

    fn attribute(&self, name: &str) -> Result<Option<Value>, fanin_lang::Stop> {
        Ok((name == "params").then(|| self.params.clone()))
    }

    fn names(&self) -> Vec<&str> {
        vec!["params"]
    }

    fn visit(&self, visit: &mut dyn FnMut(&Value)) {
        visit(&self.params);
    }
}
