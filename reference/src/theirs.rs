//! A program on the `starlark` crate.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;

use starlark::environment::{FrozenModule, Globals, GlobalsBuilder, LibraryExtension, Module};
use starlark::eval::{Evaluator, ReturnFileLoader};
use starlark::starlark_module;
use starlark::syntax::{AstModule, Dialect};
use starlark::values::dict::DictRef;
use starlark::values::float::UnpackFloat;
use starlark::values::none::NoneType;
use starlark::values::structs::StructRef;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, UnpackValue, Value};

use crate::{Failed, Kind, Outcome, Program};

thread_local! {
    static EMITTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static GLOBALS: Globals = GlobalsBuilder::extended_by(&[
        LibraryExtension::StructType,
        LibraryExtension::SetType,
        LibraryExtension::Json,
    ])
    .with(functions)
    .build();
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn emit<'v>(#[starlark(args)] args: UnpackTuple<Value<'v>>, heap: Heap<'v>) -> anyhow::Result<NoneType> {
        let mut out = String::new();
        for value in args.items {
            write(&mut out, value, heap, 0)?;
            out.push(' ');
        }
        EMITTED.with(|emitted| emitted.borrow_mut().push(out));
        Ok(NoneType)
    }
}

fn write<'v>(out: &mut String, value: Value<'v>, heap: Heap<'v>, depth: usize) -> anyhow::Result<()> {
    if depth > 20 {
        out.push_str("...");
        return Ok(());
    }
    let mut row = |open: &str, most: usize| -> anyhow::Result<()> {
        out.push_str(open);
        for item in value.iterate(heap).map_err(|error| error.into_anyhow())?.take(most) {
            write(out, item, heap, depth + 1)?;
            out.push(',');
        }
        out.push(')');
        Ok(())
    };
    match value.get_type() {
        "NoneType" => out.push_str("None"),
        "bool" => write!(out, "{}", value.unpack_bool().unwrap_or_default())?,
        "int" => out.push_str(&value.to_str()),
        "float" => match UnpackFloat::unpack_value(value).ok().flatten() {
            Some(float) => write!(out, "{:?}", float.0)?,
            None => out.push_str("no float"),
        },
        "string" => write!(out, "{:?}", value.unpack_str().unwrap_or_default())?,
        "list" => row("list(", usize::MAX)?,
        "tuple" => row("tuple(", usize::MAX)?,
        "set" => row("set(", usize::MAX)?,
        "range" => row("range(", 30)?,
        "dict" => {
            out.push_str("dict(");
            let Some(dict) = DictRef::from_value(value) else { anyhow::bail!("no dict") };
            for (key, value) in dict.iter() {
                write(out, key, heap, depth + 1)?;
                out.push(':');
                write(out, value, heap, depth + 1)?;
                out.push(',');
            }
            out.push(')');
        }
        "struct" => {
            let Some(fields) = StructRef::from_value(value) else { anyhow::bail!("no struct") };
            let mut fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            out.push_str("struct(");
            for (name, value) in fields {
                write!(out, "{name}=")?;
                write(out, value, heap, depth + 1)?;
                out.push(',');
            }
            out.push(')');
        }
        other => out.push_str(other),
    }
    Ok(())
}

/// Runs it.
#[must_use]
pub fn run(program: &Program) -> Outcome {
    EMITTED.with(|emitted| emitted.borrow_mut().clear());
    let failed = GLOBALS.with(|globals| evaluate(program, globals)).err();
    Outcome { emitted: EMITTED.with(RefCell::take), failed }
}

fn evaluate(program: &Program, globals: &Globals) -> Result<(), Failed> {
    let dialect = Dialect {
        enable_f_strings: true,
        enable_top_level_stmt: true,
        enable_load_reexport: false,
        ..Dialect::Extended
    };
    let load = |error: starlark::Error| {
        let message = error.without_diagnostic().to_string();
        Failed { kind: Kind::Load, message }
    };
    let mut loaded: Vec<(String, FrozenModule)> = Vec::new();
    for (name, text) in &program.files {
        let ast = AstModule::parse(name, text.clone(), &dialect).map_err(load)?;
        let modules: HashMap<&str, &FrozenModule> =
            loaded.iter().map(|(name, module)| (name.as_str(), module)).collect();
        let loader = ReturnFileLoader { modules: &modules };
        let module = Module::with_temp_heap(|module| {
            let mut evaluator = Evaluator::new(&module);
            evaluator.set_loader(&loader);
            evaluator.eval_module(ast, globals).map_err(load)?;
            drop(evaluator);
            module.freeze().map_err(|error| Failed { kind: Kind::Load, message: format!("{error:?}") })
        })?;
        loaded.push((name.clone(), module));
    }
    let Some((_, main)) = loaded.last() else { return Ok(()) };
    let main = main.get("main").map_err(|error| Failed { kind: Kind::Load, message: error.to_string() })?;
    Module::with_temp_heap(|module| {
        let function = module.heap().access_owned_frozen_value(&main);
        let mut evaluator = Evaluator::new(&module);
        match evaluator.eval_function(function, &[], &[]) {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = error.without_diagnostic().to_string();
                Err(Failed { kind: kind(&message), message })
            }
        }
    })
}

/// What the crate's messages mean: first match counts.
const MESSAGES: [(&str, Kind); 70] = [
    ("is not a single character", Kind::Operation),
    ("Negative left shift", Kind::Arithmetic),
    ("Negative right shift", Kind::Arithmetic),
    ("chr() parameter value", Kind::Operation),
    ("Not enough parameters in format", Kind::Index),
    ("by zero", Kind::Arithmetic),
    ("Negative shift count", Kind::Arithmetic),
    ("Integer overflow", Kind::Arithmetic),
    ("Operation `.", Kind::Attribute),
    ("on an empty dictionary", Kind::Key),
    ("not found in `set", Kind::Key),
    ("trailing comma", Kind::Operation),
    ("cannot be called recursively", Kind::Recursion),
    ("is out of bound", Kind::Index),
    ("was not found", Kind::Key),
    ("not found in dict", Kind::Key),
    ("Immutable", Kind::Frozen),
    ("mutates an iterable", Kind::Frozen),
    ("has no attribute", Kind::Attribute),
    ("referenced before assignment", Kind::Name),
    ("fail:", Kind::Fail),
    ("call stack overflow", Kind::Recursion),
    ("recursion", Kind::Recursion),
    ("not supported", Kind::Operation),
    ("Type of parameter", Kind::Operation),
    ("Missing", Kind::Operation),
    ("is not hashable", Kind::Operation),
    ("extra positional", Kind::Operation),
    ("extra named", Kind::Operation),
    ("occurs more than once", Kind::Operation),
    ("not iterable", Kind::Operation),
    ("is not a dictionary", Kind::Operation),
    ("Wrong number of positional", Kind::Operation),
    ("doesn't match, expected", Kind::Operation),
    ("Unpacked", Kind::Operation),
    ("not a valid", Kind::Operation),
    ("cannot be parsed", Kind::Operation),
    ("Expected type", Kind::Operation),
    ("Expected", Kind::Operation),
    ("expected", Kind::Operation),
    ("Not enough", Kind::Operation),
    ("Too many", Kind::Operation),
    ("not found", Kind::Operation),
    ("is not callable", Kind::Operation),
    ("takes", Kind::Operation),
    ("Negative", Kind::Operation),
    ("must be", Kind::Operation),
    ("cannot", Kind::Operation),
    ("Cannot", Kind::Operation),
    ("can't", Kind::Operation),
    ("invalid", Kind::Operation),
    ("Invalid", Kind::Operation),
    ("empty", Kind::Operation),
    ("Empty", Kind::Operation),
    ("format", Kind::Operation),
    ("Format", Kind::Operation),
    ("argument", Kind::Operation),
    ("Unmatched", Kind::Operation),
    ("unmatched", Kind::Operation),
    ("Could not", Kind::Operation),
    ("Failed", Kind::Operation),
    ("Unsupported", Kind::Operation),
    ("Standalone", Kind::Operation),
    ("out of range", Kind::Operation),
    ("EOF while parsing", Kind::Operation),
    ("trailing characters", Kind::Operation),
    ("key must be a string", Kind::Operation),
    ("overflow", Kind::Operation),
    ("parsing", Kind::Operation),
    ("Mismatched", Kind::Operation),
];

fn kind(message: &str) -> Kind {
    MESSAGES.iter().find(|(part, _)| message.contains(part)).map_or(Kind::Unknown, |(_, kind)| *kind)
}
