//! From failing cases to findings: each made as small as it can be, those with the same cause reported once.

use std::collections::BTreeSet;

use super::case::{CaseRun, run_case};
use super::caught;
use super::change::{Case, words};
use super::context::Context;
use super::exploration::Finding;
use super::violation::Violation;
use super::written;

/// How many failing cases of an exploration are looked at closely.
const MOST: usize = 500;
/// How many other ways to the same failure are named.
const MOST_OTHERS: usize = 12;

/// Failing cases of an exploration.
#[derive(Default)]
pub(crate) struct Findings(Vec<(Case, Violation, String)>);

struct Cause {
    key: (String, String, Vec<String>),
    case: Case,
    violation: Violation,
    evidence: String,
    others: BTreeSet<String>,
    cases: usize,
}

impl Findings {
    /// Keeps what a case violates.
    pub(crate) fn take(&mut self, case: &Case, run: &CaseRun) {
        for violation in &run.violations {
            self.0.push((case.clone(), violation.clone(), run.evidence.clone()));
        }
    }

    /// The findings, smallest first.
    pub(crate) fn finish(mut self, context: &Context<'_>) -> Vec<Finding> {
        self.0.sort_by_key(|(case, _, _)| case.len());
        let mut causes: Vec<Cause> = Vec::new();
        let mut looked_at = 0;
        for (case, violation, evidence) in self.0 {
            let contains = |cause: &Cause| {
                cause.violation.invariant == violation.invariant && cause.case.iter().all(|one| case.contains(one))
            };
            if let Some(known) = causes.iter_mut().find(|cause| contains(cause)) {
                known.cases += 1;
                continue;
            }
            let (case, violation, evidence) = match case.len() {
                0 | 1 => (case, violation, evidence),
                _ if looked_at == MOST => continue,
                _ => {
                    looked_at += 1;
                    smallest(context, case, violation, evidence)
                }
            };
            let key = cause_of(&case, &violation);
            match causes.iter_mut().find(|cause| cause.key == key) {
                Some(known) => {
                    known.cases += 1;
                    if case != known.case {
                        known.others.insert(case.iter().map(words).collect::<Vec<_>>().join(", and "));
                    }
                }
                None => {
                    causes.push(Cause { key, case, violation, evidence, others: BTreeSet::new(), cases: 1 });
                }
            }
        }
        causes.into_iter().map(|cause| finding(context, cause)).collect()
    }
}

/// Whether two failures have the same cause: the same line, or else the same calls.
fn cause_of(case: &Case, violation: &Violation) -> (String, String, Vec<String>) {
    let mut targets: Vec<String> = case.iter().map(|(slot, _)| slot.target()).collect();
    targets.dedup();
    if violation.invariant == "no-500" && !violation.place.is_empty() {
        targets.clear();
    }
    (violation.invariant.to_owned(), violation.place.clone(), targets)
}

/// Drops deviations one at a time, as long as the same invariant is violated.
fn smallest(
    context: &Context<'_>,
    mut case: Case,
    mut violation: Violation,
    mut evidence: String,
) -> (Case, Violation, String) {
    let mut at = 0;
    while at < case.len() && case.len() > 1 {
        let mut fewer = case.clone();
        fewer.remove(at);
        let run = caught::catching(|| run_case(context, &fewer));
        let same = |one: &&Violation| one.invariant == violation.invariant && one.place == violation.place;
        match run.violations.iter().find(same) {
            Some(still) => {
                (violation, evidence, case) = (still.clone(), run.evidence.clone(), fewer);
            }
            None => at += 1,
        }
    }
    (case, violation, evidence)
}

fn finding(context: &Context<'_>, cause: Cause) -> Finding {
    let Cause { case, violation, evidence, others, cases, .. } = cause;
    Finding {
        invariant: violation.invariant.to_owned(),
        test: written::body(&context.test.name, &case, &violation),
        what: violation.what,
        place: violation.place,
        deviations: case.iter().map(words).collect(),
        others: others.into_iter().take(MOST_OTHERS).collect(),
        cases,
        evidence,
    }
}
