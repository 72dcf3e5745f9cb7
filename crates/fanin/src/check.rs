//! `fanin check`: checks a folder without serving it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fanin_config::{Diagnostic, Severity};
use fanin_flow::{ChangeKind, PlanChanges, RoutePlan};
use serde_json::json;

use crate::app::{DryRun, Origin};
use crate::report;

/// What to check, and how to report it.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Folder that holds fanin.toml, or the file itself
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Print one JSON object to standard output: {"ok": ..., "diagnostics": [...]}
    #[arg(long)]
    pub json: bool,
    /// Exit with status 1 for warnings, too
    #[arg(long)]
    pub deny_warnings: bool,
    /// Show for each route the most rounds, calls and effects, what waits for what, and what runs in order
    #[arg(long)]
    pub plan: bool,
    /// With --plan, show in its place how the worst case of each route differs from the one in this folder: as Markdown, for a pull request
    #[arg(long, value_name = "OLD_DIR", requires = "plan")]
    pub against: Option<PathBuf>,
    /// With --against, exit with status 1 if the worst case of a route is worse than before
    #[arg(long, requires = "against")]
    pub deny_worse: bool,
}

/// What is printed besides errors and warnings.
enum Shown {
    Nothing,
    Plans(Vec<RoutePlan>),
    Changes(PlanChanges),
}

/// Checks a folder, and tells what is wrong to people or programs.
pub fn run(args: &CheckArgs) -> ExitCode {
    let found = dry_run(&args.dir);
    let plans = if args.plan { found.plans() } else { None };
    let mut diagnostics = found.diagnostics;
    let shown = match (plans, &args.against) {
        (None, _) => Shown::Nothing,
        (Some(plans), None) => Shown::Plans(plans),
        (Some(plans), Some(old)) => match plans_of(old) {
            Ok(before) => Shown::Changes(PlanChanges::between(&before, &plans)),
            Err(problem) => {
                diagnostics.push(problem);
                Shown::Nothing
            }
        },
    };
    // Errors last: they are what is on the screen in the end.
    diagnostics.sort_by_key(|one| one.severity == Severity::Error);
    let worse = matches!(&shown, Shown::Changes(changes) if changes.count(ChangeKind::Worse) > 0);
    let failed =
        report::has_errors(&diagnostics) || args.deny_warnings && !diagnostics.is_empty() || args.deny_worse && worse;
    if args.json {
        let mut output = json!({ "ok": !failed, "diagnostics": diagnostics });
        match &shown {
            Shown::Nothing => {}
            Shown::Plans(plans) => output["plan"] = json!(plans),
            Shown::Changes(changes) => {
                output["changes"] = json!(changes.routes);
                output["summary"] =
                    ChangeKind::ALL.map(|kind| (kind.as_str(), changes.count(kind))).into_iter().collect();
            }
        }
        report::out(format_args!("{output}\n"));
    } else {
        report::to_people(&diagnostics);
        if let (true, true, Some(old)) = (args.deny_worse, worse, &args.against) {
            eprintln!("error: the worst case of a route is worse than in {}", old.display());
        }
        match shown {
            Shown::Plans(plans) => {
                let texts: Vec<String> = plans.iter().map(ToString::to_string).collect();
                report::out(format_args!("{}", texts.join("\n")));
            }
            Shown::Changes(changes) => report::out(format_args!("{changes}")),
            Shown::Nothing if !report::has_errors(&diagnostics) => {
                report::out(format_args!("{} is all right\n", args.dir.display()));
            }
            Shown::Nothing => {}
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn dry_run(dir: &Path) -> DryRun {
    Origin { dry_run: true, ..Origin::folder(dir) }.dry_run()
}

/// The plans of the folder to compare with, or one error that says why there are none.
fn plans_of(old: &Path) -> Result<Vec<RoutePlan>, Diagnostic> {
    let found = dry_run(old);
    if let Some(plans) = found.plans() {
        return Ok(plans);
    }
    let mut errors = found.diagnostics.iter().filter(|one| one.severity == Severity::Error);
    let first = errors.next().map(|one| format!(": {one}")).unwrap_or_default();
    let more = match errors.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let message = format!("--against has no plan to compare with{first}{more}");
    let hint =
        format!("`fanin check {}` must find no error; environment variables count for both folders", old.display());
    Err(Diagnostic::file(old.display().to_string(), message).hint(hint))
}
