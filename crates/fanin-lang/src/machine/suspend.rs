//! Suspending: an operation must wait. Decides what is suspended and what continues.

use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use super::borrow::borrow;
use super::context::callers_of;
use super::fiber::{End, Fiber, LastWait, PendingComprehension};
use super::registers::unbound;
use super::state::State;
use super::{Frame, Machine};
use crate::code::ItemInfo;
use crate::error::Stop;
use crate::host::CallSite;
use crate::pending::{PendingValue, Waiter};
use crate::program::ProgramData;
use crate::value::{Accumulator, Value};

impl State {
    /// The top frame must wait. Returns the stop if the whole fiber must wait. Otherwise suspends a part of it, and the
    /// fiber continues.
    pub(super) fn suspend_frame(
        &mut self,
        program: &ProgramData,
        machine: &mut Machine,
        fiber: &mut Fiber,
        stop: Stop,
    ) -> Result<(), Stop> {
        let (Some(frame), below) = (machine.frames.last().copied(), machine.frames.len() - 1) else { return Err(stop) };
        if matches!(stop, Stop::Barrier) {
            return Err(stop);
        }
        let code = &program.codes[frame.code as usize];
        let pc = frame.pc as u16;
        // The innermost item of a comprehension that the operation is in.
        let item = (0_u16..)
            .zip(&code.items)
            .filter(|(_, item)| item.start <= pc && pc < item.end)
            .min_by_key(|(_, item)| item.end - item.start);
        if let Some((index, item)) = item {
            let own = matches!(fiber.end, End::Item { item, .. } if item == index && below == 0);
            if item.pure && !own {
                self.meter.fibers(self.live)?;
                self.suspend_item(program, machine, fiber, frame, index, item, code.registers, stop);
                return Ok(());
            }
        }
        if code.pure && below > 0 {
            self.meter.fibers(self.live)?;
            self.suspend_function(program, machine, fiber, frame, stop);
            return Ok(());
        }
        Err(stop)
    }

    /// A pure function is suspended: its caller continues with a pending result.
    fn suspend_function(
        &mut self,
        program: &ProgramData,
        machine: &mut Machine,
        fiber: &mut Fiber,
        frame: Frame,
        stop: Stop,
    ) {
        let pending = PendingValue::fiber();
        machine.frames.pop();
        let aside = Fiber {
            regs: machine.regs.drain(frame.base as usize..).collect(),
            frames: smallvec![Frame { base: 0, ..frame }],
            end: End::Function(pending.clone()),
            path: fiber.path.below(fiber.tick + 1),
            tick: 0,
            depth: fiber.depth + machine.frames.len() as u32,
            callers: callers_of(&machine.frames, &fiber.callers),
            borrows: None,
            borrowed: false,
            last_wait: LastWait::default(),
            iterations: 0,
        };
        fiber.tick += 1;
        if let Some(caller) = machine.frames.last() {
            machine.regs[caller.base as usize + usize::from(frame.dst)] = Value::Pending(pending);
        }
        self.start_waiting(program, aside, stop);
    }

    /// An item of a comprehension is suspended: the loop continues with the next.
    #[allow(clippy::too_many_arguments, reason = "what the caller has looked up already")]
    fn suspend_item(
        &mut self,
        program: &ProgramData,
        machine: &mut Machine,
        fiber: &mut Fiber,
        frame: Frame,
        index: u16,
        item: &ItemInfo,
        registers: u16,
        stop: Stop,
    ) {
        let pending = PendingValue::fiber();
        let base = frame.base as usize;
        let mut regs = unbound(registers);
        for reg in &item.live {
            regs[usize::from(*reg)] = machine.regs[base + usize::from(*reg)].clone();
        }
        let one = frame.pc >= u32::from(item.element);
        if let Value::Accumulator(acc) = &machine.regs[base + usize::from(item.acc)] {
            let mut items = acc.items.borrow_mut();
            if one {
                items.push(Value::Pending(pending.clone()));
            } else {
                acc.holes.borrow_mut().push((items.len(), pending.clone()));
                items.push(Value::None);
            }
        }
        regs[usize::from(item.acc)] = Value::Accumulator(Rc::new(Accumulator::default()));
        let below = &machine.frames[..machine.frames.len() - 1];
        let aside = Fiber {
            regs: regs.into_boxed_slice(),
            frames: smallvec![Frame { base: 0, ..frame }],
            end: End::Item { pending, item: index, one },
            path: fiber.path.below(fiber.tick + 1),
            tick: 0,
            depth: fiber.depth + below.len() as u32,
            callers: callers_of(below, &fiber.callers),
            borrows: None,
            borrowed: false,
            last_wait: LastWait::default(),
            iterations: 0,
        };
        fiber.tick += 1;
        if let Some(top) = machine.frames.last_mut() {
            top.pc = u32::from(item.end);
        }
        self.start_waiting(program, aside, stop);
    }

    /// A comprehension waits for items of unknown number; gives the pending value of its result.
    pub(super) fn suspend_comprehension(
        &mut self,
        program: &ProgramData,
        machine: &Machine,
        fiber: &mut Fiber,
        acc: Rc<Accumulator>,
        build: crate::code::Build,
    ) -> Result<PendingValue, Stop> {
        self.meter.fibers(self.live)?;
        let pending = PendingValue::fiber();
        let aside = Fiber {
            regs: Box::default(),
            frames: SmallVec::new(),
            end: End::PendingComprehension(Box::new(PendingComprehension {
                pending: pending.clone(),
                acc: acc.clone(),
                build: Some(build),
            })),
            path: fiber.path.below(fiber.tick + 1),
            tick: 0,
            depth: fiber.depth + machine.frames.len() as u32,
            callers: fiber.callers.clone(),
            borrows: None,
            borrowed: false,
            last_wait: LastWait::default(),
            iterations: 0,
        };
        fiber.tick += 1;
        if let Some(hole) = super::build::open_hole(&acc) {
            self.start_waiting(program, aside, Stop::Wait(hole));
        }
        Ok(pending)
    }

    fn start_waiting(&mut self, program: &ProgramData, fiber: Fiber, stop: Stop) {
        self.live += 1;
        let token = self.fibers.reserve();
        self.suspend_fiber(program, token, Box::new(fiber), stop);
    }

    /// Suspends a fiber until the reason of its stop is gone.
    pub(super) fn suspend_fiber(&mut self, program: &ProgramData, token: u64, mut fiber: Box<Fiber>, stop: Stop) {
        // While the root waits only fibers that it started run, and they change nothing of its.
        if !fiber.is_root() && !fiber.borrowed {
            fiber.borrowed = true;
            let work = match &fiber.end {
                End::PendingComprehension(gather) => {
                    let acc = Value::Accumulator(gather.acc.clone());
                    borrow(std::slice::from_ref(&acc), &[], token, &mut fiber.borrows)
                }
                End::Function(_) => {
                    let own = fiber.frames.first().map(|frame| &*program.codes[frame.code as usize].own);
                    borrow(&fiber.regs, own.unwrap_or_default(), token, &mut fiber.borrows)
                }
                _ => borrow(&fiber.regs, &[], token, &mut fiber.borrows),
            };
            self.meter.fuel = self.meter.fuel.saturating_sub(work / 4);
        }
        if let Stop::Wait(pending) = &stop
            && let Some(waits) = self.rare.as_mut().and_then(|rare| rare.waits.as_mut())
            && let Some(top) = fiber.frames.last()
        {
            waits.push((CallSite { code: top.code, pc: top.pc }, pending.clone()));
        }
        self.fibers.put(token, fiber);
        match stop {
            Stop::Wait(pending) => pending.on_settled(Rc::clone(self.ready()) as Rc<dyn Waiter>, token),
            Stop::Borrowed => self.rare().borrowed.push(token),
            Stop::Barrier => self.rare().barrier = Some(token),
            // Failures end a fiber, and the end of a time slice does not suspend it.
            Stop::Fail(_) | Stop::Yield => {}
        }
    }
}
