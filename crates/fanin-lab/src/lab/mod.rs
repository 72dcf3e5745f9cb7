//! The lab: experiments that compare this machine with the tables of published stories.
//!
//! Each experiment has a file of its own and an entry in [`EXPERIMENTS`]. It returns an [`Outcome`]: tables with the story's
//! columns next to ours, a chart, bars if there are any, and one sentence.
//!
//! | module | content |
//! |---|---|
//! | `args`, `role`, `run_dir` | command line, child processes' entry points, temporary folder of a run |
//! | `outcome`, `report`, `chart`, `text` | results, and writing them as text, JSON, Markdown, SVG and HTML |
//! | `process`, `stub`, `client`, `postgres`, `machine` | what experiments start and measure with |
//! | all others | one experiment each |
//!
//! Everything runs on loopback without root, in a temporary folder that is removed at the end.

mod args;
mod chart;
mod client;
mod error;
mod machine;
mod outcome;
mod process;
mod report;
mod role;
mod run_dir;
mod stub;
mod text;

mod blocked_loop;
mod coroutines;
mod deserialise;
mod files;
mod http_calls;
mod keepalive;
mod memory;
mod pool_table;
mod postgres;
mod push;
mod retailer;
mod slow_backend;
mod sql;
mod tiny;

use std::path::{Path, PathBuf};
use std::time::Instant;

pub use args::{LabArgs, RoleArgs, role, run};
pub use error::LabError;
pub use machine::Machine;
pub use outcome::{Bar, Column, Found, Outcome, Plot, Table};
pub use text::text;

/// What an experiment runs with.
#[derive(Debug, Clone)]
pub struct Context {
    /// The `fanin` program: experiments start it as a server and in other roles.
    pub program: PathBuf,
    /// Minutes instead of the real figures.
    pub quick: bool,
}

impl Context {
    /// One value for the quick run, another for the full one.
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// A heading.
    pub title: &'static str,
    /// The question and where it comes from.
    pub asked: &'static str,
    run: fn(&Context) -> Result<Found, LabError>,
}

/// All experiments, in the order in which `all` runs them.
pub const EXPERIMENTS: [&Experiment; 13] = [
    &pool_table::EXPERIMENT,
    &slow_backend::EXPERIMENT,
    &deserialise::EXPERIMENT,
    &tiny::EXPERIMENT,
    &files::EXPERIMENT,
    &sql::EXPERIMENT,
    &http_calls::EXPERIMENT,
    &coroutines::EXPERIMENT,
    &retailer::EXPERIMENT,
    &blocked_loop::EXPERIMENT,
    &memory::EXPERIMENT,
    &keepalive::EXPERIMENT,
    &push::EXPERIMENT,
];

/// The experiment of a name.
///
/// # Errors
/// If there is none; the error names those there are.
pub fn experiment(name: &str) -> Result<&'static Experiment, LabError> {
    EXPERIMENTS.into_iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let names = EXPERIMENTS.map(|experiment| experiment.name);
        let near = names.iter().max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)));
        let near = near.filter(|near| strsim::jaro(near, name) > 0.7);
        LabError::Unknown {
            name: name.to_owned(),
            hint: near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)")),
            known: names.join(", "),
        }
    })
}

impl Experiment {
    /// Runs it. One that lacks something gives an outcome that says what.
    ///
    /// # Errors
    /// When something fails that should not.
    pub fn run(&self, context: &Context) -> Result<Outcome, LabError> {
        let start = Instant::now();
        let at = machine::now();
        let (found, lacks) = match (self.run)(context) {
            Ok(found) => (found, None),
            Err(LabError::Lacks(what)) => (Found::default(), Some(what)),
            Err(error) => return Err(error),
        };
        let plots = found.plots.into_iter().enumerate().map(|(at, (caption, svg))| {
            let number = if at == 0 { String::new() } else { format!("-{}", at + 1) };
            Plot { file: format!("{}{number}.svg", self.name), caption, svg }
        });
        Ok(Outcome {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            asked: self.asked.to_owned(),
            measured: found.measured,
            machine: Machine::here(),
            quick: context.quick,
            at,
            seconds: start.elapsed().as_secs_f64(),
            tables: found.tables,
            plots: plots.collect(),
            bars: found.bars,
            shows: found.shows,
            notes: found.notes,
            lacks,
        })
    }
}

/// A temporary folder, gone with its owner and with the run.
pub(crate) fn scratch() -> Result<tempfile::TempDir, LabError> {
    let mut builder = tempfile::Builder::new();
    let made = match run_dir::get() {
        Some(base) => builder.prefix("run-").tempdir_in(base),
        None => builder.prefix("fanin-lab-").tempdir(),
    };
    made.map_err(LabError::io("a temporary folder"))
}

/// Writes a file of the report.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(file, text).map_err(|source| LabError::Write { file: file.to_path_buf(), source })
}
