//! The abstract interpreter of one function: control flow, waits, and changes to containers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::heap::Object;
use super::ids::Ids;
use super::state::State;
use super::symbolic::Sum;
use super::value::{AbstractValue, MOST_ITEMS, Origins, Shape};
use super::{CallFound, LoopFound, WaitFound};
use crate::code::{Code, Op, Reg};
use crate::program::ProgramData;

/// Most operations that are interpreted for one plan, all functions and iterations of loops counted.
pub(super) const MOST_STEPS: u64 = 400_000;

/// Where in the walk something is: functions and operations, with the iteration of each loop.
pub(super) type Context = Vec<(u32, u32, u32)>;

pub(super) struct Interpreter<'p> {
    pub(super) program: &'p ProgramData,
    pub(super) calls: Vec<CallFound>,
    pub(super) call_ids: HashMap<Context, u32>,
    pub(super) loops: Vec<LoopFound>,
    pub(super) loop_ids: HashMap<Context, u32>,
    pub(super) waits: BTreeMap<Context, WaitFound>,
    /// What could not be followed, with its place.
    pub(super) notes: BTreeSet<((u32, u32), String)>,
    /// Functions that are called.
    pub(super) reached: BTreeSet<u32>,
    /// Operations that may still be interpreted.
    pub(super) fuel: u64,
    next_object: u32,
    pub(super) context: Context,
    /// Loops around, whose number of items is not known.
    pub(super) loop_stack: Vec<u32>,
    pub(super) stack: Vec<u32>,
    /// How many calls around are made on some ways only.
    pub(super) conditional: u32,
    /// How many iterations being interpreted are not the worst of their loop, see [`Interpreter::loop_iterations`].
    pub(super) passing: u32,
    /// When ways ended that end in a failure, and the calls made on them.
    pub(super) failed: Failed,
    /// Items being walked through that can be suspended: how deep the functions are, their registers, and the containers that
    /// those have held.
    pub(super) items: Vec<(usize, Box<[Reg]>, Ids)>,
    pub(super) writes: u32,
}

/// Ways that end in a failure.
#[derive(Debug, Clone, Default)]
pub(super) struct Failed {
    /// When control comes to the failures.
    pub(super) at: Sum,
    /// When what is suspended before has ended too.
    pub(super) whole: Sum,
    /// The calls made on them, if there are any such ways.
    pub(super) calls: Option<Sum>,
}

impl Failed {
    pub(super) fn max(&mut self, other: &Self) {
        self.at.max(&other.at);
        self.whole.max(&other.whole);
        if let Some(calls) = &other.calls {
            self.calls.get_or_insert_default().max(calls);
        }
    }
}

/// A function being walked through.
pub(super) struct Frame<'c> {
    pub(super) code: &'c Code,
    pub(super) index: u32,
    pub(super) returns: Option<(AbstractValue, State)>,
    /// The share of all ways that end in a failure.
    pub(super) dead: f64,
}

impl Frame<'_> {
    pub(super) fn returned(&mut self, value: AbstractValue, state: State) {
        match &mut self.returns {
            Some((own, before)) => {
                own.join(&value);
                before.join(&state);
            }
            None => self.returns = Some((value, state)),
        }
    }

    /// Whether a place is on some ways only.
    pub(super) fn is_conditional(&self, state: &State) -> bool {
        state.share + self.dead < 1.0 - 1e-9
    }
}

/// Where ways lead that leave a stretch of operations.
#[derive(Default)]
pub(super) struct Out {
    pub(super) end: Option<State>,
    pub(super) jumps: BTreeMap<usize, State>,
}

pub(super) fn join_into(place: &mut Option<State>, state: State) {
    match place {
        Some(own) => own.join(&state),
        None => *place = Some(state),
    }
}

pub(super) fn jump_to(jumps: &mut BTreeMap<usize, State>, to: usize, state: State) {
    match jumps.get_mut(&to) {
        Some(own) => own.join(&state),
        None => drop(jumps.insert(to, state)),
    }
}

impl<'p> Interpreter<'p> {
    pub(super) fn new(program: &'p ProgramData, fuel: u64) -> Self {
        Self {
            program,
            calls: Vec::new(),
            call_ids: HashMap::new(),
            loops: Vec::new(),
            loop_ids: HashMap::new(),
            waits: BTreeMap::new(),
            notes: BTreeSet::new(),
            reached: BTreeSet::new(),
            fuel,
            next_object: 0,
            context: Vec::new(),
            loop_stack: Vec::new(),
            stack: Vec::new(),
            conditional: 0,
            passing: 0,
            failed: Failed::default(),
            items: Vec::new(),
            writes: 0,
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.fuel == 0
    }

    /// Walks through a function whose first registers are `regs`. `None` if it always fails.
    pub(super) fn function(
        &mut self,
        index: u32,
        regs: Vec<AbstractValue>,
        mut state: State,
    ) -> Option<(AbstractValue, State)> {
        let code = &self.program.codes[index as usize];
        self.reached.insert(index);
        let mut all = regs;
        all.resize_with(usize::from(code.registers), || AbstractValue::plain(Shape::Nothing));
        let saved = std::mem::replace(&mut state.regs, all);
        let share = std::mem::replace(&mut state.share, 1.0);
        let mut frame = Frame { code, index, returns: None, dead: 0.0 };
        self.stack.push(index);
        self.stretch(&mut frame, 0, code.ops.len(), state);
        self.stack.pop();
        let (value, mut state) = frame.returns?;
        state.regs = saved;
        state.share = share;
        Some((value, state))
    }

    /// Walks from one operation up to another.
    pub(super) fn stretch(&mut self, frame: &mut Frame<'_>, from: usize, to: usize, state: State) -> Out {
        let mut out = Out::default();
        let mut pending: BTreeMap<usize, State> = BTreeMap::new();
        let mut current = Some(state);
        let mut pc = from;
        while pc < to {
            if let Some(state) = pending.remove(&pc) {
                join_into(&mut current, state);
            }
            let Some(mut state) = current.take() else {
                match pending.keys().next() {
                    Some(next) => pc = *next,
                    None => break,
                }
                continue;
            };
            if self.is_exhausted() {
                break;
            }
            self.fuel -= 1;
            if let Some((depth, live, seen)) = self.items.last_mut()
                && *depth == self.stack.len()
            {
                // Where it waits first is not known, and what it sees then is borrowed until its end.
                live.iter().for_each(|reg| seen.extend(&state.regs[usize::from(*reg)].refs));
            }
            let mut jump = |target: usize, state: State, pending: &mut BTreeMap<usize, State>| {
                if target > pc && target < to {
                    jump_to(pending, target, state);
                } else if target == to {
                    join_into(&mut out.end, state);
                } else {
                    jump_to(&mut out.jumps, target, state);
                }
            };
            match frame.code.ops[pc] {
                Op::Jump { to } | Op::Item { to, .. } => jump(usize::from(to), state, &mut pending),
                Op::JumpIf { cond, to } | Op::JumpIfNot { cond, to } => {
                    self.decide(frame, &mut state, pc, cond);
                    state.share /= 2.0;
                    jump(usize::from(to), state.clone(), &mut pending);
                    current = Some(state);
                }
                // Both ways end at the same place, and checking aside is no condition of the program's.
                Op::TypeNow { to, .. } => {
                    let share = state.share;
                    state.share = 0.0;
                    jump(usize::from(to), state.clone(), &mut pending);
                    state.share = share;
                    current = Some(state);
                }
                Op::Return { src } => {
                    let value = state.regs[usize::from(src)].clone();
                    state.regs.clear();
                    frame.returned(value, state);
                }
                Op::Next { iter, dst, to: exit } => {
                    let exit = usize::from(exit);
                    let (after, jumps) = self.loop_iterations(frame, state, pc, iter, dst, exit);
                    for (target, state) in jumps {
                        jump(target, state, &mut pending);
                    }
                    if let Some(after) = after {
                        jump(exit, after, &mut pending);
                    }
                }
                op => {
                    let share = state.share;
                    current = self.operation(frame, state, pc, op);
                    if current.is_none() {
                        frame.dead += share;
                    }
                }
            }
            pc += 1;
        }
        if let Some(state) = current {
            join_into(&mut out.end, state);
        }
        out
    }

    /// Control waits for a time.
    pub(super) fn wait(&mut self, frame: &Frame<'_>, state: &mut State, pc: usize, time: &Sum, origins: &Origins) {
        if time.exceeds(&state.now) {
            state.now.max(time);
            state.waited.extend(origins);
            let mut key = self.context.clone();
            key.push((frame.index, pc as u32, 0));
            match self.waits.get_mut(&key) {
                Some(found) => {
                    found.on.extend(origins);
                    if self.passing == 0 {
                        found.later.max(&time.above(&found.until));
                    }
                }
                None => {
                    let found = WaitFound {
                        place: (frame.index, pc as u32),
                        until: time.clone(),
                        later: Sum::default(),
                        on: origins.clone(),
                        depth: self.stack.len(),
                    };
                    self.waits.insert(key, found);
                }
            }
        }
    }

    pub(super) fn decide(&mut self, frame: &Frame<'_>, state: &mut State, pc: usize, reg: Reg) {
        let value = state.regs[usize::from(reg)].clone();
        let time = state.there(&value);
        self.wait(frame, state, pc, &time, &value.origins);
    }

    pub(super) fn decide_all(&mut self, frame: &Frame<'_>, state: &mut State, pc: usize, reg: Reg) {
        let value = state.regs[usize::from(reg)].clone();
        let (time, origins) = (state.whole(&value), state.all_origins(&value));
        self.wait(frame, state, pc, &time, &origins);
    }

    pub(super) fn make(&mut self, state: &mut State, object: Object) -> AbstractValue {
        let id = self.next_object;
        self.next_object += 1;
        state.heap.insert(id, object);
        AbstractValue::plain(Shape::Object(Ids::one(id)))
    }

    /// Changes containers: something is put into them.
    pub(super) fn change(
        &mut self,
        frame: &Frame<'_>,
        state: &mut State,
        pc: usize,
        of: &AbstractValue,
        put: &[AbstractValue],
        append: bool,
    ) {
        let one = of.refs.len() == 1 && matches!(of.shape, Shape::Object(_));
        for id in of.refs.iter() {
            let Some(object) = state.heap.get(id) else { continue };
            let (lent, on) = (object.lent.clone(), object.lent_for.clone());
            self.wait(frame, state, pc, &lent, &on);
            let Some(object) = state.heap.get_mut(id) else { continue };
            put.iter().for_each(|one| object.element.join(one));
            match (&mut object.items, append && one, put) {
                (Some(items), true, [one]) if items.len() < MOST_ITEMS && object.keys.is_none() => {
                    items.push(one.clone());
                }
                (items, ..) => *items = None,
            }
        }
    }
}
