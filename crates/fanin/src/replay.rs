//! `fanin replay`: runs recorded requests with another configuration.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use bytes::Bytes;
use fanin_recording::{ReadError, Recording};
use fanin_test::TestError;
use fanin_test::replay::{Ignore, Replay, ReplayOptions, as_test, json, text};

use crate::report;

/// What to replay, and with what.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// The recording that `fanin record` has made
    file: PathBuf,
    /// Folder that holds fanin.toml, or the file itself
    #[arg(long, value_name = "DIR", default_value = ".")]
    config: PathBuf,
    /// What of responses may differ: a header, or a place in JSON such as json:items.*.age; may be repeated
    #[arg(long, value_name = "RULE")]
    ignore: Vec<String>,
    /// Another value of a configuration key, such as upstreams.catalog.limit=32; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    what_if: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Threads; default: one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// What random choices follow from; the same seed gives the same choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The request that is written as a test, by its number, from 0
    #[arg(long, value_name = "N", requires = "write_test")]
    request: Option<usize>,
    /// Write one request as a test with stubs, into a new file, and replay nothing
    #[arg(long, value_name = "FILE", requires = "request")]
    write_test: Option<PathBuf>,
}

/// Why nothing was replayed.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("{} cannot be read", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("{}", .0.display())]
    Recording(PathBuf, #[source] ReadError),
    #[error("--ignore {0}")]
    Ignore(String),
    #[error("{} has {has} requests, numbered from 0; there is no request {wanted}", .file.display())]
    NoRequest { file: PathBuf, has: usize, wanted: usize },
    #[error("{} has no requests", .0.display())]
    Empty(PathBuf),
    #[error("request {0} cannot be a test: {1}")]
    NoTest(usize, String),
    #[error("{} cannot be written", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Test(#[from] TestError),
}

/// The status of a command that could do nothing.
const UNUSABLE: u8 = 2;

/// Runs the command.
pub fn run(args: &ReplayArgs) -> ExitCode {
    match try_run(args) {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(error) => {
            match &error {
                ReplayError::Test(TestError::Diagnostics(found)) => report::to_people(found),
                other => report::chain(other),
            }
            ExitCode::from(UNUSABLE)
        }
    }
}

fn try_run(args: &ReplayArgs) -> Result<bool, ReplayError> {
    let file = std::fs::read(&args.file).map_err(|error| ReplayError::File(args.file.clone(), error))?;
    let recording =
        Recording::read(&Bytes::from(file)).map_err(|error| ReplayError::Recording(args.file.clone(), error))?;
    if let (Some(to), Some(number)) = (&args.write_test, args.request) {
        return write_test(args, &recording, number, to).map(|()| false);
    }
    if recording.requests.is_empty() {
        return Err(ReplayError::Empty(args.file.clone()));
    }
    let mut ignore = Ignore::default();
    args.ignore.iter().try_for_each(|rule| ignore.add(rule)).map_err(ReplayError::Ignore)?;
    let cores = available_parallelism().map_or(1, usize::from);
    let options = ReplayOptions {
        config: args.config.clone(),
        what_if: args.what_if.clone(),
        ignore,
        threads: args.threads.map_or(cores, usize::from),
        seed: args.seed,
    };
    let replay = Replay::prepare(recording, options)?;
    report::to_people(&replay.warnings);
    let run = replay.run()?;
    match args.json {
        true => report::out(format_args!("{:#}\n", json(&run))),
        false => report::out(format_args!("{}", text(&run))),
    }
    Ok(run.differs())
}

fn write_test(args: &ReplayArgs, recording: &Recording, number: usize, to: &Path) -> Result<(), ReplayError> {
    let request = recording.requests.get(number).ok_or_else(|| ReplayError::NoRequest {
        file: args.file.clone(),
        has: recording.requests.len(),
        wanted: number,
    })?;
    let test = as_test(request, number).map_err(|why| ReplayError::NoTest(number, why))?;
    // Formatted, if the formatter takes it.
    let test = fanin_lang::format_source("test.star", &test).unwrap_or(test);
    let wrong = |error| ReplayError::Write(to.to_path_buf(), error);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(to).map_err(wrong)?;
    io::Write::write_all(&mut file, test.as_bytes()).map_err(wrong)?;
    report::out(format_args!("{}: test_recorded_{number}\n", to.display()));
    Ok(())
}
