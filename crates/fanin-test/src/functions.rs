//! Functions of a test's program that are called by Rust: stubs that are functions.

use std::any::Any;

use fanin_lang::value::Frozen;
use fanin_lang::{
    CallSite, Failure, Host, HostCall, Instance, Kind, Limits, Machine, PendingValue, Program, ProgramOrder, Run, Value,
};

/// What one call of a function may use.
const LIMITS: Limits = Limits { steps: 10_000_000, memory: 256 << 20, depth: 64, fibers: 1_000, value: 64 << 20 };

/// Whether a value is a function of the program.
pub(crate) fn is_function(value: &Value) -> bool {
    match value {
        Value::Function(_) => true,
        Value::Frozen(frozen) => matches!(&**frozen, Frozen::Function(_)),
        _ => false,
    }
}

/// Runs a function to its end.
///
/// # Errors
/// Why it failed, with the line.
pub(crate) fn run(program: &Program, function: &Value, args: Vec<Value>) -> Result<Value, String> {
    let told = |failure: &Failure| match failure.trace.last().map(|frame| &frame.position).or(failure.position.as_ref())
    {
        Some(position) => format!("{} ({position})", failure.message),
        None => failure.message.clone(),
    };
    let mut instance = Instance::of_value(program, function, args, LIMITS).map_err(|failure| told(&failure))?;
    match instance.run(&mut Machine::new(), &mut NoCalls, u64::MAX) {
        Run::Done(value) => Ok(value),
        Run::Failed(failure) => Err(told(&failure)),
        Run::Waiting | Run::Yielded => Err("the function waits for something".to_owned()),
    }
}

/// The host of a function that answers for a backend: it makes no calls.
struct NoCalls;

impl Host for NoCalls {
    fn call(&mut self, call: HostCall<'_>) -> Result<Value, Failure> {
        let message = format!("{} cannot be called here: this function answers for a backend", call.object.name());
        Err(Failure::new(Kind::Host, message))
    }

    fn barrier(&mut self, _: &ProgramOrder) -> Option<PendingValue> {
        None
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn print(&mut self, text: &str, _: CallSite) {
        eprintln!("{text}");
    }
}
