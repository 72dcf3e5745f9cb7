//! `fanin check`: checks a folder without serving it.

use std::path::PathBuf;
use std::process::ExitCode;

use fanin_config::Severity;
use serde_json::json;

use crate::app::Origin;
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
}

/// Checks a folder, and tells what is wrong to people or programs.
pub fn run(args: &CheckArgs) -> ExitCode {
    let (app, mut found) = (Origin { dry_run: true, ..Origin::folder(&args.dir) }).inspect(None);
    // Errors last: they are what is on the screen in the end.
    found.sort_by_key(|one| one.severity == Severity::Error);
    let failed = report::has_errors(&found) || args.deny_warnings && !found.is_empty();
    let plans = if args.plan { app.as_ref().map(|app| app.flows().plans()) } else { None };
    if args.json {
        let mut output = json!({ "ok": !failed, "diagnostics": found });
        if let Some(plans) = &plans {
            output["plan"] = json!(plans);
        }
        report::out(format_args!("{output}\n"));
    } else {
        report::to_people(&found);
        match plans {
            Some(plans) => {
                let texts: Vec<String> = plans.iter().map(ToString::to_string).collect();
                report::out(format_args!("{}", texts.join("\n")));
            }
            None if !report::has_errors(&found) => report::out(format_args!("{} is all right\n", args.dir.display())),
            None => {}
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
