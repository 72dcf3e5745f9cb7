//! `fanin explore`: runs requests with every call's outcome varied.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use fanin_test::explore::{ExploreOptions, INVARIANTS, json, text};
use fanin_test::{Suite, TestError};

use super::failed;
use crate::report;

/// The options of `fanin explore`.
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// Only explorations of routes with this in their name, such as `POST /products`, or with it in their own name
    route: Option<String>,
    /// Folder that holds fanin.toml, or the file itself
    #[arg(long, value_name = "DIR", default_value = ".")]
    config: PathBuf,
    /// Switch an invariant off; may be repeated
    #[arg(long, value_name = "INVARIANT", value_parser = invariant())]
    without: Vec<String>,
    /// The most calls that a request may make, whatever happens
    #[arg(long, value_name = "N")]
    max_calls: Option<usize>,
    /// How many cases of one exploration are tried in order
    #[arg(long, value_name = "N", default_value_t = ExploreOptions::default().max_cases)]
    max_cases: usize,
    /// If there are more: how many others are drawn at random
    #[arg(long, value_name = "N", default_value_t = ExploreOptions::default().random_cases)]
    cases: usize,
    /// What random choices follow from; the same seed gives the same cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; default: one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Append a test for each finding to the file of its exploration
    #[arg(long)]
    write: bool,
    /// What is printed to standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The formats of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

fn invariant() -> clap::builder::PossibleValuesParser {
    INVARIANTS.map(|(name, what)| clap::builder::PossibleValue::new(name).help(what)).into()
}

/// Runs the command.
pub fn run(args: &ExploreArgs) -> ExitCode {
    try_run(args).unwrap_or_else(|error| failed(&error))
}

fn try_run(args: &ExploreArgs) -> Result<ExitCode, TestError> {
    let suite = Suite::load(&args.config)?;
    report::to_people(&suite.warnings);
    let nothing = |what: String| TestError::File { path: args.config.display().to_string(), what };
    if !suite.has_explorations() {
        let what =
            format!("there is nothing to explore: write functions explore_...() into a file {}", fanin_test::SUFFIX);
        return Err(nothing(what));
    }
    let mut options = ExploreOptions {
        route: args.route.clone(),
        without: args.without.iter().cloned().collect(),
        max_calls: args.max_calls,
        max_cases: args.max_cases,
        random_cases: args.cases,
        seed: args.seed,
        ..ExploreOptions::default()
    };
    if let Some(threads) = args.threads {
        options.threads = threads.into();
    }
    let run = suite.explore(&options)?;
    if run.explorations.is_empty() {
        let what = format!("no exploration is of a route {:?}", args.route.as_deref().unwrap_or_default());
        return Err(nothing(what));
    }
    match args.format {
        Format::Text => report::out(format_args!("{}", text(&run))),
        Format::Json => report::out(format_args!("{:#}\n", json(&run))),
    }
    if args.write {
        for file in suite.write_tests(&run)? {
            eprintln!("tests added: {file}");
        }
    }
    Ok(if run.found() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
