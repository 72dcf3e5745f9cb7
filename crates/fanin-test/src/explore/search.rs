//! Which cases run: each deviation alone, orders of answers, then more deviations together, breadth first.
//!
//! Three rules keep the number of cases small:
//!
//! - Deviations of one request that lead to the same run count as one when they are combined with others (`alike`): the responses were
//!   the same, and so were the requests and their times.
//! - A deviation that changes nothing where it was added is not combined with others there: the case without it is.
//! - The failure of a required call is not told to the flow, which is cut short where it waits for the call. So such a failure runs once,
//!   in the smallest case that makes the request, and is combined with nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::alike::Alike;
use super::case::{CaseRun, run_case};
use super::change::{Case, Change, Slot};
use super::changes::{Seen, changes_of};
use super::context::{Context, Healthy};
use super::exploration::{Exploration, ExploreOptions};
use super::findings::Findings;
use super::violation::Violation;
use super::{caught, orders};
use crate::snapshots::Snapshots;
use crate::suite::{Suite, Test};

/// What a file's invariant is called.
const ALWAYS: &str = "always";
/// The most deviations in a case that is drawn at random.
const MOST_RANDOM: usize = 4;

/// Explores one function. `None` if the route is not among those asked for.
pub(crate) fn explore(
    suite: &Suite,
    test: &Test,
    snapshots: Snapshots,
    options: &ExploreOptions,
) -> Option<Exploration> {
    let began = Instant::now();
    let always = suite.program.function(&test.file, ALWAYS);
    let mut context = Context { suite, test, snapshots, options, always, healthy: None, plans: BTreeMap::new() };
    let (base, again) = caught::catching(|| (run_case(&context, &Case::new()), run_case(&context, &Case::new())));
    let is_wanted =
        |wanted: &String| test.id().contains(wanted) || base.routes.iter().any(|name| name.contains(wanted));
    if !options.route.as_ref().is_none_or(is_wanted) {
        return None;
    }
    context.healthy = Some(Healthy {
        is_steady: base.bodies == again.bodies,
        statuses: base.statuses.clone(),
        bodies: base.bodies.clone(),
    });
    context.plans = plans(suite);
    // Again, with the plans.
    let base = caught::catching(|| run_case(&context, &Case::new()));
    let mut routes = base.routes.clone();
    routes.sort();
    routes.dedup();
    let mut search = Search {
        context: &context,
        findings: Findings::default(),
        cases: 1,
        random: 0,
        together: 0,
        is_complete: true,
        known: BTreeMap::new(),
        all: BTreeMap::new(),
        alike: Alike::default(),
    };
    let requests = base.seen.len();
    search.run(base);
    let Search { findings, cases, random, together, is_complete, .. } = search;
    let findings = findings.finish(&context);
    Some(Exploration {
        file: test.file.clone(),
        name: test.name.clone(),
        routes,
        requests,
        cases,
        random,
        together,
        is_complete,
        findings,
        took: began.elapsed(),
    })
}

/// The most calls of each route whose plan has no loops and nothing unknown.
fn plans(suite: &Suite) -> BTreeMap<String, Option<usize>> {
    let Ok(flows) = suite.setting.flows() else { return BTreeMap::new() };
    let bound = |bound: &fanin_lang::Bound| bound.per_item.is_empty().then_some(bound.constant as usize);
    let known = flows.plans().into_iter().filter(|route| route.plan.unknown.is_empty() && !route.plan.cut);
    known.map(|route| (route.route, bound(&route.plan.calls))).collect()
}

struct Search<'a> {
    context: &'a Context<'a>,
    findings: Findings,
    cases: usize,
    random: usize,
    together: usize,
    is_complete: bool,
    /// For each request the deviations that are combined with others: they differ from each other, and the flow goes on.
    known: BTreeMap<Slot, Vec<Change>>,
    /// For each request all of them.
    all: BTreeMap<Slot, Vec<Change>>,
    alike: Alike,
}

/// A case to run, and the run that it adds a deviation to.
struct Next {
    case: Case,
    parent: usize,
    added: (Slot, Change),
}

impl Search<'_> {
    fn run(&mut self, base: CaseRun) {
        let options = self.context.options;
        let mut random = fastrand::Rng::with_seed(options.seed);
        self.findings.take(&Case::new(), &base);
        if !base.violations.is_empty() {
            // Whatever deviates, this is violated, too.
            self.is_complete = false;
            return;
        }
        self.alike.add(&Case::new(), base.signature);
        let (orders, all_orders) = orders::cases(&base.seen, &mut random);
        self.is_complete &= all_orders;
        let mut done: HashSet<Case> = HashSet::new();
        let mut frontier = vec![(Case::new(), base)];
        let mut orders = Some(orders);
        while !frontier.is_empty() {
            let mut next = self.children(&frontier, &mut done);
            self.limit(&mut next);
            let runs = self.run_all(&next.iter().map(|one| one.case.clone()).collect::<Vec<_>>());
            self.learn(&frontier, &next, &runs);
            frontier = self.advance(next, runs);
            if let Some(mut orders) = orders.take() {
                self.limit(&mut orders);
                let runs = self.run_all(&orders);
                for (case, run) in orders.iter().zip(&runs) {
                    self.findings.take(case, run);
                }
            }
        }
        if !self.is_complete {
            self.at_random(&mut random, &done);
        }
    }

    /// Drops cases beyond the bound.
    fn limit<T>(&mut self, next: &mut Vec<T>) {
        let left = self.context.options.max_cases.saturating_sub(self.cases);
        if next.len() > left {
            next.truncate(left);
            self.is_complete = false;
        }
    }

    /// Each case of the frontier with one deviation more.
    fn children(&mut self, frontier: &[(Case, CaseRun)], done: &mut HashSet<Case>) -> Vec<Next> {
        let mut next = Vec::new();
        for (parent, (case, run)) in frontier.iter().enumerate() {
            for seen in run.seen.iter().filter(|seen| !seen.deviates) {
                let changes = self.changes(seen);
                for change in changes {
                    let added = (seen.slot.clone(), change);
                    let mut case = case.clone();
                    case.push(added.clone());
                    case.sort();
                    if done.insert(case.clone()) {
                        next.push(Next { case, parent, added });
                    }
                }
            }
        }
        next
    }

    fn changes(&mut self, seen: &Seen) -> Vec<Change> {
        if let Some(known) = self.known.get(&seen.slot) {
            return known.clone();
        }
        self.all.entry(seen.slot.clone()).or_insert_with(|| changes_of(seen)).clone()
    }

    /// Which deviations of requests that were new differ from each other.
    fn learn(&mut self, frontier: &[(Case, CaseRun)], next: &[Next], runs: &[CaseRun]) {
        let mut signatures: HashMap<(usize, &Slot), HashSet<u64>> = HashMap::new();
        let mut learnt: BTreeMap<Slot, (usize, Vec<Change>)> = BTreeMap::new();
        for (one, run) in next.iter().zip(runs) {
            let (slot, change) = &one.added;
            if self.known.contains_key(slot) {
                continue;
            }
            // The first run in which a request was seen decides.
            let (parent, changes) = learnt.entry(slot.clone()).or_insert_with(|| (one.parent, Vec::new()));
            if *parent != one.parent {
                continue;
            }
            let own = signatures.entry((one.parent, slot)).or_default();
            own.insert(frontier[one.parent].1.signature);
            if own.insert(run.signature) && !run.is_ended {
                changes.push(change.clone());
            }
        }
        self.known.extend(learnt.into_iter().map(|(slot, (_, changes))| (slot, changes)));
    }

    /// Findings, and the cases that further deviations are added to.
    fn advance(&mut self, next: Vec<Next>, runs: Vec<CaseRun>) -> Vec<(Case, CaseRun)> {
        for (one, run) in next.iter().zip(&runs) {
            self.alike.add(&one.case, run.signature);
        }
        let mut frontier = Vec::new();
        for (one, run) in next.into_iter().zip(runs) {
            self.together = self.together.max(one.case.len());
            self.findings.take(&one.case, &run);
            let (slot, change) = &one.added;
            let differs = self.known.get(slot).is_some_and(|known| known.contains(change));
            if run.violations.is_empty() && differs && !run.is_ended && self.alike.is_new(&one.case, run.signature) {
                frontier.push((one.case, run));
            }
        }
        frontier
    }

    /// Cases drawn from all deviations that were met.
    fn at_random(&mut self, random: &mut fastrand::Rng, done: &HashSet<Case>) {
        let slots: Vec<(&Slot, &Vec<Change>)> = self.all.iter().filter(|(_, changes)| !changes.is_empty()).collect();
        if slots.len() < 2 {
            return;
        }
        let mut drawn = BTreeSet::new();
        for _ in 0..self.context.options.random_cases {
            let count = random.usize(2..=MOST_RANDOM.min(slots.len()));
            let mut case: BTreeMap<&Slot, &Change> = BTreeMap::new();
            while case.len() < count {
                let (slot, changes) = slots[random.usize(..slots.len())];
                case.insert(slot, &changes[random.usize(..changes.len())]);
            }
            let case: Case = case.into_iter().map(|(slot, change)| (slot.clone(), change.clone())).collect();
            if !done.contains(&case) {
                drawn.insert(case);
            }
        }
        let drawn: Vec<Case> = drawn.into_iter().collect();
        let runs = self.run_all(&drawn);
        self.random = drawn.len();
        for (case, run) in drawn.iter().zip(&runs) {
            self.together = self.together.max(case.len());
            self.findings.take(case, run);
        }
    }

    /// Runs cases on all threads; their runs in order.
    fn run_all(&mut self, cases: &[Case]) -> Vec<CaseRun> {
        self.cases += cases.len();
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, CaseRun)>> = Mutex::new(Vec::with_capacity(cases.len()));
        let context = self.context;
        let work = || {
            caught::catching(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    let run = catch_unwind(AssertUnwindSafe(|| run_case(context, case)));
                    let run = run.unwrap_or_else(|_| CaseRun {
                        violations: vec![Violation::by_itself(
                            "internal error: the case panicked; please report it".to_owned(),
                        )],
                        ..CaseRun::default()
                    });
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, run));
                }
            });
        };
        std::thread::scope(|scope| {
            for _ in 1..context.options.threads.clamp(1, cases.len().max(1)) {
                scope.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, run)| run).collect()
    }
}
