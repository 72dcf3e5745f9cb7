//! What is explored, how, and what came of it.

use std::collections::BTreeSet;
use std::time::Duration;

/// How flows are explored.
#[derive(Debug, Clone)]
pub struct ExploreOptions {
    /// Only explorations that send requests to a route with this in its name, or whose own name contains it.
    pub route: Option<String>,
    /// Names of [`INVARIANTS`](super::INVARIANTS) that are off.
    pub without: BTreeSet<String>,
    /// The most calls that a request may make, if that is bounded.
    pub max_calls: Option<usize>,
    /// The most cases of one exploration that are tried in order.
    pub max_cases: usize,
    /// How many cases are drawn at random if there are more.
    pub random_cases: usize,
    /// What random choices follow from.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
}

impl Default for ExploreOptions {
    fn default() -> ExploreOptions {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        ExploreOptions {
            route: None,
            without: BTreeSet::new(),
            max_calls: None,
            max_cases: 50_000,
            random_cases: 1_000,
            seed: 0,
            threads,
        }
    }
}

/// What one function `explore_...` came to.
#[derive(Debug, Clone)]
pub struct Exploration {
    /// The file.
    pub file: String,
    /// The function.
    pub name: String,
    /// The routes it sends requests to.
    pub routes: Vec<String>,
    /// Requests of the run without deviations that were varied.
    pub requests: usize,
    /// Cases that ran.
    pub cases: usize,
    /// Those of them that were drawn at random.
    pub random: usize,
    /// The most deviations in one case.
    pub together: usize,
    /// Whether these were all.
    pub is_complete: bool,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Real time.
    pub took: Duration,
}

/// What all explorations came to.
#[derive(Debug)]
pub struct ExploreRun {
    /// In the order of files and functions.
    pub explorations: Vec<Exploration>,
    /// Real time.
    pub took: Duration,
}

impl ExploreRun {
    /// The number of findings.
    #[must_use]
    pub fn found(&self) -> usize {
        self.explorations.iter().map(|one| one.findings.len()).sum()
    }
}

/// Something that does not hold in some case.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The invariant's name; `assertions` for the exploration's own.
    pub invariant: String,
    /// What does not hold.
    pub what: String,
    /// File and line, if it is one line's fault.
    pub place: String,
    /// The deviations that are needed, in words. None if it fails without any.
    pub deviations: Vec<String>,
    /// Other deviations that lead to it.
    pub others: Vec<String>,
    /// How many cases led to it.
    pub cases: usize,
    /// The last responses with their calls.
    pub evidence: String,
    /// The body of a test that fails because of it.
    pub test: Vec<String>,
}
