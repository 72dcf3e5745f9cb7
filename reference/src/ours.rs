//! A program on `fanin-lang`.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;

use arcstr::ArcStr;
use fanin_lang::value::view;
use fanin_lang::{
    Args, Awaits, Ctx, Globals, Instance, Kind as Theirs, Limits, Loaded, Loader, Machine, NativeFn, NoHost, Run, Stop,
    Value, ValueKind,
};

use crate::{Failed, Kind, Outcome, Program};

thread_local! {
    static EMITTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

static EMIT: [NativeFn; 1] = [NativeFn::new("emit", emit).awaits(Awaits::Deep)];

fn emit(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Value, Stop> {
    let mut out = String::new();
    for value in args.pos {
        write(&mut out, value, 0)?;
        out.push(' ');
    }
    EMITTED.with(|emitted| emitted.borrow_mut().push(out));
    Ok(Value::None)
}

fn write(out: &mut String, value: &Value, depth: usize) -> Result<(), Stop> {
    if depth > 20 {
        out.push_str("...");
        return Ok(());
    }
    let value = value.decide()?;
    let row = |out: &mut String, open: &str, items: &[Value]| {
        out.push_str(open);
        for item in items {
            write(out, item, depth + 1)?;
            out.push(',');
        }
        out.push(')');
        Ok::<(), Stop>(())
    };
    match &value {
        Value::None => out.push_str("None"),
        Value::Bool(value) => write!(out, "{value}").unwrap_or_default(),
        Value::Int(value) => write!(out, "{value}").unwrap_or_default(),
        Value::BigInt(value) => write!(out, "{value}").unwrap_or_default(),
        Value::Float(value) => write!(out, "{value:?}").unwrap_or_default(),
        Value::Str(value) => write!(out, "{:?}", value.as_str()).unwrap_or_default(),
        other => match view::kind(other) {
            ValueKind::List => row(out, "list(", &view::elements(other)?)?,
            ValueKind::Tuple => row(out, "tuple(", &view::elements(other)?)?,
            ValueKind::Set => row(out, "set(", &view::elements(other)?)?,
            ValueKind::Range => {
                row(out, "range(", &(0..30).map_while(|at| view::at(other, at)).collect::<Vec<_>>())?;
            }
            ValueKind::Dict => {
                out.push_str("dict(");
                for (key, value) in view::entries(other).unwrap_or_default() {
                    write(out, &key, depth + 1)?;
                    out.push(':');
                    write(out, &value, depth + 1)?;
                    out.push(',');
                }
                out.push(')');
            }
            ValueKind::Struct => {
                let mut fields = match other {
                    Value::Struct(fields) => fields.fields().to_vec(),
                    _ => Vec::new(),
                };
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                out.push_str("struct(");
                for (name, value) in fields {
                    write!(out, "{name}=").unwrap_or_default();
                    write(out, &value, depth + 1)?;
                    out.push(',');
                }
                out.push(')');
            }
            kind => out.push_str(kind.name()),
        },
    }
    Ok(())
}

struct Files<'a>(&'a Program);

impl Loader for Files<'_> {
    fn load(&self, module: &str, _from: &str) -> Result<Loaded, String> {
        match self.0.files.iter().find(|(name, _)| name == module) {
            Some((name, text)) => Ok(Loaded::Source { name: ArcStr::from(name.as_str()), text: text.clone() }),
            None => Err(format!("there is no file {module}")),
        }
    }
}

/// Runs it.
#[must_use]
pub fn run(program: &Program) -> Outcome {
    EMITTED.with(|emitted| emitted.borrow_mut().clear());
    let failed = evaluate(program).err();
    Outcome { emitted: EMITTED.with(RefCell::take), failed }
}

fn evaluate(program: &Program) -> Result<(), Failed> {
    let load = |message: String| Failed { kind: Kind::Load, message };
    let mut globals = Globals::standard();
    globals.functions(&EMIT);
    let compiled = fanin_lang::Program::load(Arc::new(globals), &Files(program), &["main.star"])
        .map_err(|errors| load(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
    let main = compiled.function("main.star", "main").ok_or_else(|| load("no function main".to_owned()))?;
    let limits = Limits { steps: 2_000_000, memory: 64 << 20, ..Limits::default() };
    let mut instance =
        Instance::new(&compiled, main, Vec::new(), limits).map_err(|failure| load(failure.to_string()))?;
    match instance.run(&mut Machine::new(), &mut NoHost, u64::MAX) {
        Run::Done(_) => Ok(()),
        Run::Failed(failure) => Err(Failed { kind: kind(failure.kind), message: failure.message.clone() }),
        Run::Waiting | Run::Yielded => Err(Failed { kind: Kind::Unknown, message: "it waits".to_owned() }),
    }
}

fn kind(kind: Theirs) -> Kind {
    match kind {
        Theirs::Value | Theirs::Type | Theirs::Arguments => Kind::Operation,
        Theirs::Key => Kind::Key,
        Theirs::Index => Kind::Index,
        Theirs::Name => Kind::Name,
        Theirs::Attribute => Kind::Attribute,
        Theirs::Arithmetic => Kind::Arithmetic,
        Theirs::Frozen => Kind::Frozen,
        Theirs::Recursion => Kind::Recursion,
        Theirs::Fail => Kind::Fail,
        _ => Kind::Unknown,
    }
}
