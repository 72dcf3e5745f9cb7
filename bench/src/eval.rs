//! `eval`: what evaluation costs without any I/O, beside the starlark crate on the same programs.
//!
//! Each side is a process that evaluates one program many times and prints nanoseconds and the result; they run in turns.
//! On ours each call gives a slot that is settled already, so what is measured is the machine: no request is parsed and
//! nothing is sent. On the other the page flow runs in two ways: in a module and heap of its own each time, as a server
//! has to, and in a heap that 1,000 evaluations share, where nothing is freed and nothing set up.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use fanin_lang::native::Globals;
use fanin_lang::{
    CallHandle, Effect, Failure as FlowFailure, FrozenValue, Host, HostCall, HostObject, HostRef, Instance, Limits,
    Loaded, Loader, Machine, Method, Outcome, PendingValue, Program, Run, Value,
};
use serde_json::json;

use crate::process::{self, SERVER_CORE};
use crate::report::{Report, Table, median};
use crate::{Failure, Options};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/eval");
const LIMITS: Limits = Limits { steps: 10_000_000, memory: 64 << 20, depth: 64, fibers: 10_000, value: 1 << 20 };

/// Name, evaluations of one measurement, and how many times the crate's time it may take.
const PROGRAMS: [(&str, u32, f64); 6] = [
    ("page", 500_000, 1.0),
    ("reshape", 200, 1.5),
    ("strings", 500, 1.5),
    ("sort", 300, 1.5),
    ("dicts", 2_000, 1.5),
    ("loop", 5_000, 1.5),
];

/// What the programs but `page` are given.
const SIZE: i64 = 1000;

/// Runs the benchmark; `other` is the starlark crate's side.
pub fn run(options: &Options, other: Option<PathBuf>) -> Result<Report, Failure> {
    process::pin(SERVER_CORE)?;
    let other = match other {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("fanin-bench-starlark"),
    };
    let mut report = Report::new("eval");
    let mut table = Table::new(
        "One evaluation, median ns",
        &["program", "fanin-lang", "starlark crate", "ratio", "in a shared heap", "ratio"],
    );
    let mut all = serde_json::Map::new();
    for (name, count, most) in PROGRAMS {
        let count = if options.quick { count / 4 } else { count }.max(1).to_string();
        let file = format!("{FOLDER}/{name}.star");
        let (mut ours, mut own, mut shared) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..if options.quick { 3 } else { 9 } {
            let (nanos, result) = measure(&std::env::current_exe()?, &["eval-ours", name, &count])?;
            ours.push(nanos);
            for (heap, figures) in [("own", &mut own), ("shared", &mut shared)] {
                let (nanos, theirs) = measure(&other, &[&file, &count, heap])?;
                figures.push(nanos);
                if theirs != result {
                    return Err(Failure::Wrong(format!("{name} gives {result} here and {theirs} there")));
                }
            }
        }
        let ratio = |others: &[f64]| median(ours.iter().zip(others).map(|(ours, theirs)| ours / theirs));
        let figure = |figures: &[f64]| format!("{:.0}", median(figures.iter().copied()));
        table.rows.push(vec![
            name.into(),
            figure(&ours),
            figure(&own),
            format!("{:.2}", ratio(&own)),
            figure(&shared),
            format!("{:.2}", ratio(&shared)),
        ]);
        report.at_most(&format!("{name}: fanin-lang / starlark crate"), ratio(&own), most, "");
        all.insert(name.to_owned(), json!({"ours": ours, "own heap": own, "shared heap": shared}));
    }
    report.tables.push(table);
    report.data = all.into();
    Ok(report)
}

/// The two lines that a side prints: nanoseconds and the result.
fn measure(program: &Path, arguments: &[&str]) -> Result<(f64, String), Failure> {
    let output = Command::new(program).args(arguments).output().map_err(|error| {
        std::io::Error::new(error.kind(), format!("{}: {error}; bench/run eval builds it", program.display()))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let parsed =
        text.split_once('\n').and_then(|(nanos, result)| Some((nanos.parse().ok()?, result.trim().to_owned())));
    parsed.ok_or_else(|| {
        Failure::Wrong(format!("{} gives no figure: {}", program.display(), String::from_utf8_lossy(&output.stderr)))
    })
}

/// Our side: nanoseconds of one evaluation, and the result.
pub fn ours(name: &str, count: u32) -> Result<(f64, String), Failure> {
    let globals = Arc::new(Globals::standard());
    let file = format!("{name}.star");
    let program = Program::load(globals, &Files, &[&file]).map_err(|diagnostics| {
        Failure::Wrong(diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })?;
    evaluate(&program, name, count / 4)?;
    let start = cpu_nanos();
    let result = evaluate(&program, name, count)?;
    let nanos = (cpu_nanos() - start) as f64 / f64::from(count);
    // The page flow's result holds answers, which are not compared; the others give a text.
    Ok((nanos, result.as_str().unwrap_or_default().to_owned()))
}

/// Measures, each time it is called, the CPU nanoseconds that the program `loop` takes: some twenty thousand.
pub fn piece() -> Result<impl FnMut() -> Result<f64, Failure>, Failure> {
    let program = Program::load(Arc::new(Globals::standard()), &Files, &["loop.star"])
        .map_err(|_| Failure::Wrong("loop.star does not load".into()))?;
    Ok(move || {
        let start = cpu_nanos();
        evaluate(&program, "loop", 1)?;
        Ok((cpu_nanos() - start) as f64)
    })
}

/// CPU time of this thread: neighbours on the core do not count.
fn cpu_nanos() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn evaluate(program: &Program, name: &str, count: u32) -> Result<Value, Failure> {
    let (file, function) = (format!("{name}.star"), if name == "page" { "page" } else { "run" });
    let function =
        program.function(&file, function).ok_or_else(|| Failure::Wrong(format!("{file} has no function to run")))?;
    let mut machine = Machine::new();
    let mut host = Settled { source: Rc::new(Source) };
    let mut last = Value::None;
    for _ in 0..count {
        let argument = match name {
            "page" => {
                let id = (Value::from(arcstr::literal!("id")), Value::str("12345"));
                Value::object(Request { params: Value::dict([id]) })
            }
            _ => Value::Int(SIZE),
        };
        let instance = Instance::new(program, function, vec![argument], LIMITS);
        let mut instance = instance.map_err(|failure| Failure::Wrong(failure.to_string()))?;
        match instance.run(&mut machine, &mut host, u64::MAX) {
            Run::Done(value) => last = std::hint::black_box(value),
            other => return Err(Failure::Wrong(format!("the flow is not done: {other:?}"))),
        }
    }
    Ok(last)
}

/// The programs, and the upstream.
struct Files;

impl Loader for Files {
    fn load(&self, module: &str, _from: &str) -> Result<Loaded, String> {
        match module {
            "@upstreams" => Ok(Loaded::Values(vec![("backend".into(), FrozenValue::Host(HostRef::new(Upstream)))])),
            file => {
                let text = std::fs::read_to_string(format!("{FOLDER}/{file}")).map_err(|error| error.to_string())?;
                Ok(Loaded::Source { name: module.into(), text })
            }
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
    source: Rc<dyn CallHandle>,
}

impl Host for Settled {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, FlowFailure> {
        std::hint::black_box((call.args.pos, call.args.named));
        let slot = PendingValue::call(Rc::clone(&self.source));
        slot.settle(Ok(Value::None));
        Ok(Value::Pending(slot))
    }

    fn barrier(&mut self, _: &fanin_lang::ProgramOrder) -> Option<PendingValue> {
        None
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

struct Source;

impl CallHandle for Source {
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
