//! Runs tests on several threads, each test in a world of its own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::error::TestError;
use crate::run_test::{TestFailure, TestOptions, TestOutcome, run_test};
use crate::snapshots::Snapshots;
use crate::suite::{Suite, Test};

/// How tests are run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Only tests whose name, `file::function[case]`, contains this.
    pub filter: Option<String>,
    /// Snapshots are written anew.
    pub update: bool,
    /// What random delays and choices follow from.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
    /// Whether statements and branches are counted.
    pub coverage: bool,
    /// Whether explanations are in colour.
    pub colour: bool,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        RunOptions { filter: None, update: false, seed: 0, threads, coverage: false, colour: false }
    }
}

/// How all tests ended.
#[derive(Debug)]
pub struct TestRun {
    /// In the order of the suite.
    pub outcomes: Vec<TestOutcome>,
    /// Tests that the filter left out.
    pub filtered_out: usize,
    /// Real time.
    pub took: Duration,
    /// Files of snapshots that were written.
    pub written: Vec<String>,
    /// Snapshots that no test has compared: `file: name`.
    pub unused_snapshots: Vec<String>,
    /// What of the flows has run, with `coverage`.
    pub coverage: Option<Coverage>,
}

impl TestRun {
    /// How many tests failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some()).count()
    }
}

impl Suite {
    /// Runs the tests.
    ///
    /// # Errors
    /// Files of snapshots that cannot be read or written. A test that fails is no error.
    pub fn run(&self, options: &RunOptions) -> Result<TestRun, TestError> {
        let began = Instant::now();
        let wanted = |test: &&Test| options.filter.as_ref().is_none_or(|filter| test.id().contains(filter.as_str()));
        let chosen: Vec<&Test> = self.tests.iter().filter(wanted).collect();
        let mut snapshots = BTreeMap::new();
        for test in &chosen {
            if !snapshots.contains_key(&test.file) {
                snapshots.insert(test.file.clone(), Snapshots::load(&self.dir.join(&test.file), options.update)?);
            }
        }
        let flows = match options.coverage {
            true => Arc::new(self.setting.compile(true)?),
            false => self.setting.flows()?.clone(),
        };
        let of_test = TestOptions { seed: options.seed, flows: flows.clone(), colour: options.colour };
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, TestOutcome)>> = Mutex::new(Vec::with_capacity(chosen.len()));
        let work = || {
            loop {
                let at = next.fetch_add(1, Relaxed);
                let Some(test) = chosen.get(at) else { return };
                let own = snapshots.get(&test.file).cloned().unwrap_or_default();
                let run = catch_unwind(AssertUnwindSafe(|| run_test(self, test, own, &of_test)));
                let outcome = run.unwrap_or_else(|_| panicked(test));
                done.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..options.threads.clamp(1, chosen.len().max(1)) {
                scope.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        let outcomes: Vec<TestOutcome> = done.into_iter().map(|(_, outcome)| outcome).collect();
        let (written, unused_snapshots) = self.store(&snapshots, &outcomes, options)?;
        Ok(TestRun {
            filtered_out: self.tests.len() - outcomes.len(),
            outcomes,
            took: began.elapsed(),
            written,
            unused_snapshots,
            coverage: options.coverage.then(|| Coverage::new(flows.coverage())),
        })
    }

    /// Writes snapshots, or names those that are not used.
    fn store(
        &self,
        snapshots: &BTreeMap<String, Snapshots>,
        outcomes: &[TestOutcome],
        options: &RunOptions,
    ) -> Result<(Vec<String>, Vec<String>), TestError> {
        let (mut written, mut unused) = (Vec::new(), Vec::new());
        for (file, stored) in snapshots {
            let of_file = || outcomes.iter().filter(|outcome| outcome.file == *file);
            let seen: BTreeMap<_, _> = of_file().flat_map(|outcome| outcome.snapshots.clone()).collect();
            // A test that fails may not have come to its snapshots.
            let all_ran = of_file().all(|outcome| outcome.failure.is_none())
                && of_file().count() == self.tests.iter().filter(|test| test.file == *file).count();
            if options.update {
                if stored.write(&self.dir.join(file), &seen, all_ran)? {
                    written.push(crate::snapshots::path_of(file.as_ref()).display().to_string());
                }
            } else if all_ran {
                unused.extend(stored.unused(&seen).map(|name| format!("{file}: {name}")));
            }
        }
        Ok((written, unused))
    }
}

/// A test that brought the program itself down.
fn panicked(test: &Test) -> TestOutcome {
    let message = "internal error: the test runner panicked; please report it".to_owned();
    let failure = Some(TestFailure { explanation: message.clone(), message, place: String::new() });
    TestOutcome { failure, ..TestOutcome::of(test) }
}
