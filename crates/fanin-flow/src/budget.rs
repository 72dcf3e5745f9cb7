//! Budgets of routes: whether the plan of a flow proves that it keeps within `budget`, and what of it does not.

use std::cmp::Reverse;
use std::sync::Arc;

use fanin_config::{Allowance, Budget, Diagnostic, Polynomial, Route, Severity, Source};
use fanin_lang::{PlannedCall, PlannedLoop};

use crate::plan::{RoutePlan, called, polynomial, short};

/// What a budget's route does not keep, each an error where the budget is set.
pub(crate) fn check(route: &Route, budget: &Budget, plan: &RoutePlan, source: &Arc<Source>) -> Vec<Diagnostic> {
    let error = |allowance: &Allowance, (message, hint): (String, String)| Diagnostic {
        severity: Severity::Error,
        source: source.clone(),
        at: allowance.at,
        message: format!("{}: {message}", route.label()),
        hint: Some(hint),
        lint: None,
    };
    if !plan.is_complete() {
        return budget.allowances().take(1).map(|(_, allowance)| error(allowance, unproved(plan))).collect();
    }
    let exceeded = |(key, allowance): (&str, &Allowance)| {
        let found = polynomial(match key {
            "rounds" => &plan.plan.rounds,
            "calls" => &plan.plan.calls,
            _ => &plan.plan.effects,
        });
        let power = found.above(&allowance.most)?;
        let text = match key {
            "rounds" => rounds(plan, &found, &allowance.most),
            "calls" => calls(plan, &found, &allowance.most, power),
            _ => effects(plan, &found, &allowance.most, power),
        };
        Some(error(allowance, text))
    };
    budget.allowances().filter_map(exceeded).collect()
}

fn unproved(plan: &RoutePlan) -> (String, String) {
    let reason = match plan.plan.unknown.as_slice() {
        [] => {
            return (
                "the budget cannot be proved, because the flow is too large to be followed to its end".to_owned(),
                "divide the flow into several routes, or remove `budget`".to_owned(),
            );
        }
        [(what, at)] => format!("{} {what}", short(at)),
        [(what, at), more @ ..] => format!("{} {what} (and {} more)", short(at), more.len()),
    };
    (
        format!("the budget cannot be proved, because {reason}"),
        "the plan cannot count what it cannot follow: call functions and upstreams by their names, without recursion, or remove `budget`"
            .to_owned(),
    )
}

/// `catalog.product in flow.star:11, called by page in flow.star:5`
fn place(call: &PlannedCall) -> String {
    let mut text = format!("{} in {}", called(call), short(&call.position));
    if let [.., (function, position)] = call.via.as_slice() {
        text.push_str(&format!(", called by {function} in {}", short(position)));
    }
    text
}

fn items(plan: &RoutePlan, loops: &[u32]) -> String {
    let one = |number: &u32| plan.plan.loops.iter().find(|one: &&PlannedLoop| one.number == *number);
    let all = loops.iter().filter_map(one).map(|one| format!("{} ({})", one.over, short(&one.position)));
    all.collect::<Vec<_>>().join(" and of ")
}

/// `1 call`, `2 + n calls`
fn many(number: &Polynomial, what: &str) -> String {
    let s = if *number == Polynomial::of([(0, 1)]) { "" } else { "s" };
    format!("{number} {what}{s}")
}

/// What `n` stands for, where a sum has it.
fn with_n(hint: &str, sums: &[&Polynomial]) -> String {
    let n = if sums.iter().any(|sum| sum.degree() > 0) { "; n is the number of items of a loop" } else { "" };
    format!("{hint}, or raise the budget{n}")
}

fn rounds(plan: &RoutePlan, found: &Polynomial, most: &Polynomial) -> (String, String) {
    let message = format!("up to {}, but its budget is {most}", many(found, "round"));
    let latest = |call: &&PlannedCall| (polynomial(&call.round).growth(), Reverse(call.number));
    let Some(last) = plan.plan.steps.iter().max_by_key(latest) else {
        return (message, with_n("let calls run side by side", &[found, most]));
    };
    let round = polynomial(&last.round);
    let in_order = |number: &&u32| plan.plan.loops.iter().any(|one| one.number == **number && one.in_order);
    let waiting: Vec<u32> = last.round.per_item.iter().flat_map(|(loops, _)| loops).filter(in_order).copied().collect();
    let step = |number: &u32| plan.plan.steps.iter().find(|step| step.number == *number);
    let before = |numbers: &[u32]| {
        let others = numbers.iter().filter_map(step).filter(|step| step.number != last.number);
        others.max_by_key(latest).map(|step| format!("{} in {}", called(step), short(&step.position)))
    };
    let why = if !waiting.is_empty() {
        format!(": each item of {} waits for the one before", items(plan, &waiting))
    } else if let Some(needed) = before(&last.needs) {
        format!(", as it needs the answer of {needed}")
    } else if last.writes {
        ", as an effect waits for the calls above".to_owned()
    } else if let Some(decided) = before(&last.after) {
        format!(", as it comes after a decision on {decided}")
    } else {
        String::new()
    };
    let hint = match (waiting.is_empty(), last.writes) {
        (true, _) => "make the call without waiting for the earlier one",
        (false, false) => "write a comprehension, of which the items run side by side",
        (false, true) => "send all items in one effect",
    };
    (format!("{message}; {} is in round {round}{why}", place(last)), with_n(hint, &[found, most]))
}

fn calls(plan: &RoutePlan, found: &Polynomial, most: &Polynomial, power: usize) -> (String, String) {
    let hint = if power > 0 { "request all items in one call" } else { "remove a call" };
    let which = over(plan, |_| true, found, most, power);
    (format!("up to {}, but its budget is {most}{which}", many(found, "call")), with_n(hint, &[found, most]))
}

fn effects(plan: &RoutePlan, found: &Polynomial, most: &Polynomial, power: usize) -> (String, String) {
    let hint = if power > 0 { "send all items in one effect" } else { "remove an effect" };
    let which = over(plan, |call| call.writes, found, most, power);
    (format!("up to {}, but its budget is {most}{which}", many(found, "effect")), with_n(hint, &[found, most]))
}

/// The calls that the budget has no room for: in the deepest loops that are above it, the last of the program.
fn over(
    plan: &RoutePlan,
    counts: impl Fn(&PlannedCall) -> bool,
    found: &Polynomial,
    most: &Polynomial,
    power: usize,
) -> String {
    /// Names so many; the plan shows the others.
    const NAMED: usize = 3;
    let alike: Vec<&PlannedCall> =
        plan.plan.steps.iter().filter(|call| counts(call) && call.loops.len() == power).collect();
    let more = usize::try_from(found.term(power).saturating_sub(most.term(power))).unwrap_or(usize::MAX);
    let above = &alike[alike.len().saturating_sub(more.max(1))..];
    let named = above.iter().take(NAMED).map(|call| match call.loops.as_slice() {
        [] => place(call),
        loops => format!("{}, for each item of {}", place(call), items(plan, loops)),
    });
    let named: Vec<String> = named.collect();
    let left = above.len().saturating_sub(NAMED);
    match named.as_slice() {
        [] => String::new(),
        named if left > 0 => format!("; too many: {}; and {left} more", named.join("; ")),
        named => format!("; too many: {}", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use fanin_config::FlowRef;
    use fanin_lang::testing::program;
    use http::Method;

    use super::*;

    fn judged(body: &str, budget: &Budget, cut: bool) -> Vec<String> {
        let program = program(&format!("def main(ids):\n{body}\n")).unwrap_or_else(|found| panic!("{found:?}"));
        let mut plan = program.plan(program.function("test.star", "main").expect("a function"));
        plan.cut |= cut;
        let plan = RoutePlan { route: "GET /p".to_owned(), flow: "test.star:main".to_owned(), plan };
        let route = Route::new(Method::GET, "/p", FlowRef::new("test.star", "main"));
        let found = check(&route, budget, &plan, &Arc::new(Source::new("fanin.toml", "")));
        assert!(found.iter().all(|one| one.severity == Severity::Error && one.hint.is_some()));
        found.into_iter().map(|one| one.message).collect()
    }

    fn at_most(terms: &[(usize, u64)]) -> Option<Allowance> {
        Some(Allowance { most: Polynomial::of(terms.iter().copied()), ..Allowance::default() })
    }

    #[test]
    fn a_plan_that_ends_early_proves_nothing() {
        let budget = Budget { rounds: at_most(&[(0, 9)]), calls: at_most(&[(0, 9)]), effects: None };
        assert_eq!(judged("    return a.get('/1')", &budget, false), [""; 0]);
        let found = judged("    return a.get('/1')", &budget, true);
        assert_eq!(
            found,
            ["GET /p: the budget cannot be proved, because the flow is too large to be followed to its end"]
        );
        let found = judged("    ids['f']()\n    ids['g']()\n    return ids['h']()", &budget, false);
        assert!(found.len() == 1 && found[0].ends_with("(and 2 more)"), "{found:?}");
    }

    #[test]
    fn the_last_calls_are_too_many_and_few_are_named() {
        let calls = |most| Budget { calls: at_most(most), ..Budget::default() };
        let five = "    return [a.get('/1'), a.get('/2'), a.get('/3'), a.get('/4'), a.get('/5')]";
        let [found] = judged(five, &calls(&[(0, 4)]), false).try_into().expect("one");
        assert!(found.contains("up to 5 calls, but its budget is 4; too many: a.get \"/5\" in "), "{found}");
        let [found] = judged(five, &calls(&[]), false).try_into().expect("one");
        assert!(found.contains("a.get \"/1\"") && found.ends_with("; and 2 more"), "{found}");
        assert_eq!(judged(five, &calls(&[(0, 5)]), false), [""; 0]);
        // The deepest loop that is above counts, not what stands around it.
        let each = "    return [a.get('/0'), [[b.get('/1') for x in i] for i in ids], [a.get('/2') for i in ids]]";
        let [found] = judged(each, &calls(&[(0, 1), (1, 9)]), false).try_into().expect("one");
        assert!(
            found.contains("up to 1 + n + n^2 calls") && found.contains("b.get \"/1\"") && !found.contains("a.get"),
            "{found}"
        );
        assert_eq!(judged(each, &calls(&[(0, 1), (2, 2)]), false), [""; 0]);
    }
}
