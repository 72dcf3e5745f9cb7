//! A program on the starlark crate: prints the CPU nanoseconds of one evaluation, and its result.
//!
//! `fanin-bench-starlark FILE COUNT own|shared` runs the function `page` or `run` of FILE so often, each time in a
//! module and heap of its own, or 1,000 times in one. FILE is compiled and frozen once. Calls give `None` at once.

use std::fmt;

use allocative::Allocative;
use anyhow::Context;
use starlark::any::ProvidesStaticType;
use starlark::environment::{FrozenModule, Globals, GlobalsBuilder, LibraryExtension, Methods, MethodsBuilder, MethodsStatic, Module};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::starlark_simple_value;
use starlark::syntax::{AstModule, Dialect};
use starlark::values::dict::AllocDict;
use starlark::values::none::NoneType;
use starlark::values::structs::AllocStruct;
use starlark::values::{NoSerialize, StarlarkValue, Value, starlark_value};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An upstream whose calls cost nothing but their arguments.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative)]
struct Upstream;

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("upstream")
    }
}

starlark_simple_value!(Upstream);

#[starlark_value(type = "upstream")]
impl<'v> StarlarkValue<'v> for Upstream {
    fn get_methods() -> Option<&'static Methods> {
        static METHODS: MethodsStatic = MethodsStatic::new("upstream", methods);
        Some(METHODS.methods())
    }
}

#[starlark_module]
fn methods(builder: &mut MethodsBuilder) {
    fn get<'v>(
        this: Value<'v>,
        #[starlark(require = pos)] path: &str,
        #[starlark(require = named)] params: Option<Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        std::hint::black_box((this, path, params));
        Ok(NoneType)
    }
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().context("FILE is missing")?;
    let count: u32 = arguments.next().context("COUNT is missing")?.parse()?;
    let batch = match arguments.next().as_deref() {
        Some("own") => 1,
        Some("shared") => BATCH,
        _ => anyhow::bail!("own or shared is missing"),
    };
    // The upstream is a global here, as the crate's `load` would only add work before the run.
    let text: String = std::fs::read_to_string(&file)?
        .lines()
        .filter(|line| !line.starts_with("load("))
        .map(|line| format!("{line}\n"))
        .collect();
    let ast = AstModule::parse(&file, text, &Dialect::Standard).map_err(|error| error.into_anyhow())?;
    let globals: Globals =
        GlobalsBuilder::extended_by(&[LibraryExtension::Json]).with(|builder| builder.set("backend", Upstream)).build();
    let module = compile(ast, &globals)?;
    run(&module, count / 4, batch)?;
    let start = cpu_nanos();
    let result = run(&module, count, batch)?;
    println!("{}\n{result}", (cpu_nanos() - start) as f64 / f64::from(count));
    Ok(())
}

/// CPU time of this thread: neighbours on the core do not count.
fn cpu_nanos() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn compile(ast: AstModule, globals: &Globals) -> anyhow::Result<FrozenModule> {
    Module::with_temp_heap(|module| {
        Evaluator::new(&module).eval_module(ast, globals).map_err(|error| error.into_anyhow())?;
        module.freeze().map_err(|error| anyhow::anyhow!("{error:?}"))
    })
}

/// Evaluations that share a heap: so many that making it does not count, which is the crate's best case.
const BATCH: u32 = 1000;

/// What the programs but `page` are given.
const SIZE: i32 = 1000;

/// Gives the last result, of `page` nothing.
fn run(module: &FrozenModule, count: u32, batch: u32) -> anyhow::Result<String> {
    let page = module.get("page").ok();
    let function = match &page {
        Some(page) => page,
        None => &module.get("run")?,
    };
    let mut last = String::new();
    let batch = batch.min(count.max(1));
    for _ in 0..count / batch {
        Module::with_temp_heap(|scratch| {
            let heap = scratch.heap();
            let function = heap.access_owned_frozen_value(function);
            let mut evaluator = Evaluator::new(&scratch);
            for _ in 0..batch {
                let argument = if page.is_some() {
                    let params = heap.alloc(AllocDict([("id", "12345")]));
                    heap.alloc(AllocStruct([("params", params)]))
                } else {
                    heap.alloc(SIZE)
                };
                let answer =
                    evaluator.eval_function(function, &[argument], &[]).map_err(|error| error.into_anyhow())?;
                std::hint::black_box(answer);
                if last.is_empty() && let Some(text) = answer.unpack_str() {
                    text.clone_into(&mut last);
                }
            }
            anyhow::Ok(())
        })?;
    }
    Ok(last)
}
