//! One execution of a function: schedules its fibers, ends with its result or first failure.

use std::cmp::Ordering;
use std::sync::Arc;

use super::borrow::{borrow, release_borrows};
use super::build::{build_from, open_hole};
use super::fiber::{End, Fiber, Fibers, Ready};
use super::index::{At, index};
use super::registers::unbound;
use super::state::{Rare, Stage, State};
use super::traceback::placed;
use super::{Building, Frame, Machine, args};
use crate::error::{Failure, Kind, Stop};
use crate::host::{CallSite, Host};
use crate::meter::{Limits, Meter, Usage};
use crate::pending::{Derived, PendingValue, Waiter};
use crate::program::{FunctionRef, Program, ProgramData};
use crate::program_order::ProgramOrder;
use crate::program_point::ProgramPoint;
use crate::value::capture::capture;
use crate::value::{Frozen, FrozenValue, Value};

/// Where a run of [`Instance::run`] ended.
#[derive(Debug)]
pub enum Run {
    /// The function returned, and every function that it called has run to its end. The value may
    /// hold answers of calls that are pending.
    Done(Value),
    /// It failed: of all failures this is the first in program order.
    Failed(Box<Failure>),
    /// Every fiber is suspended until a pending value settles.
    Waiting,
    /// The budget is used up; run it again after others have run.
    Yielded,
}

/// One run of a function of a program. Dropping it cancels it.
#[derive(Debug)]
pub struct Instance {
    program: Program,
    state: State,
}

impl Instance {
    /// A run of `function` with arguments by position.
    ///
    /// # Errors
    /// If the function cannot be called with that many arguments.
    pub fn new(
        program: &Program,
        function: FunctionRef,
        args: Vec<Value>,
        limits: impl Into<Arc<Limits>>,
    ) -> Result<Self, Box<Failure>> {
        let limits = limits.into();
        let code = &program.0.codes[function.code as usize];
        let callee = match &program.0.globals[function.global as usize] {
            FrozenValue::Frozen(frozen) => match &**frozen {
                Frozen::Function(function) => args::Callee::Frozen(function),
                _ => return Err(Box::new(Failure::new(Kind::Type, "this is not a function"))),
            },
            _ => return Err(Box::new(Failure::new(Kind::Type, "this is not a function"))),
        };
        if code.params.fits(args.len()) && !callee.captures() {
            return Ok(Self::with(program.clone(), function.code, args, limits, None));
        }
        let mut regs = unbound(code.registers);
        if let Err(Stop::Fail(failure)) = args::bind(&mut regs, code, &callee, args, Vec::new(), Vec::new()) {
            return Err(failure);
        }
        callee.captured(&mut regs[code.params.registers()..]);
        Ok(Self::with(program.clone(), function.code, regs, limits, None))
    }

    /// A run of a function that is a value of the program's, such as a `lambda`, with arguments by position. What it has captured stays its own.
    ///
    /// # Errors
    /// If the value is no function of the program, or cannot be called with that many arguments.
    pub fn of_value(
        program: &Program,
        function: &Value,
        args: Vec<Value>,
        limits: impl Into<Arc<Limits>>,
    ) -> Result<Self, Box<Failure>> {
        let callee = match function {
            Value::Function(function) => args::Callee::Live(function.clone()),
            Value::Frozen(frozen) if matches!(&**frozen, Frozen::Function(_)) => args::Callee::Shared(frozen.clone()),
            other => {
                let kind = crate::value::view::type_name(other);
                return Err(Box::new(Failure::new(Kind::Type, format!("a {kind} is no function"))));
            }
        };
        let code = &program.0.codes[callee.code() as usize];
        let mut regs = unbound(code.registers);
        if let Err(Stop::Fail(failure)) = args::bind(&mut regs, code, &callee, args, Vec::new(), Vec::new()) {
            return Err(failure);
        }
        callee.captured(&mut regs[code.params.registers()..]);
        Ok(Self::with(program.clone(), callee.code(), regs, limits.into(), None))
    }

    pub(crate) fn top_level(program: &Program, main: u32, building: Building, limits: Limits) -> Self {
        Self::with(program.clone(), main, Vec::new(), limits.into(), Some(Box::new(building)))
    }

    /// `regs` are the first registers of the function; the others have no value.
    fn with(
        program: Program,
        code: u32,
        regs: Vec<Value>,
        limits: Arc<Limits>,
        building: Option<Box<Building>>,
    ) -> Self {
        let state = State {
            stage: Stage::Start(code, regs.into_boxed_slice()),
            fibers: Fibers::default(),
            ready: None,
            live: 1,
            meter: Meter::new(limits),
            rare: building.map(|building| Box::new(Rare { building: Some(building), ..Rare::default() })),
            sequential_waits: (0, CallSite::default()),
        };
        Self { program, state }
    }

    pub(crate) fn take_building(&mut self) -> Vec<Value> {
        let building = self.state.rare.as_mut().and_then(|rare| rare.building.take());
        building.map(|building| building.take()).unwrap_or_default()
    }

    /// Whether a run would get anywhere.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let state = &self.state;
        matches!(state.stage, Stage::Start(..))
            || state.rare.as_ref().is_some_and(|rare| rare.current.is_some())
            || state.ready.as_ref().is_some_and(|ready| !ready.is_empty())
    }

    /// What the function has returned, while functions that it called still wait. Their results are pending in it. `None` before that, at
    /// the end, and once one of them has failed.
    #[must_use]
    pub fn returned(&self) -> Option<&Value> {
        match &self.state.stage {
            Stage::Returned(value) if self.state.rare.as_ref().is_none_or(|rare| rare.failed.is_none()) => Some(value),
            _ => None,
        }
    }

    /// Fibers that have not ended, the flow itself among them.
    #[must_use]
    pub fn fibers(&self) -> u32 {
        self.state.live
    }

    /// The most iterations of one loop that waited one after the other, and the line that waited.
    #[must_use]
    pub fn sequential_waits(&self) -> (u32, CallSite) {
        self.state.sequential_waits
    }

    /// Records from now on where fibers wait.
    pub fn record_waits(&mut self) {
        self.state.rare().waits = Some(Vec::new());
    }

    /// Where fibers have begun to wait since the last time, and for what.
    pub fn take_waits(&mut self) -> Vec<(CallSite, PendingValue)> {
        self.state.rare.as_mut().and_then(|rare| rare.waits.as_mut()).map(std::mem::take).unwrap_or_default()
    }

    /// Bytes that the suspended flow takes: itself and its fibers with their registers, not what the
    /// registers refer to.
    #[must_use]
    pub fn memory(&self) -> usize {
        let state = &self.state;
        let rare =
            state.rare.as_ref().map_or(0, |rare| size_of::<Rare>() + rare.borrowed.capacity() * size_of::<u64>());
        size_of::<Self>() + state.fibers.memory() + size_of::<Ready>() + rare
    }

    /// What the run has used of its limits so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.state.meter.usage()
    }

    /// Runs until the flow is done, nothing can run, or `budget` steps are used up.
    pub fn run(&mut self, machine: &mut Machine, host: &mut dyn Host, budget: u64) -> Run {
        // Room for texts is the machine's: what waits keeps none.
        self.state.meter.swap_scratch(&mut machine.scratch);
        let run = self.state.run(&self.program.0, machine, host, budget);
        self.state.meter.swap_scratch(&mut machine.scratch);
        run
    }
}

impl State {
    fn run(&mut self, program: &ProgramData, machine: &mut Machine, host: &mut dyn Host, budget: u64) -> Run {
        machine.regs.clear();
        machine.frames.clear();
        self.meter.slice(budget);
        if let Stage::Start(code, regs) = &mut self.stage {
            let (code, regs) = (*code, std::mem::take(regs));
            self.stage = Stage::Running;
            machine.regs.extend(regs);
            machine.regs.resize_with(usize::from(program.codes[code as usize].registers), || Value::UNBOUND);
            machine.frames.push(Frame { code, pc: 0, base: 0, dst: 0 });
            let root = machine.spare.take().unwrap_or_default();
            if let Some(run) = self.run_fiber(program, machine, host, None, root) {
                return run;
            }
        }
        loop {
            let current = self.rare.as_mut().and_then(|rare| rare.current.take());
            let next = match current {
                Some(token) => Some(token),
                None => self.ready.as_ref().and_then(|ready| ready.pop()),
            };
            let Some(token) = next else { break };
            // A token may come twice, or after its fiber was cancelled.
            let Some(mut fiber) = self.fibers.take(token) else { continue };
            if let End::PendingComprehension(gather) = &fiber.end {
                match open_hole(&gather.acc) {
                    Some(hole) => self.suspend_fiber(program, token, fiber, Stop::Wait(hole)),
                    None => {
                        let (pending, value) = (gather.pending.clone(), build_from(&gather.acc, gather.build));
                        release_borrows(&mut fiber.borrows);
                        self.retire(Some(token));
                        self.settle(program, &pending, value, host);
                        self.ended();
                    }
                }
                continue;
            }
            machine.regs.extend(std::mem::take(&mut fiber.regs).into_vec());
            machine.frames.extend(std::mem::take(&mut fiber.frames));
            if let Some(run) = self.run_fiber(program, machine, host, Some(token), fiber) {
                return run;
            }
        }
        if self.live > 0 {
            return Run::Waiting;
        }
        match self.rare.as_mut().and_then(|rare| rare.failed.take()) {
            Some(failed) => Run::Failed(failed.1),
            None => match std::mem::replace(&mut self.stage, Stage::Running) {
                Stage::Returned(value) => Run::Done(value),
                _ => Run::Done(Value::None),
            },
        }
    }

    /// Counts sequential waits: a fiber waits again after it has made progress, in another iteration of a loop.
    fn note_wait(&mut self, fiber: &mut Fiber) {
        let (Some(bottom), Some(top)) = (fiber.frames.first(), fiber.frames.last()) else { return };
        if fiber.last_wait.wait((bottom.code, bottom.pc), (top.code, top.pc), fiber.tick) {
            fiber.iterations = fiber.iterations.saturating_add(1);
        }
        if u32::from(fiber.iterations) > self.sequential_waits.0 {
            self.sequential_waits = (fiber.iterations.into(), CallSite { code: top.code, pc: top.pc });
        }
    }

    /// Runs the fiber on the machine's stack until it ends or stops. It has no token before it stops for
    /// the first time. `Some` if the budget is used up.
    fn run_fiber(
        &mut self,
        program: &ProgramData,
        machine: &mut Machine,
        host: &mut dyn Host,
        token: Option<u64>,
        mut fiber: Box<Fiber>,
    ) -> Option<Run> {
        let steps = self.meter.steps_left();
        match self.drive(program, machine, host, &mut fiber) {
            super::run::Exit::Done(value) => {
                release_borrows(&mut fiber.borrows);
                self.retire(token);
                match fiber.end.slot().cloned() {
                    None => self.stage = Stage::Returned(value),
                    Some(pending) => self.settle(program, &pending, value, host),
                }
                if token.is_none() {
                    fiber.clear();
                    machine.spare = Some(fiber);
                }
                self.ended();
            }
            super::run::Exit::Park(stop) => {
                save(machine, &mut fiber);
                // An operation that needs several values may stop again without having got anywhere.
                if self.meter.steps_left() != steps && matches!(stop, Stop::Wait(_)) {
                    self.note_wait(&mut fiber);
                }
                let token = token.unwrap_or_else(|| self.fibers.reserve());
                self.suspend_fiber(program, token, fiber, stop);
            }
            super::run::Exit::Yield => {
                save(machine, &mut fiber);
                let token = token.unwrap_or_else(|| self.fibers.reserve());
                self.fibers.put(token, fiber);
                self.rare().current = Some(token);
                return Some(Run::Yielded);
            }
            super::run::Exit::Failed(failure) => {
                machine.regs.clear();
                machine.frames.clear();
                release_borrows(&mut fiber.borrows);
                self.retire(token);
                let order = ProgramOrder { path: fiber.path.clone(), tick: fiber.tick + 1 };
                forget(&fiber);
                drop(fiber);
                self.fail(order, failure);
                self.ended();
            }
        }
        None
    }

    fn retire(&mut self, token: Option<u64>) {
        if let Some(token) = token {
            self.fibers.retire(token);
        }
        self.live -= 1;
    }

    /// A fiber has ended: what it could see may be changed again.
    fn ended(&mut self) {
        let Some(rare) = &mut self.rare else { return };
        let borrowed = std::mem::take(&mut rare.borrowed);
        let barrier = if self.live == 1 { rare.barrier.take() } else { None };
        for token in borrowed.into_iter().chain(barrier) {
            self.ready().settled(token);
        }
    }

    /// Publishes a fiber's result. What is derived from it is computed first, in the order of the requests,
    /// before any other code can change the result.
    fn settle(&mut self, program: &ProgramData, pending: &PendingValue, value: Value, host: &dyn Host) {
        for derived in pending.take_derived() {
            match derived {
                Derived::Borrow(token) => {
                    if let Some(fiber) = self.fibers.get(token) {
                        borrow(std::slice::from_ref(&value), &[], token, &mut fiber.borrows);
                    }
                }
                Derived::Index(later) => {
                    let part = walk(&value, &later.path, &later.order, &later.place);
                    self.settle_derived(program, &later, part, host);
                }
                Derived::Capture(later) => {
                    let place = || later.place.clone();
                    let copy = walk(&value, &later.path, &later.order, &later.place)
                        .and_then(|part| capture(&part, &later.order, &place).map_err(Stop::from));
                    self.settle_derived(program, &later, copy, host);
                }
            }
        }
        pending.settle(Ok(value));
    }

    fn settle_derived(
        &mut self,
        program: &ProgramData,
        later: &crate::pending::Later,
        value: Result<Value, Stop>,
        host: &dyn Host,
    ) {
        match value {
            Ok(value) => later.pending.settle(Ok(value)),
            Err(Stop::Fail(failure)) => {
                let failure = placed(program, failure, &later.place, host);
                self.fail(later.order.clone(), failure);
            }
            // Only a path that is longer than any value is deep waits here.
            Err(_) => {
                let failure = placed(program, Box::new(crate::value::compare::too_deep()), &later.place, host);
                self.fail(later.order.clone(), failure);
            }
        }
    }

    /// Notes a failure. Everything after it in program order would not have happened; everything
    /// before it continues to its end and may fail earlier still.
    #[cold]
    fn fail(&mut self, order: ProgramOrder, failure: Box<Failure>) {
        if self.rare().failed.as_ref().is_some_and(|failed| failed.0 <= order) {
            return;
        }
        for token in self.fibers.tokens() {
            let later = self.fibers.get(token).is_some_and(|fiber| {
                let next = ProgramOrder { path: fiber.path.clone(), tick: fiber.tick + 1 };
                next.cmp(&order) == Ordering::Greater
            });
            if later {
                if let Some(mut fiber) = self.fibers.take(token) {
                    release_borrows(&mut fiber.borrows);
                    forget(&fiber);
                }
                self.retire(Some(token));
            }
        }
        self.rare().failed = Some((order, failure));
    }
}

/// A part of a fiber's result, step by step.
fn walk(value: &Value, path: &[crate::value::Key], order: &ProgramOrder, place: &ProgramPoint) -> Result<Value, Stop> {
    let mut value = value.clone();
    for key in path {
        let mut at_order = || order.clone();
        value = index(&value, &key.value(), &mut At { order: &mut at_order, place: &|| place.clone() })?;
    }
    Ok(value)
}

fn save(machine: &mut Machine, fiber: &mut Fiber) {
    fiber.regs = machine.regs.drain(..).collect();
    fiber.frames = machine.frames.drain(..).collect();
}

/// What is derived from the result of a fiber that will never end refers back to the result.
fn forget(fiber: &Fiber) {
    if let Some(pending) = fiber.end.slot() {
        drop(pending.take_derived());
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for token in self.fibers.tokens() {
            if let Some(mut fiber) = self.fibers.take(token) {
                release_borrows(&mut fiber.borrows);
                forget(&fiber);
            }
        }
        self.meter.break_cycles();
    }
}
