//! `fanin explore`: runs a request with every call's outcome varied, in virtual time.
//!
//! - `exploration`: options and results. `context`: what all cases share. `change`: one deviation. `changes`: which deviations a request can have. `orders`: orders of arrival.
//! - `case`: one run with its deviations. `invariants`, `not_found`: what must hold. `caught`: why a flow failed.
//! - `search`: which cases run. `alike`: which of them are combined with further deviations. `findings`: from failing cases to findings. `written`: a finding as a test.
//! - `report`: text and JSON.

mod alike;
mod case;
mod caught;
mod change;
mod changes;
mod context;
mod exploration;
mod findings;
mod invariants;
mod not_found;
mod orders;
mod report;
mod search;
mod violation;
mod written;

use std::time::Instant;

pub use exploration::{Exploration, ExploreOptions, ExploreRun, Finding};
pub use invariants::INVARIANTS;
pub use report::{json, text};

use crate::error::TestError;
use crate::snapshots::Snapshots;
use crate::suite::Suite;

impl Suite {
    /// Whether there is anything to explore.
    #[must_use]
    pub fn has_explorations(&self) -> bool {
        !self.explorations.is_empty()
    }

    /// Explores flows.
    ///
    /// # Errors
    /// Files that cannot be read, and explorations with parameters. What is found is no error.
    pub fn explore(&self, options: &ExploreOptions) -> Result<ExploreRun, TestError> {
        let began = Instant::now();
        let mut explorations = Vec::new();
        for test in &self.explorations {
            if !test.cases.is_empty() {
                let what = format!("{} takes parameters: an exploration has none", test.name);
                return Err(TestError::File { path: test.file.clone(), what });
            }
            let snapshots = Snapshots::load(&self.dir.join(&test.file), false)?;
            explorations.extend(search::explore(self, test, snapshots, options));
        }
        Ok(ExploreRun { explorations, took: began.elapsed() })
    }

    /// Appends the tests of all findings to the files of their explorations. Names of these files.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn write_tests(&self, run: &ExploreRun) -> Result<Vec<String>, TestError> {
        written::append(&self.dir, run)
    }
}
