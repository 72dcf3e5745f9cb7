//! `fanin test`: runs the tests of flows. `explore`: runs them with every call's outcome varied.

pub mod explore;
mod watch;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use fanin_test::{RunOptions, Suite, TestError, TestRun, report as reports};

use crate::report;

/// The options of `fanin test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// Folder that holds fanin.toml, or the file itself
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Only tests whose name contains this: `flows/page_test.star::test_late[small]`
    #[arg(long, short, value_name = "TEXT")]
    filter: Option<String>,
    /// Print names of tests, run none
    #[arg(long)]
    list: bool,
    /// Write snapshots anew, and remove those that no test compares
    #[arg(long)]
    update: bool,
    /// Run again whenever a file below the folder changes, until Ctrl-C
    #[arg(long, conflicts_with_all = ["update", "list"])]
    watch: bool,
    /// What random delays follow from; the same seed gives the same run
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; default: one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// What is printed to standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Also write JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Count which lines and branches of flows run, and write index.html and lcov.info to this folder
    #[arg(long, value_name = "DIR")]
    coverage: Option<PathBuf>,
    /// Fail if fewer lines of flows have run, in percent
    #[arg(long, value_name = "PERCENT", requires = "coverage", value_parser = clap::value_parser!(u8).range(0..=100))]
    min_coverage: Option<u8>,
}

/// The formats of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// Test Anything Protocol 14
    Tap,
    /// One JSON object
    Json,
}

/// Runs the command.
pub fn run(args: &TestArgs) -> ExitCode {
    let code = once(args);
    if args.watch { watch::again(&args.dir, || _ = once(args)) } else { code }
}

fn once(args: &TestArgs) -> ExitCode {
    try_once(args).unwrap_or_else(|error| failed(&error))
}

/// Says why nothing ran.
fn failed(error: &TestError) -> ExitCode {
    match error {
        TestError::Diagnostics(found) => report::to_people(found),
        other => report::chain(other),
    }
    ExitCode::FAILURE
}

fn try_once(args: &TestArgs) -> Result<ExitCode, TestError> {
    let suite = Suite::load(&args.dir)?;
    report::to_people(&suite.warnings);
    if args.list {
        suite.names().for_each(|name| report::out(format_args!("{name}\n")));
        return Ok(ExitCode::SUCCESS);
    }
    if suite.is_empty() {
        let what = format!("there are no tests: write functions test_...() into a file {}", fanin_test::SUFFIX);
        return Err(TestError::File { path: args.dir.display().to_string(), what });
    }
    let mut options = RunOptions {
        filter: args.filter.clone(),
        update: args.update,
        seed: args.seed,
        coverage: args.coverage.is_some(),
        colour: args.format == Format::Text && std::io::stdout().is_terminal(),
        ..RunOptions::default()
    };
    if let Some(threads) = args.threads {
        options.threads = threads.into();
    }
    let run = suite.run(&options)?;
    if run.outcomes.is_empty() {
        let what = format!("no test's name contains {:?}", args.filter.as_deref().unwrap_or_default());
        return Err(TestError::File { path: args.dir.display().to_string(), what });
    }
    match args.format {
        Format::Text => report::out(format_args!("{}", reports::text(&run, args.filter.is_some()))),
        Format::Tap => report::out(format_args!("{}", reports::tap(&run))),
        Format::Json => report::out(format_args!("{:#}\n", reports::json(&run))),
    }
    if let Some(path) = &args.junit {
        write(path, &reports::junit(&run))?;
    }
    let is_covered = cover(args, &run)?;
    Ok(if run.failed() == 0 && is_covered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the coverage, and tells whether it is enough.
fn cover(args: &TestArgs, run: &TestRun) -> Result<bool, TestError> {
    let (Some(to), Some(coverage)) = (&args.coverage, &run.coverage) else { return Ok(true) };
    let dir = if args.dir.is_dir() { args.dir.as_path() } else { args.dir.parent().unwrap_or(Path::new(".")) };
    coverage.write(dir, to)?;
    let (lines, _) = coverage.total();
    let Some(least) = args.min_coverage.filter(|least| lines.percent() < f64::from(*least)) else { return Ok(true) };
    eprintln!("{:.1} % of the lines of flows have run; --min-coverage asks for {least} %", lines.percent());
    Ok(false)
}

fn write(path: &Path, text: &str) -> Result<(), TestError> {
    std::fs::write(path, text)
        .map_err(|error| TestError::File { path: path.display().to_string(), what: error.to_string() })
}
