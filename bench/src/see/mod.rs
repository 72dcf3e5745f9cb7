//! `see`: what it costs to see: the flight recorder, traces, the dashboard; and how soon editors have diagnostics.
//!
//! - `page`: CPU of the page of `cost` with each of them on and off, in turns. `editor`: `fanin lsp`. `collector`: what takes the spans.

mod collector;
mod editor;
mod page;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::process::{self, OTHER_CORE};
use crate::report::{Report, Table};
use crate::{Failure, Options};

/// Flows that are generated to try predictions on.
const FLOWS: u32 = 10_000;
const QUICK_FLOWS: u32 = 300;
/// The part of predictions that may be wrong.
const MOST_WRONG: f64 = 0.001;

/// What to compare with, and what tries predictions.
#[derive(Clone, Debug, Default)]
pub struct Plans {
    /// Another build of `fanin`, from before.
    pub before: Option<PathBuf>,
    /// The test program that compares predictions with the truth.
    pub predictions: Option<PathBuf>,
}

/// Runs the benchmark.
pub fn run(options: &Options, plans: &Plans) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let mut report = Report::new("see");
    report.data = json!({});
    page::run(options, plans.before.as_deref(), &mut report)?;
    editor::run(options, &mut report)?;
    if let Some(program) = &plans.predictions {
        predictions(options, program, &mut report)?;
    }
    Ok(report)
}

/// Predictions for generated flows, compared with what the same flows really do in paused time.
fn predictions(options: &Options, program: &Path, report: &mut Report) -> Result<(), Failure> {
    let flows = if options.quick { QUICK_FLOWS } else { FLOWS };
    let mut command = Command::new(program);
    command.args(["predictions_are_true_for_generated_flows", "--nocapture"]).env("FANIN_FLOWS", flows.to_string());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `29905 predictions, 0 wrong`
    let line = text.lines().find_map(|line| line.split_once(" predictions, "));
    let counts = line.and_then(|(made, rest)| {
        let made = made.split_whitespace().last()?.parse::<u32>().ok()?;
        Some((made, rest.split_whitespace().next()?.parse::<u32>().ok()?))
    });
    let (made, wrong) = counts.ok_or_else(|| Failure::Wrong(format!("no predictions: {text}")))?;
    let mut table = Table::new("Predictions of explanations", &["flows", "predictions", "wrong"]);
    table.rows.push(vec![flows.to_string(), made.to_string(), wrong.to_string()]);
    report.tables.push(table);
    let right = f64::from(wrong) <= f64::from(made) * MOST_WRONG && made > flows;
    report.holds("predictions that are right ≥ 99.9 %", format!("{} of {made}", made - wrong), right);
    report.data["predictions"] = json!({"flows": flows, "made": made, "wrong": wrong});
    Ok(())
}
