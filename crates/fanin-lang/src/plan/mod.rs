//! The plan: what a flow does at worst, found before it runs. Rounds of calls, the calls themselves, what each
//! waits for, and which functions run in order and why.
//!
//! An abstract interpreter walks over the compiled operations and computes when each value is ready. An answer is
//! ready one round after its call starts. A call starts when its arguments are ready and control has reached it.
//! Both branches of an `if` are followed, and the later time counts where they meet. Loops of unknown length
//! count for each item. So all numbers are upper bounds. What cannot be followed, such as a function in an
//! unknown value, is reported as unknown.
//!
//! - `interpreter`, `ops`, `call`, `loops`: the interpreter, by kind of operation;
//! - `value`, `heap`, `ids`, `state`: abstract values, containers and states;
//! - `symbolic`: numbers such as "2 + 1 for each item of L1".

mod call;
mod heap;
mod ids;
mod interpreter;
mod loops;
mod ops;
mod state;
mod symbolic;
mod value;

use std::collections::BTreeSet;

use self::heap::Heap;
use self::interpreter::{Interpreter, MOST_STEPS};
use self::state::State;
use self::symbolic::Sum;
use self::value::{AbstractValue, Origins, Shape};
use crate::check::lint::Lint;
use crate::error::{Diagnostic, Position};
use crate::program::{FunctionRef, Program, ProgramData};
use crate::value::{Frozen, FrozenValue};

/// Most operations that are interpreted for the loops of all functions.
const LOOPS_STEPS: u64 = 100_000;

/// A call as the walk finds it.
struct CallFound {
    place: (u32, u32),
    via: Vec<(u32, u32)>,
    upstreams: Vec<String>,
    method: String,
    path: Option<String>,
    writes: bool,
    optional: Option<bool>,
    conditional: bool,
    loops: Vec<u32>,
    /// The rounds before it, at worst; in a loop, in its first iteration.
    start: Sum,
    /// How much later it starts in later iterations.
    later: Sum,
    needs: Origins,
    decided: Origins,
}

/// A loop as the walk finds it.
struct LoopFound {
    /// The operation that starts it.
    place: (u32, u32),
    /// A statement, not a comprehension.
    statement: bool,
    /// The rounds that control waits for with each item.
    waits: Sum,
    writes: bool,
    /// It can end early.
    leaves: bool,
}

/// A place where control waits.
struct WaitFound {
    place: (u32, u32),
    /// The rounds that are over then; in a loop, in its first iteration.
    until: Sum,
    /// How much later it is in later iterations.
    later: Sum,
    on: Origins,
    depth: usize,
}

/// So many, and so many more for each item of loops. An upper bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bound {
    /// The part that depends on no loop.
    pub constant: u32,
    /// The parts that do: numbers of loops (of [`Plan::loops`], from 1; several are loops within loops),
    /// and how many for each item.
    pub per_item: Vec<(Vec<u32>, u32)>,
}

/// A call.
#[derive(Debug, Clone)]
pub struct PlannedCall {
    /// From 1.
    pub number: u32,
    /// The upstream; several if it is one of them.
    pub upstreams: Vec<String>,
    /// The method.
    pub method: String,
    /// Its path, if that is known; `{}` for what is not.
    pub path: Option<String>,
    /// Where it is made.
    pub position: Position,
    /// The calls of functions that lead there, outermost first.
    pub via: Vec<(String, Position)>,
    /// The round it runs in at the latest, from 1.
    pub round: Bound,
    /// Whether it may change something.
    pub writes: bool,
    /// Whether its failure leaves a partial response; `None` if that depends.
    pub optional: Option<bool>,
    /// Whether it is made on some ways only.
    pub conditional: bool,
    /// The loops whose items each make it; numbers of [`Plan::loops`].
    pub loops: Vec<u32>,
    /// Calls whose answers are in its arguments.
    pub needs: Vec<u32>,
    /// Calls whose answers are decided on before it is made.
    pub after: Vec<u32>,
}

/// A loop that makes calls or waits.
#[derive(Debug, Clone)]
pub struct PlannedLoop {
    /// From 1.
    pub number: u32,
    /// What it goes through, as written.
    pub over: String,
    /// Where.
    pub position: Position,
    /// Whether its items run side by side.
    pub in_order: bool,
}

/// A place where the flow waits before it continues.
#[derive(Debug, Clone)]
pub struct PlannedWait {
    /// Where.
    pub position: Position,
    /// The function that waits.
    pub function: String,
    /// The rounds that are over then, at worst.
    pub rounds: Bound,
    /// The calls it waits for.
    pub on: Vec<u32>,
}

/// A function that a flow calls.
#[derive(Debug, Clone)]
pub struct PlannedFunction {
    /// Its name.
    pub name: String,
    /// Where it is defined.
    pub position: Position,
    /// Why its callers wait for it; empty if it runs side by side with them.
    pub reasons: Vec<(String, Position)>,
}

/// What a flow does at worst.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Rounds of calls, one after another.
    pub rounds: Bound,
    /// Calls.
    pub calls: Bound,
    /// Calls that may change something.
    pub effects: Bound,
    /// Each call, in the order of the program.
    pub steps: Vec<PlannedCall>,
    /// Loops that the bounds speak of.
    pub loops: Vec<PlannedLoop>,
    /// Where control waits, in the order of the program.
    pub waits: Vec<PlannedWait>,
    /// Functions that are called, by place.
    pub functions: Vec<PlannedFunction>,
    /// What could not be followed: its calls are not counted.
    pub unknown: Vec<(String, Position)>,
    /// Whether the flow was too large to be followed to its end.
    pub cut: bool,
}

fn numbers(origins: &Origins) -> Vec<u32> {
    origins.iter().map(|number| number + 1).collect()
}

fn walk(program: &ProgramData, index: u32, fuel: u64) -> (Interpreter<'_>, Option<(AbstractValue, State)>) {
    let mut walk = Interpreter::new(program, fuel);
    let mut state = State {
        regs: Vec::new(),
        heap: Heap::default(),
        now: Sum::default(),
        waited: Origins::new(),
        required: Sum::default(),
        aside: Sum::default(),
        calls: Sum::default(),
        share: 1.0,
    };
    let code = &program.codes[index as usize];
    let mut regs: Vec<AbstractValue> = vec![AbstractValue::plain(Shape::Unknown); code.params.registers()];
    let function = program.globals.iter().find_map(|value| match value {
        FrozenValue::Frozen(frozen) => match &**frozen {
            Frozen::Function(function) if function.code == index => Some(function),
            _ => None,
        },
        _ => None,
    });
    if let Some(function) = function {
        for value in &function.captured {
            let value = walk.frozen(&mut state, value);
            regs.push(value);
        }
    }
    let end = walk.function(index, regs, state);
    (walk, end)
}

impl Program {
    /// What a flow does at worst.
    #[must_use]
    pub fn plan(&self, function: FunctionRef) -> Plan {
        let data = &*self.0;
        let (walk, end) = walk(data, function.code, MOST_STEPS);
        let (mut rounds, mut calls) = (Sum::default(), Sum::default());
        if let Some((value, state)) = &end {
            rounds.max(&state.now);
            rounds.max(&state.aside);
            rounds.max(&state.whole(value));
            calls.max(&state.calls);
        }
        rounds.max(&walk.failed.whole);
        walk.failed.calls.iter().for_each(|made| calls.max(made));
        // Loops that the plan speaks of, numbered in the order of their places.
        let mut used: BTreeSet<u32> = BTreeSet::new();
        let mut note = |sum: &Sum| sum.per_item().for_each(|(loops, _)| used.extend(loops));
        note(&rounds);
        note(&calls);
        for call in &walk.calls {
            note(&call.start);
            note(&call.later);
        }
        walk.waits.values().for_each(|wait| {
            note(&wait.until);
            note(&wait.later);
        });
        used.extend(walk.calls.iter().flat_map(|call| call.loops.iter().copied()));
        let number = |id: u32| used.iter().position(|used| *used == id).map_or(0, |at| at as u32 + 1);
        let bound = |sum: &Sum| Bound {
            constant: sum.constant(),
            per_item: sum
                .per_item()
                .map(|(loops, each)| (loops.iter().map(|id| number(*id)).collect(), each))
                .collect(),
        };
        let position = |place: (u32, u32)| data.position(place.0, place.1).unwrap_or_default();
        let name = |code: u32| data.codes[code as usize].name.to_string();
        let mut effects = Sum::default();
        for call in walk.calls.iter().filter(|call| call.writes) {
            effects = effects.plus(&call.loops.iter().fold(Sum::of(1), |sum, id| sum.for_each(*id)));
        }
        let steps = walk.calls.iter().enumerate().map(|(at, call)| {
            let after = call.decided.without(&call.needs);
            PlannedCall {
                number: at as u32 + 1,
                upstreams: call.upstreams.clone(),
                method: call.method.clone(),
                path: call.path.clone(),
                position: position(call.place),
                via: call.via.iter().map(|place| (name(place.0), position(*place))).collect(),
                round: bound(&call.start.plus(&call.later).next()),
                writes: call.writes,
                optional: call.optional,
                conditional: call.conditional,
                loops: call.loops.iter().map(|id| number(*id)).collect(),
                needs: numbers(&call.needs),
                after: numbers(&after),
            }
        });
        let loops = used.iter().map(|id| {
            let found = &walk.loops[*id as usize];
            PlannedLoop {
                number: number(*id),
                over: source(data, found.place),
                position: position(found.place),
                in_order: found.statement,
            }
        });
        let waits = walk.waits.values().filter(|wait| wait.depth == 1).map(|wait| PlannedWait {
            position: position(wait.place),
            function: name(wait.place.0),
            rounds: bound(&wait.until.plus(&wait.later)),
            on: numbers(&wait.on),
        });
        let functions = walk.reached.iter().filter(|code| **code != function.code).filter_map(|index| {
            let code = &data.codes[*index as usize];
            // The checks of types are functions too, but the source does not have them.
            if code.annotations.is_none() && code.types.len() == 1 && code.ops.len() == 3 {
                return None;
            }
            let reasons =
                code.reasons.iter().map(|reason| (reason.text.clone(), position((*index, u32::from(reason.pc)))));
            Some(PlannedFunction {
                name: code.name.to_string(),
                position: position((*index, 0)),
                reasons: if code.pure { Vec::new() } else { reasons.collect() },
            })
        });
        Plan {
            rounds: bound(&rounds),
            calls: bound(&calls),
            effects: bound(&effects),
            steps: steps.collect(),
            loops: loops.collect(),
            waits: waits.collect(),
            functions: functions.collect(),
            unknown: walk.notes.iter().map(|(place, what)| (what.clone(), position(*place))).collect(),
            cut: walk.is_exhausted(),
        }
    }

    /// Loops that wait for one item after the other although the items could run side by side.
    pub(crate) fn sequential_loops(&self) -> Vec<Diagnostic> {
        let data = &*self.0;
        let mut reported = BTreeSet::new();
        let mut found = Vec::new();
        // This runs each time flows are loaded, so all of them together are bounded.
        let mut fuel = LOOPS_STEPS;
        for value in &data.globals {
            let FrozenValue::Frozen(frozen) = value else { continue };
            let Frozen::Function(function) = &**frozen else { continue };
            let (walk, _) = walk(data, function.code, fuel);
            fuel = walk.fuel;
            for one in &walk.loops {
                // What changes something has to stand in order; what can end early may mean to.
                if !one.statement || one.waits.is_zero() || one.writes || one.leaves || !reported.insert(one.place) {
                    continue;
                }
                let Some(position) = data.position(one.place.0, one.place.1) else { continue };
                let each = one.waits.constant().max(1);
                let s = if each == 1 { "" } else { "s" };
                found.push(
                    Diagnostic::warning(
                        Lint::SequentialLoop,
                        position,
                        format!("this loop waits for one item after the other: {each} round{s} for each"),
                    )
                    .hint(Some(
                        "items of a comprehension run side by side: [f(x) for x in ...]; if each item needs the one before, \
                         silence this with # fanin: allow(sequential-loop)"
                            .to_owned(),
                    )),
                );
            }
        }
        found
    }
}

/// What is written at a place.
fn source(data: &ProgramData, place: (u32, u32)) -> String {
    let code = &data.codes[place.0 as usize];
    let text = &data.files[code.file as usize].text;
    let (from, to) = code.spans.get(place.1 as usize).copied().unwrap_or_default();
    let written = text.get(from as usize..to as usize).unwrap_or_default();
    written.split_whitespace().collect::<Vec<_>>().join(" ")
}
