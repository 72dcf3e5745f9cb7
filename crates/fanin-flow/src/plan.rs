//! The output of `fanin check --plan`: the calls and rounds of each route's flow in the worst case.
//!
//! The text can be kept under version control: it depends only on the flows, and an added round or call adds or changes a line.

use std::fmt;

use fanin_config::Polynomial;
use fanin_lang::{Bound, Plan, PlannedCall, Position};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The plan of one route.
#[derive(Debug)]
pub struct RoutePlan {
    /// Method and path.
    pub route: String,
    /// File and function.
    pub flow: String,
    /// The plan of the flow.
    pub plan: Plan,
}

impl RoutePlan {
    /// What a call costs at most: its round, and remarks on it.
    #[must_use]
    pub fn cost(call: &PlannedCall) -> String {
        let parts: Vec<String> = [format!("round {}", Shown(&call.round))].into_iter().chain(remarks(call)).collect();
        parts.join("; ")
    }

    /// Whether everything could be followed. Otherwise its numbers are lower bounds.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.plan.unknown.is_empty() && !self.plan.cut
    }

    fn at(&self) -> &'static str {
        if self.is_complete() { "at most" } else { "at least" }
    }

    /// Rounds and calls of the whole route.
    #[must_use]
    pub fn summary(&self) -> String {
        let Plan { rounds, calls, effects, .. } = &self.plan;
        format!("{} {} rounds, {} calls, {} effects", self.at(), Shown(rounds), Shown(calls), Shown(effects))
    }
}

/// A bound as if every loop had `n` items.
pub(crate) fn polynomial(bound: &Bound) -> Polynomial {
    let per_item = bound.per_item.iter().map(|(loops, each)| (loops.len(), u64::from(*each)));
    Polynomial::of(per_item.chain([(0, u64::from(bound.constant))]))
}

/// `2 + 3 per item of L1`
struct Shown<'a>(&'a Bound);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bound { constant, per_item } = self.0;
        let mut between = "";
        if *constant > 0 || per_item.is_empty() {
            write!(f, "{constant}")?;
            between = " + ";
        }
        for (loops, each) in per_item {
            write!(f, "{between}{each} per item of {}", names(loops))?;
            between = " + ";
        }
        Ok(())
    }
}

/// `L1 × L2`
fn names(loops: &[u32]) -> String {
    loops.iter().map(|number| format!("L{number}")).collect::<Vec<_>>().join(" × ")
}

/// `flows/page.star:7`
pub(crate) fn short(position: &Position) -> String {
    format!("{}:{}", position.file, position.line)
}

fn list(numbers: &[u32]) -> String {
    match numbers {
        [] => String::new(),
        [one] => one.to_string(),
        [all @ .., last] => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("{} and {last}", all.join(", "))
        }
    }
}

/// `catalog.get "/parts"`
pub(crate) fn called(call: &PlannedCall) -> String {
    let path = call.path.as_ref().map_or(String::new(), |path| format!(" {path:?}"));
    format!("{}.{}{path}", call.upstreams.join("|"), call.method)
}

/// Remarks on a call besides its round.
fn remarks(call: &PlannedCall) -> Vec<String> {
    let mut all = Vec::new();
    if call.writes {
        all.push("an effect: waits for every call above".to_owned());
    }
    if !call.loops.is_empty() {
        all.push(format!("for each item of {}", names(&call.loops)));
    }
    if call.conditional {
        all.push("on some paths only".to_owned());
    }
    match call.optional {
        Some(true) => all.push("optional".to_owned()),
        Some(false) => {}
        None => all.push("optional or not".to_owned()),
    }
    if !call.needs.is_empty() {
        all.push(format!("needs the answer of {}", list(&call.needs)));
    }
    if !call.writes && !call.after.is_empty() {
        all.push(format!("after deciding on {}", list(&call.after)));
    }
    if let [.., (function, position)] = call.via.as_slice() {
        all.push(format!("called by {function} in {}", short(position)));
    }
    all
}

impl fmt::Display for RoutePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        writeln!(f, "{}  {}", self.route, self.flow)?;
        let least = self.at();
        writeln!(f, "  rounds   {least} {}", Shown(&plan.rounds))?;
        writeln!(f, "  calls    {least} {}", Shown(&plan.calls))?;
        match polynomial(&plan.effects) {
            none if none == Polynomial::default() => writeln!(f, "  effects  none")?,
            _ => writeln!(f, "  effects  {}", Shown(&plan.effects))?,
        }
        let width = plan.steps.iter().map(|call| called(call).chars().count()).max().unwrap_or(0);
        for call in &plan.steps {
            let name = called(call);
            let pad = width - name.chars().count();
            writeln!(f, "  {:>3}. {name}{:pad$}  {}", call.number, "", short(&call.position))?;
            write!(f, "       round {}", Shown(&call.round))?;
            for remark in remarks(call) {
                write!(f, "; {remark}")?;
            }
            writeln!(f)?;
        }
        if !plan.waits.is_empty() {
            writeln!(f, "  waits")?;
            for wait in &plan.waits {
                write!(f, "    {}  after round {}", short(&wait.position), Shown(&wait.rounds))?;
                match wait.on.as_slice() {
                    [] => writeln!(f)?,
                    on => writeln!(f, ", for {}", list(on))?,
                }
            }
        }
        if !plan.loops.is_empty() {
            writeln!(f, "  loops")?;
            for one in &plan.loops {
                let how = if one.in_order { "one item after another" } else { "a comprehension" };
                writeln!(f, "    L{}  {}  {}  {how}", one.number, one.over, short(&one.position))?;
            }
        }
        let in_order = plan.functions.iter().filter(|function| !function.reasons.is_empty());
        let parallel: Vec<&str> = plan
            .functions
            .iter()
            .filter(|function| function.reasons.is_empty())
            .map(|function| function.name.as_str())
            .collect();
        if !parallel.is_empty() {
            writeln!(f, "  parallel with their callers: {}", parallel.join(", "))?;
        }
        for function in in_order {
            writeln!(f, "  in order: {}  {}", function.name, short(&function.position))?;
            for (reason, position) in &function.reasons {
                writeln!(f, "    because it {reason}  {}", short(position))?;
            }
        }
        for (what, position) in &plan.unknown {
            writeln!(f, "  not counted: {} {what}", short(position))?;
        }
        if plan.cut {
            writeln!(f, "  not counted: the flow is too large to be analysed to its end")?;
        }
        Ok(())
    }
}

fn bound(bound: &Bound) -> Value {
    let per_item: Vec<Value> =
        bound.per_item.iter().map(|(loops, each)| json!({ "loops": loops, "each": each })).collect();
    json!({ "constant": bound.constant, "per_item": per_item })
}

fn position_json(position: &Position) -> Value {
    json!({ "file": position.file.as_str(), "line": position.line, "column": position.column })
}

impl Serialize for RoutePlan {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let plan = &self.plan;
        let steps: Vec<Value> = plan
            .steps
            .iter()
            .map(|call| {
                json!({
                    "number": call.number, "upstreams": call.upstreams, "method": call.method, "path": call.path,
                    "at": position_json(&call.position),
                    "via": call.via.iter().map(|(function, position)| {
                        json!({ "function": function, "at": position_json(position) })
                    }).collect::<Vec<_>>(),
                    "round": bound(&call.round), "writes": call.writes, "optional": call.optional,
                    "conditional": call.conditional, "loops": call.loops, "needs": call.needs, "after": call.after,
                })
            })
            .collect();
        let loops: Vec<Value> = plan
            .loops
            .iter()
            .map(|one| json!({ "number": one.number, "over": one.over, "at": position_json(&one.position), "in_order": one.in_order }))
            .collect();
        let waits: Vec<Value> = plan
            .waits
            .iter()
            .map(|wait| json!({ "at": position_json(&wait.position), "rounds": bound(&wait.rounds), "on": wait.on }))
            .collect();
        let functions: Vec<Value> = plan
            .functions
            .iter()
            .map(|function| {
                let reasons: Vec<Value> = function
                    .reasons
                    .iter()
                    .map(|(reason, position)| json!({ "reason": reason, "at": position_json(position) }))
                    .collect();
                json!({
                    "name": function.name, "at": position_json(&function.position), "in_order": !function.reasons.is_empty(),
                    "reasons": reasons,
                })
            })
            .collect();
        let unknown: Vec<Value> = plan
            .unknown
            .iter()
            .map(|(what, position)| json!({ "what": what, "at": position_json(position) }))
            .collect();
        let mut fields = to.serialize_struct("RoutePlan", 12)?;
        fields.serialize_field("route", &self.route)?;
        fields.serialize_field("flow", &self.flow)?;
        fields.serialize_field("complete", &self.is_complete())?;
        fields.serialize_field("rounds", &bound(&plan.rounds))?;
        fields.serialize_field("calls", &bound(&plan.calls))?;
        fields.serialize_field("effects", &plan.steps.iter().filter(|call| call.writes).count())?;
        fields.serialize_field("effects_bound", &bound(&plan.effects))?;
        fields.serialize_field("steps", &steps)?;
        fields.serialize_field("loops", &loops)?;
        fields.serialize_field("waits", &waits)?;
        fields.serialize_field("functions", &functions)?;
        fields.serialize_field("unknown", &unknown)?;
        fields.end()
    }
}
