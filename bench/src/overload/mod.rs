//! `overload`: the promises under overload, O1 to O14 of the design, each run for real.

mod recover;
mod shed;
mod stage;
mod steady;
mod upstream;

use crate::Failure;
use crate::process::{self, OTHER_CORE};
use crate::report::Report;

use stage::Stage;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plans {
    /// The durations that the bars name, not the short ones.
    pub full: bool,
    /// Only these, `O6`; all if there is none.
    pub only: Vec<String>,
}

type Experiment = fn(&mut Stage, &mut Report, bool) -> Result<(), Failure>;

/// Names of the bars that an experiment is about, and the experiment. O13 (who shares a call with another that is cancelled)
/// needs no load: it is a test of the shared calls themselves.
const ALL: [(&[&str], Experiment); 10] = [
    (&["O1", "O2", "O3"], shed::shed),
    (&["O4"], recover::recover),
    (&["O5"], recover::recover_from_retries),
    (&["O6"], upstream::one_hangs),
    (&["O7"], upstream::one_fails),
    (&["O8"], upstream::one_heals),
    (&["O9"], upstream::deadline),
    (&["O10"], shed::priorities),
    (&["O11", "O12"], steady::steady),
    (&["O14"], upstream::only_an_upstream_is_slow),
];

/// Runs the benchmark.
pub fn run(plans: &Plans) -> Result<Report, Failure> {
    process::pin(OTHER_CORE)?;
    let asked_for = |name: &str| plans.only.iter().any(|only| only.eq_ignore_ascii_case(name));
    let exists = |only: &str| ALL.iter().any(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(only)));
    if let Some(unknown) = plans.only.iter().find(|only| !exists(only)) {
        return Err(Failure::Usage(format!("no experiment `{unknown}`: O1 to O12 and O14")));
    }
    let mut report = Report::new("overload");
    for (names, experiment) in ALL {
        if plans.only.is_empty() || names.iter().any(|name| asked_for(name)) {
            eprintln!("overload: {}", names.join(", "));
            let mut stage = Stage::new()?;
            // What could not be measured holds no bar, and must not cost the others theirs.
            if let Err(failure) = experiment(&mut stage, &mut report, plans.full) {
                report.holds(&names.join(", "), failure.to_string(), false);
            }
        }
    }
    Ok(report)
}
