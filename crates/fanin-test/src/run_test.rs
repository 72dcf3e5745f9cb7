//! Runs one test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fanin_flow::Flows;
use fanin_lang::{Failure, FunctionRef, Instance, Limits, Machine, Run, Value};
use serde_json::Value as Json;

use crate::error::TestError;
use crate::host::TestHost;
use crate::response::rounds;
use crate::snapshots::Snapshots;
use crate::suite::{Suite, Test, arguments};
use crate::world::World;

/// What a test's own functions may use. Flows have the limits of their routes.
const LIMITS: Limits = Limits { steps: 2_000_000_000, memory: 2 << 30, depth: 200, fibers: 10_000, value: 256 << 20 };
/// How many of a failed test's responses are shown, the last ones.
const SHOWN_RESPONSES: usize = 2;

/// How a test ended.
#[derive(Debug, Clone)]
pub struct TestOutcome {
    /// The file.
    pub file: String,
    /// Function and case.
    pub name: String,
    /// Line of the function.
    pub line: u32,
    /// Why it failed; `None` if it passed.
    pub failure: Option<TestFailure>,
    /// Real time.
    pub took: Duration,
    /// Virtual time, in milliseconds.
    pub virtual_ms: f64,
    /// Requests sent to routes.
    pub requests: usize,
    /// Calls that its flows made.
    pub calls: usize,
    /// The most calls one after another, of one request.
    pub rounds: usize,
    /// Assertions made.
    pub assertions: u64,
    /// What it printed.
    pub output: String,
    pub(crate) snapshots: Vec<(String, Json)>,
}

impl TestOutcome {
    /// Of a test that has not run yet.
    pub(crate) fn of(test: &Test) -> TestOutcome {
        TestOutcome {
            file: test.file.clone(),
            name: test.name.clone(),
            line: test.line,
            failure: None,
            took: Duration::ZERO,
            virtual_ms: 0.0,
            requests: 0,
            calls: 0,
            rounds: 0,
            assertions: 0,
            output: String::new(),
            snapshots: Vec::new(),
        }
    }
}

/// Why a test failed.
#[derive(Debug, Clone)]
pub struct TestFailure {
    /// In a line.
    pub message: String,
    /// Where in the test: file and line; empty if it is no line's fault.
    pub place: String,
    /// With the source, and the last responses with their calls.
    pub explanation: String,
}

/// What a run has to know of one test besides the suite.
pub(crate) struct TestOptions {
    pub(crate) seed: u64,
    /// Compiled, perhaps to count what of them runs.
    pub(crate) flows: Arc<Flows>,
    pub(crate) colour: bool,
}

/// Runs a test.
pub(crate) fn run_test(suite: &Suite, test: &Test, snapshots: Snapshots, options: &TestOptions) -> TestOutcome {
    let began = Instant::now();
    let mut outcome = TestOutcome::of(test);
    let seed = seed_of(options.seed, &test.id());
    let world = match World::of(&suite.setting, &options.flows, &suite.program, seed) {
        Ok(world) => world,
        Err(error) => {
            outcome.failure = Some(plain(describe(&error)));
            return outcome;
        }
    };
    let mut host = TestHost {
        world,
        program: suite.program.clone(),
        snapshots,
        name: test.name.clone(),
        received: Vec::new(),
        output: String::new(),
        assertions: 0,
    };
    let mut failure = None;
    let steps = test.setup.map(|setup| (setup, Vec::new())).into_iter();
    for (function, args) in steps.chain([(test.function, arguments(&suite.program, test))]) {
        if let Err(failed) = call(suite, &mut host, function, args) {
            failure = Some(of_failure(suite, &failed, options.colour));
            break;
        }
    }
    let failure = failure.or_else(|| unmet(&host));
    outcome.failure = failure.map(|failure| with_evidence(failure, &host));
    outcome.took = began.elapsed();
    outcome.virtual_ms = host.world.elapsed();
    outcome.requests = host.received.len();
    for one in &host.received {
        let calls = one.calls();
        outcome.calls += calls.len();
        outcome.rounds = outcome.rounds.max(rounds(&calls));
    }
    outcome.assertions = host.assertions;
    outcome.output = std::mem::take(&mut host.output);
    outcome.snapshots = std::mem::take(&mut host.snapshots.seen).into_iter().collect();
    outcome
}

/// Calls a function of the test's file, to its end.
pub(crate) fn call(
    suite: &Suite,
    host: &mut TestHost,
    function: FunctionRef,
    args: Vec<Value>,
) -> Result<(), Box<Failure>> {
    let mut instance = Instance::new(&suite.program, function, args, Arc::new(LIMITS))?;
    let mut machine = Machine::new();
    loop {
        match instance.run(&mut machine, host, u64::MAX) {
            Run::Done(_) => return Ok(()),
            Run::Failed(failure) => return Err(failure),
            Run::Yielded => {}
            // Everything that a test gets is there.
            Run::Waiting => {
                return Err(Box::new(Failure::new(
                    fanin_lang::Kind::Host,
                    "the test waits for something that never comes",
                )));
            }
        }
    }
}

/// What the test wanted and did not get, although all its lines ran.
fn unmet(host: &TestHost) -> Option<TestFailure> {
    let stubs = &host.world.shared.stubs;
    for rule in stubs.rules.borrow().iter() {
        if let Some(times) = rule.times.filter(|times| *times != rule.used.get()) {
            let message = format!("{} was to be requested {times} times, and was {}", rule.describe(), rule.used.get());
            let place = format!("{}:{}", rule.position.file, rule.position.line);
            return Some(TestFailure { explanation: format!("{message}\n  stub at {place}"), message, place });
        }
    }
    let problem = stubs.problems.borrow().first().cloned()?;
    Some(plain(problem))
}

fn plain(message: String) -> TestFailure {
    TestFailure { explanation: message.clone(), message, place: String::new() }
}

fn of_failure(suite: &Suite, failure: &Failure, colour: bool) -> TestFailure {
    let place = failure.trace.last().map(|frame| &frame.position).or(failure.position.as_ref());
    TestFailure {
        message: failure.message.clone(),
        place: place.map_or_else(String::new, |place| format!("{}:{}", place.file, place.line)),
        explanation: suite.program.explain(failure, colour),
    }
}

/// The failure with what led to it: calls without a stub, and the last responses.
fn with_evidence(mut failure: TestFailure, host: &TestHost) -> TestFailure {
    for problem in host.world.shared.stubs.problems.borrow().iter().filter(|problem| **problem != failure.message) {
        failure.explanation.push_str(&format!("\nnote: {problem}"));
    }
    let skipped = host.received.len().saturating_sub(SHOWN_RESPONSES);
    for one in &host.received[skipped..] {
        failure.explanation.push_str(&format!("\n\n{}", one.describe().trim_end()));
    }
    failure
}

fn describe(error: &TestError) -> String {
    error.to_string()
}

/// A seed of the test's own: the same for the same test whatever else runs (FNV-1a).
pub(crate) fn seed_of(seed: u64, id: &str) -> u64 {
    id.bytes().fold(seed ^ 0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
