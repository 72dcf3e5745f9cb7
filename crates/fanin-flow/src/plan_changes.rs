//! How a change of flows alters the worst case of each route: the plans before it, beside those after it.

use std::collections::BTreeMap;

use fanin_config::Polynomial;
use fanin_lang::{PlannedCall, Position};
use serde::Serialize;

use crate::plan::{RoutePlan, called, polynomial, short};

/// What a change does to the worst case of each route.
#[derive(Debug, Serialize)]
pub struct PlanChanges {
    /// In the order of the new configuration; removed routes last.
    pub routes: Vec<RouteChange>,
}

/// What a change does to one route.
#[derive(Debug, Serialize)]
pub struct RouteChange {
    /// Method and path.
    pub route: String,
    /// Better or worse.
    pub kind: ChangeKind,
    /// Its worst case before; `None` if the route is new.
    pub before: Option<WorstCase>,
    /// Its worst case now; `None` if the route is gone.
    pub after: Option<WorstCase>,
    /// Calls that are new.
    pub added: Vec<ChangedCall>,
    /// Calls that are gone; places in the old folder.
    pub removed: Vec<ChangedCall>,
    /// Calls that come in a later round than before.
    pub later: Vec<LaterCall>,
    /// What could be followed before and cannot be followed now, with its place.
    pub unknown: Vec<String>,
}

/// How the worst case of a route has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// More rounds, calls or effects if loops have many items; or no longer provable.
    Worse,
    /// Fewer of something, and more of nothing.
    Better,
    /// As many as before, but other calls or rounds.
    Changed,
    /// A new route.
    Added,
    /// A route that is gone.
    Removed,
    /// The same calls.
    Same,
}

impl ChangeKind {
    /// All of them, as a summary lists them.
    pub const ALL: [ChangeKind; 6] = [
        ChangeKind::Worse,
        ChangeKind::Better,
        ChangeKind::Changed,
        ChangeKind::Added,
        ChangeKind::Removed,
        ChangeKind::Same,
    ];

    /// One word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Worse => "worse",
            ChangeKind::Better => "better",
            ChangeKind::Changed => "changed",
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Same => "same",
        }
    }
}

/// What a route does at worst, where every loop has `n` items.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstCase {
    /// Whether everything could be followed. Otherwise the numbers are lower bounds.
    pub complete: bool,
    /// Rounds, one after another.
    pub rounds: Polynomial,
    /// Calls.
    pub calls: Polynomial,
    /// Calls that may change something.
    pub effects: Polynomial,
}

impl WorstCase {
    fn of(plan: &RoutePlan) -> WorstCase {
        WorstCase {
            complete: plan.is_complete(),
            rounds: polynomial(&plan.plan.rounds),
            calls: polynomial(&plan.plan.calls),
            effects: polynomial(&plan.plan.effects),
        }
    }

    fn is_worse_than(&self, before: &WorstCase) -> bool {
        match (before.complete, self.complete) {
            (true, false) => true,
            // What was a lower bound says nothing about the worst case.
            (false, true) => false,
            _ => [(&self.rounds, &before.rounds), (&self.calls, &before.calls), (&self.effects, &before.effects)]
                .iter()
                .any(|(now, then)| now.growth() > then.growth()),
        }
    }
}

/// A call that is new or gone.
#[derive(Debug, Serialize)]
pub struct ChangedCall {
    /// `catalog.get "/parts"`
    pub call: String,
    /// File and line.
    pub at: String,
    /// The function from which it is reached, if it is not in the flow itself, and the line there.
    pub called_by: Option<Located>,
    /// What the loops around it go through.
    pub loops: Vec<Located>,
    /// Whether it may change something.
    pub writes: bool,
}

/// A call that comes later than before.
#[derive(Debug, Serialize)]
pub struct LaterCall {
    /// `catalog.get "/parts"`
    pub call: String,
    /// File and line.
    pub at: String,
    /// Its round before.
    pub before: Polynomial,
    /// Its round now.
    pub after: Polynomial,
    /// Calls whose answers are in its arguments.
    pub needs: Vec<Located>,
    /// If there are none: calls whose answers are decided on before it.
    pub decided_on: Vec<Located>,
}

/// Something in a flow, and where.
#[derive(Debug, PartialEq, Serialize)]
pub struct Located {
    /// As it is written.
    pub name: String,
    /// File and line.
    pub at: String,
}

impl Located {
    fn new(name: impl Into<String>, at: &Position) -> Located {
        Located { name: name.into(), at: short(at) }
    }
}

impl PlanChanges {
    /// Compares the plans of all routes, which are matched by method and path.
    #[must_use]
    pub fn between(old: &[RoutePlan], new: &[RoutePlan]) -> PlanChanges {
        // A route may have several methods, and a change may give it more. Each pair of routes counts once.
        let mut before: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (at, plan) in old.iter().enumerate() {
            before.extend(keys(&plan.route).map(|(method, shape, _)| ((method, shape), at)));
        }
        let mut pairs: Vec<Pair> = Vec::new();
        let mut add = |old: Option<usize>, new: Option<usize>, method: String, path: String| match pairs
            .iter_mut()
            .find(|pair| (pair.old, pair.new) == (old, new))
        {
            Some(pair) => pair.methods.push(method),
            None => pairs.push(Pair { old, new, methods: vec![method], path }),
        };
        for (at, plan) in new.iter().enumerate() {
            for (method, shape, path) in keys(&plan.route) {
                add(before.remove(&(method.clone(), shape)), Some(at), method, path);
            }
        }
        for (at, plan) in old.iter().enumerate() {
            for (method, shape, path) in keys(&plan.route) {
                if before.contains_key(&(method.clone(), shape)) {
                    add(Some(at), None, method, path);
                }
            }
        }
        let routes = pairs.into_iter().map(|pair| {
            let route = format!("{} {}", pair.methods.join(","), pair.path);
            change(route, pair.old.and_then(|at| old.get(at)), pair.new.and_then(|at| new.get(at)))
        });
        PlanChanges { routes: routes.collect() }
    }

    /// How many routes have changed in a way.
    #[must_use]
    pub fn count(&self, kind: ChangeKind) -> usize {
        self.routes.iter().filter(|route| route.kind == kind).count()
    }

    /// `fanin-plan: worse=1 better=0 changed=0 added=1 removed=0 same=4`: one line, for programs.
    #[must_use]
    pub fn summary(&self) -> String {
        let counts = ChangeKind::ALL.map(|kind| format!("{}={}", kind.as_str(), self.count(kind)));
        format!("fanin-plan: {}", counts.join(" "))
    }
}

/// A route before and after, by their numbers: for which methods.
struct Pair {
    old: Option<usize>,
    new: Option<usize>,
    methods: Vec<String>,
    path: String,
}

/// The methods of a route, each with the shape of its path, whatever the names of its parameters, and the path.
fn keys(route: &str) -> impl Iterator<Item = (String, String, String)> {
    let (methods, path) = route.split_once(' ').unwrap_or(("", route));
    let segment = |segment: &str| match segment.strip_prefix('{') {
        Some(name) if name.starts_with('*') => "{*}".to_owned(),
        Some(_) => "{}".to_owned(),
        None => segment.to_owned(),
    };
    let shape = path.split('/').map(segment).collect::<Vec<_>>().join("/");
    methods.split(',').map(move |method| (method.to_owned(), shape.clone(), path.to_owned()))
}

fn change(route: String, old: Option<&RoutePlan>, new: Option<&RoutePlan>) -> RouteChange {
    let (before, after) = (old.map(WorstCase::of), new.map(WorstCase::of));
    let (mut gone, mut added, mut later) = (steps(old), Vec::new(), Vec::new());
    for call in steps(new) {
        match gone.iter().position(|other| is_same(call, other)) {
            Some(at) => {
                let other = gone.remove(at);
                if polynomial(&call.round).growth() > polynomial(&other.round).growth() {
                    later.push((call, other));
                }
            }
            None => added.push(call),
        }
    }
    let kind = match (&before, &after) {
        (None, _) => ChangeKind::Added,
        (_, None) => ChangeKind::Removed,
        (Some(before), Some(after)) if after.is_worse_than(before) => ChangeKind::Worse,
        (Some(before), Some(after)) if before != after => ChangeKind::Better,
        _ if added.is_empty() && gone.is_empty() && later.is_empty() => ChangeKind::Same,
        _ => ChangeKind::Changed,
    };
    let lost = matches!((&before, &after), (Some(WorstCase { complete: true, .. }), Some(_)));
    let (added, removed, later) = match (old, new) {
        (Some(old), Some(new)) => (
            added.into_iter().map(|call| changed_call(new, call)).collect(),
            gone.into_iter().map(|call| changed_call(old, call)).collect(),
            later.into_iter().map(|(call, before)| later_call(new, call, before)).collect(),
        ),
        _ => (Vec::new(), Vec::new(), Vec::new()),
    };
    RouteChange {
        route,
        kind,
        before,
        after,
        added,
        removed,
        later,
        unknown: new.filter(|_| lost).map(unfollowed).unwrap_or_default(),
    }
}

fn steps(plan: Option<&RoutePlan>) -> Vec<&PlannedCall> {
    plan.map_or(Vec::new(), |plan| plan.plan.steps.iter().collect())
}

/// Whether a call is the one of before, whatever its line.
fn is_same(one: &PlannedCall, other: &PlannedCall) -> bool {
    (called(one), one.loops.len(), one.writes) == (called(other), other.loops.len(), other.writes)
}

fn unfollowed(plan: &RoutePlan) -> Vec<String> {
    let mut all: Vec<String> = plan.plan.unknown.iter().map(|(what, at)| format!("{} {what}", short(at))).collect();
    if plan.plan.cut {
        all.push("the flow is too large to be followed to its end".to_owned());
    }
    all
}

fn changed_call(plan: &RoutePlan, call: &PlannedCall) -> ChangedCall {
    let one = |number: &u32| plan.plan.loops.iter().find(|one| one.number == *number);
    ChangedCall {
        call: called(call),
        at: short(&call.position),
        called_by: call.via.last().map(|(function, position)| Located::new(function, position)),
        loops: call.loops.iter().filter_map(one).map(|one| Located::new(&one.over, &one.position)).collect(),
        writes: call.writes,
    }
}

fn later_call(plan: &RoutePlan, call: &PlannedCall, before: &PlannedCall) -> LaterCall {
    let step = |number: &u32| plan.plan.steps.iter().find(|step| step.number == *number && *number != call.number);
    let located = |numbers: &[u32]| {
        let mut all: Vec<Located> = Vec::new();
        for step in numbers.iter().filter_map(step) {
            let one = Located::new(called(step), &step.position);
            // A line that is reached in several ways is one to the reader.
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    };
    let needs = located(&call.needs);
    LaterCall {
        call: called(call),
        at: short(&call.position),
        before: polynomial(&before.round),
        after: polynomial(&call.round),
        decided_on: if needs.is_empty() { located(&call.after) } else { Vec::new() },
        needs,
    }
}

#[cfg(test)]
mod tests {
    use fanin_lang::testing::program;

    use super::*;

    fn route(route: &str, body: &str) -> RoutePlan {
        let program = program(&format!("def main(ids):\n{body}\n")).unwrap_or_else(|found| panic!("{found:?}"));
        let plan = program.plan(program.function("test.star", "main").expect("a function"));
        RoutePlan { route: route.to_owned(), flow: "test.star:main".to_owned(), plan }
    }

    fn kind(old: &str, new: &str) -> ChangeKind {
        let (old, new) = (route("GET /", &format!("    return {old}")), route("GET /", &format!("    return {new}")));
        PlanChanges::between(&[old], &[new]).routes[0].kind
    }

    #[test]
    fn the_worst_case_decides() {
        let (one, other) = ("a.get('/1')", "a.get('/2')");
        let both = "[a.get('/1'), a.get('/2')]";
        let each = "[a.get('/1') for id in ids]";
        assert_eq!(kind(one, one), ChangeKind::Same);
        assert_eq!(kind(one, both), ChangeKind::Worse);
        assert_eq!(kind(both, one), ChangeKind::Better);
        assert_eq!(kind(one, other), ChangeKind::Changed);
        assert_eq!(kind(both, each), ChangeKind::Worse);
        // For one item there are more calls than before, but for many fewer.
        assert_eq!(kind(each, both), ChangeKind::Better);
        assert_eq!(kind("[[a.get('/1') for a1 in ids] for b1 in ids]", each), ChangeKind::Better);
        assert_eq!(kind(one, "a.post('/1')"), ChangeKind::Worse);
        assert_eq!(kind(both, "a.get('/1', query = {'q': a.get('/2')['n']})"), ChangeKind::Worse);
        assert_eq!(kind(one, "ids['f']()"), ChangeKind::Worse);
        assert_eq!(kind("ids['f']()", both), ChangeKind::Better);
    }

    #[test]
    fn what_is_worse_has_its_lines() {
        let old = route("GET /", "    x = a.get('/1')\n    return [x, b.get('/2')]");
        let new = route(
            "GET /",
            "    x = a.get('/1')\n    y = b.get('/2', query = {'q': x['n']})\n    return [x, y] + [b.get('/3') for id in ids]",
        );
        let changes = PlanChanges::between(&[old], &[new]);
        let [found] = changes.routes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(found.kind, ChangeKind::Worse);
        let [added] = found.added.as_slice() else { panic!("{found:?}") };
        assert_eq!((added.call.as_str(), added.at.as_str()), ("b.get \"/3\"", "test.star:5"));
        assert_eq!(added.loops, [Located { name: "ids".to_owned(), at: "test.star:5".to_owned() }]);
        let [later] = found.later.as_slice() else { panic!("{found:?}") };
        assert_eq!((later.call.as_str(), later.at.as_str()), ("b.get \"/2\"", "test.star:4"));
        assert_eq!((later.before.to_string(), later.after.to_string()), ("1".to_owned(), "2".to_owned()));
        assert_eq!(later.needs, [Located { name: "a.get \"/1\"".to_owned(), at: "test.star:3".to_owned() }]);
        assert_eq!(changes.summary(), "fanin-plan: worse=1 better=0 changed=0 added=0 removed=0 same=0");
        assert_eq!(changes.count(ChangeKind::Worse), 1);
    }

    #[test]
    fn routes_are_matched_by_method_and_shape() {
        let with = |text: &str| route(text, "    return a.get('/1')");
        let old = ["GET,POST /a/{id}", "GET /b/{*rest}", "DELETE /c"].map(with);
        let new = ["GET,PUT /a/{key}", "POST /a/{id}", "GET /b/{rest}"].map(with);
        let changes = PlanChanges::between(&old, &new);
        let found: Vec<_> = changes.routes.iter().map(|one| (one.route.as_str(), one.kind.as_str())).collect();
        assert_eq!(
            found,
            [
                ("GET /a/{key}", "same"),
                ("PUT /a/{key}", "added"),
                ("POST /a/{id}", "same"),
                ("GET /b/{rest}", "added"),
                ("GET /b/{*rest}", "removed"),
                ("DELETE /c", "removed"),
            ]
        );
    }
}
