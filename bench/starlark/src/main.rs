//! The page flow on the starlark crate: prints the CPU nanoseconds of one evaluation.
//!
//! `fanin-bench-starlark FILE COUNT` runs the function `page` of FILE so often. The module is
//! compiled and frozen once. Calls give `None` at once.

use std::fmt;

use allocative::Allocative;
use anyhow::Context;
use starlark::any::ProvidesStaticType;
use starlark::environment::{FrozenModule, Globals, GlobalsBuilder, Methods, MethodsBuilder, MethodsStatic, Module};
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
    // The upstream is a global here, as the crate's `load` would only add work before the run.
    let text: String = std::fs::read_to_string(&file)?
        .lines()
        .filter(|line| !line.starts_with("load("))
        .map(|line| format!("{line}\n"))
        .collect();
    let ast = AstModule::parse(&file, text, &Dialect::Standard).map_err(|error| error.into_anyhow())?;
    let globals: Globals = GlobalsBuilder::standard().with(|builder| builder.set("backend", Upstream)).build();
    let module = compile(ast, &globals)?;
    run(&module, &globals, count / 4)?;
    let start = cpu_nanos();
    run(&module, &globals, count)?;
    println!("{}", (cpu_nanos() - start) as f64 / f64::from(count));
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

fn run(module: &FrozenModule, globals: &Globals, count: u32) -> anyhow::Result<()> {
    for _ in 0..count / BATCH {
        Module::with_temp_heap(|scratch| {
            scratch.import_public_symbols(module);
            let heap = scratch.heap();
            let mut evaluator = Evaluator::new(&scratch);
            let name =
                AstModule::parse("name", "page".into(), &Dialect::Standard).map_err(|error| error.into_anyhow())?;
            let page = evaluator.eval_module(name, globals).map_err(|error| error.into_anyhow())?;
            for _ in 0..BATCH {
                let params = heap.alloc(AllocDict([("id", "12345")]));
                let request = heap.alloc(AllocStruct([("params", params)]));
                let answer = evaluator.eval_function(page, &[request], &[]).map_err(|error| error.into_anyhow())?;
                std::hint::black_box(answer);
            }
            anyhow::Ok(())
        })?;
    }
    Ok(())
}
