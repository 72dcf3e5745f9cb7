//! The command line of `fanin lab`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::error::LabError;
use super::outcome::Outcome;
use super::{Context, EXPERIMENTS, Experiment, experiment, process, report, role as roles, run_dir, text};

/// Run experiments, and put their figures beside those of published stories
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  \
    fanin lab all --quick          every experiment in its short form, under ten minutes\n  \
    fanin lab http coroutines      two of them, in full\n  \
    fanin lab all --out figures    everything; figures/index.html is the report\n\n\
    Experiments:\n  \
    threads       do many threads cost CPU? pools of 1 to 4096\n  \
    slow-backend  one of three backends becomes slow or hangs: who else suffers?\n  \
    deserialise   which share of a request's CPU goes into JSON?\n  \
    tiny          how small may a task be before a coroutine costs more than it saves?\n  \
    files         reading files: on the pool's threads, or beside them?\n  \
    sql           a queue for connections bounded by time, or by number? (needs PostgreSQL)\n  \
    http          100 calls in sequence and in parallel, threads against coroutines\n  \
    coroutines    a million suspended coroutines: time and bytes\n  \
    retailer      the ways to build a page of many services\n  \
    blocked-loop  a callback that blocks its own event loop\n  \
    memory        threads that start and end, and their effect on allocators\n  \
    keepalive     an instance vanishes without closing its connections\n  \
    push          clients that wait for events: on a thread each, and without threads\n\n\
    Experiments need no root, use loopback only, and remove their files. Run them on an idle\n\
    machine: figures of a busy one are worth little. If one lacks a server, it reports how to get it,\n\
    and the others run. Each run adds to the report in the --out folder.\n\
    Exit status: 0 if all ran (even if bars fall short), 1 if one failed, 2 for a wrong command line.")]
pub struct LabArgs {
    /// Experiments, or `all`
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Run the short forms, with rougher figures
    #[arg(long)]
    pub quick: bool,
    /// Folder for JSON, SVG and the report, index.html
    #[arg(long, value_name = "DIR", default_value = "lab-report")]
    pub out: PathBuf,
}

/// One part of an experiment, as a process of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct RoleArgs {
    /// Which, and with what
    #[arg(required = true)]
    pub what: Vec<String>,
}

/// Runs `fanin lab`.
///
/// # Errors
/// An unknown experiment; a report that cannot be written. A failed experiment is reported on standard error, and the others run.
pub fn run(args: &LabArgs) -> Result<ExitCode, LabError> {
    let ran = measure(args);
    run_dir::remove();
    ran
}

fn measure(args: &LabArgs) -> Result<ExitCode, LabError> {
    let chosen = chosen(&args.names)?;
    // Before anything is measured: hours of work must not be lost to a folder that cannot be written.
    report::prepare(&args.out)?;
    let program = std::env::current_exe().map_err(LabError::io("finding this program"))?;
    clean_up_on_signal()?;
    run_dir::create()?;
    let context = Context { program, quick: args.quick };
    let mut failed = false;
    for (at, experiment) in chosen.iter().enumerate() {
        eprintln!("[{}/{}] {}: {}", at + 1, chosen.len(), experiment.name, experiment.title);
        match experiment.run(&context) {
            Ok(outcome) => {
                print(&outcome)?;
                report::add(&args.out, &outcome)?;
            }
            Err(error @ LabError::Write { .. }) => return Err(error),
            Err(error) => {
                process::unless_ending();
                failed = true;
                tell(experiment.name, &error);
            }
        }
    }
    let page = report::page(&args.out)?;
    eprintln!("report: {}", page.display());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs a role: the measuring part of an experiment, whose result goes to standard output as JSON.
///
/// # Errors
/// Whatever fails in it.
pub fn role(args: &RoleArgs) -> Result<ExitCode, LabError> {
    let result = roles::run(&args.what)?;
    print_text(&result.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, LabError> {
    let mut chosen: Vec<&'static Experiment> = Vec::new();
    for name in names {
        let more = if name == "all" { EXPERIMENTS.to_vec() } else { vec![experiment(name)?] };
        for one in more {
            if !chosen.iter().any(|other| other.name == one.name) {
                chosen.push(one);
            }
        }
    }
    Ok(chosen)
}

fn print(outcome: &Outcome) -> Result<(), LabError> {
    print_text(&text(outcome))
}

/// A reader of standard output that goes away is no error.
fn print_text(text: &str) -> Result<(), LabError> {
    let mut to = io::stdout().lock();
    process::unless_ending();
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(LabError::Write { file: PathBuf::from("standard output"), source })
        }
        _ => Ok(()),
    }
}

fn tell(name: &str, error: &LabError) {
    let mut text = format!("error: {name}: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    eprintln!("{text}");
}

/// Ctrl-C and SIGTERM end the children and remove the temporary folder before they end this process.
fn clean_up_on_signal() -> Result<(), LabError> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = || LabError::io("setting up signals");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    // Before the first child starts: from then on a signal must not end this process alone.
    let (mut int, mut term) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(failed())?, signal(SignalKind::terminate()).map_err(failed())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
        });
        process::end_children();
        run_dir::remove();
        std::process::exit(130);
    };
    std::thread::Builder::new().name("lab-signals".to_owned()).spawn(wait).map_err(failed())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Result<Vec<&'static str>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        chosen(&names).map(|all| all.iter().map(|one| one.name).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn all_are_all_and_none_is_twice() {
        assert_eq!(names(&["all"]).unwrap().len(), EXPERIMENTS.len());
        assert_eq!(names(&["http", "tiny", "http"]).unwrap(), ["http", "tiny"]);
        assert_eq!(names(&["http", "all"]).unwrap().len(), EXPERIMENTS.len());
    }

    #[test]
    fn a_name_that_is_none_is_told_with_those_there_are() {
        let error = names(&["coroutine"]).unwrap_err();
        assert!(error.contains("did you mean `coroutines`?") && error.contains("blocked-loop"), "{error}");
        assert!(!names(&["x"]).unwrap_err().contains("did you mean"));
    }
}
