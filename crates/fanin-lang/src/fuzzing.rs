//! Any text as a program: for the fuzz target in `fuzz/` and the bounded run of it in the tests.

use std::sync::Arc;

use bytes::Bytes;
use fanin_json::Doc;

use crate::meter::Limits;
use crate::native::Globals;
use crate::program::Program;
use crate::testing::{Answer, Files, TestHost, run};
use crate::value::Value;

/// Bounds for one function of a fuzzed program, so low that they are met often.
const LIMITS: Limits = Limits { steps: 30_000, memory: 4 << 20, depth: 16, fibers: 200, value: 128 << 10 };

/// Most functions that are run of one program.
const FUNCTIONS: usize = 8;

/// What came of a text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Fuzzed {
    /// It compiled and its top level ran.
    pub loaded: bool,
    /// Functions that were run.
    pub ran: usize,
    /// Of these, how many returned.
    pub returned: usize,
    /// Of these, how many were stopped by a limit.
    pub limited: usize,
}

/// Loads a text as a file that may load the services `a`, `b` and `c` from `@upstreams`, and runs each
/// function of it, with values that are ready and with values that come late and in odd order.
///
/// # Panics
/// If the machine has a mistake: that is what it is for.
#[must_use]
pub fn run_source(text: &str) -> Fuzzed {
    let mut fed = Fuzzed::default();
    let files = Files(vec![("test.star", text.to_owned())]);
    let Ok(program) = Program::load_within(Arc::new(Globals::standard()), &files, &["test.star"], LIMITS) else {
        return fed;
    };
    fed.loaded = true;
    // Which calls are answered at once, and in what order: part of the input, too.
    let mut seed = text.bytes().fold(0x9e37_79b9_7f4a_7c15_u64, |seed, byte| {
        (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    });
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for name in program.functions("test.star").iter().take(FUNCTIONS) {
        let Some(function) = program.function("test.star", name) else { continue };
        let args: Vec<Value> = (0..program.parameters(function).len()).map(argument).collect();
        let mut coin = random();
        let at_once = Box::new(move || {
            coin = coin.rotate_left(1);
            coin & 1 == 0
        });
        let mut host = TestHost::new(&program, Box::new(answer), at_once);
        let result = run(&program, name, args, LIMITS, &mut host, &mut |open| random() as usize % open.max(1));
        fed.ran += 1;
        match result {
            Ok(_) => fed.returned += 1,
            Err(failure) => fed.limited += usize::from(failure.kind == crate::Kind::Limit),
        }
    }
    fed
}

fn argument(at: usize) -> Value {
    const TEXT: &[u8] =
        br#"{"id": 7, "text": "a,b", "query": {"text": "x"}, "items": [{"n": 1}, {"n": 2.5}], "none": null}"#;
    match at {
        0 => Doc::parse(Bytes::from_static(TEXT), 64).map_or(Value::None, Value::json),
        1 => Value::list(vec![Value::Int(3), Value::str("x"), Value::None]),
        2 => Value::record([("k", Value::Int(1))]),
        _ => Value::Int(at as i64),
    }
}

fn answer(name: &str, text: &str) -> Answer {
    if text.contains("fail") {
        return Answer::Fail;
    }
    Answer::Json(format!(
        r#"{{"n": {}, "ok": true, "ids": [1, 2, 3], "items": [{{"n": 1}}], "name": {name:?}}}"#,
        text.len()
    ))
}
