//! What happens when an operation must wait: who steps aside, and who goes on.

use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use super::fiber::{End, Fiber, Gather, Waited};
use super::instance::State;
use super::lend::lend;
use super::step::callers_of;
use super::{Acc, Frame, Machine};
use crate::code::ItemInfo;
use crate::error::Stop;
use crate::program::ProgramData;
use crate::slot::{Slot, Waiter};
use crate::value::Value;

impl State {
    /// The top frame must wait. Gives the stop back if the whole fiber must; otherwise what must wait
    /// has stepped aside and the fiber goes on.
    pub(super) fn step_aside(
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
                self.fork(program, machine, fiber, frame, index, item, code.registers, stop);
                return Ok(());
            }
        }
        if code.pure && below > 0 {
            self.meter.fibers(self.live)?;
            self.detach(program, machine, fiber, frame, stop);
            return Ok(());
        }
        Err(stop)
    }

    /// A pure function steps aside: its caller goes on with a result that is not there yet.
    fn detach(&mut self, program: &ProgramData, machine: &mut Machine, fiber: &mut Fiber, frame: Frame, stop: Stop) {
        let slot = Slot::fiber();
        machine.frames.pop();
        let aside = Fiber {
            regs: machine.regs.drain(frame.base as usize..).collect(),
            frames: smallvec![Frame { base: 0, ..frame }],
            end: End::Function(slot.clone()),
            path: fiber.path.below(fiber.tick + 1),
            tick: 0,
            depth: fiber.depth + machine.frames.len() as u32,
            callers: callers_of(&machine.frames, &fiber.callers),
            lends: None,
            lent: false,
            waited: Waited::default(),
            turns: 0,
        };
        fiber.tick += 1;
        if let Some(caller) = machine.frames.last() {
            machine.regs[caller.base as usize + usize::from(frame.dst)] = Value::Pending(slot);
        }
        self.start_waiting(program, aside, stop);
    }

    /// An item of a comprehension steps aside: the loop goes on with the next.
    #[allow(clippy::too_many_arguments, reason = "what the caller has looked up already")]
    fn fork(
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
        let slot = Slot::fiber();
        let base = frame.base as usize;
        let mut regs = super::instance::unbound(registers);
        for reg in &item.live {
            regs[usize::from(*reg)] = machine.regs[base + usize::from(*reg)].clone();
        }
        let one = frame.pc >= u32::from(item.element);
        if let Value::Acc(acc) = &machine.regs[base + usize::from(item.acc)] {
            let mut items = acc.items.borrow_mut();
            if one {
                items.push(Value::Pending(slot.clone()));
            } else {
                acc.holes.borrow_mut().push((items.len(), slot.clone()));
                items.push(Value::None);
            }
        }
        regs[usize::from(item.acc)] = Value::Acc(Rc::new(Acc::default()));
        let below = &machine.frames[..machine.frames.len() - 1];
        let aside = Fiber {
            regs: regs.into_boxed_slice(),
            frames: smallvec![Frame { base: 0, ..frame }],
            end: End::Item { slot, item: index, one },
            path: fiber.path.below(fiber.tick + 1),
            tick: 0,
            depth: fiber.depth + below.len() as u32,
            callers: callers_of(below, &fiber.callers),
            lends: None,
            lent: false,
            waited: Waited::default(),
            turns: 0,
        };
        fiber.tick += 1;
        if let Some(top) = machine.frames.last_mut() {
            top.pc = u32::from(item.end);
        }
        self.start_waiting(program, aside, stop);
    }

    /// A comprehension waits for items of unknown number; gives the slot of its result.
    pub(super) fn gather(
        &mut self,
        program: &ProgramData,
        machine: &Machine,
        fiber: &mut Fiber,
        acc: Rc<Acc>,
        build: crate::code::Build,
    ) -> Result<Slot, Stop> {
        self.meter.fibers(self.live)?;
        let slot = Slot::fiber();
        let aside = Fiber {
            regs: Box::default(),
            frames: SmallVec::new(),
            end: End::Gather(Box::new(Gather { slot: slot.clone(), acc: acc.clone(), build: Some(build) })),
            path: fiber.path.below(fiber.tick + 1),
            tick: 0,
            depth: fiber.depth + machine.frames.len() as u32,
            callers: fiber.callers.clone(),
            lends: None,
            lent: false,
            waited: Waited::default(),
            turns: 0,
        };
        fiber.tick += 1;
        if let Some(hole) = super::build::open_hole(&acc) {
            self.start_waiting(program, aside, Stop::Wait(hole));
        }
        Ok(slot)
    }

    fn start_waiting(&mut self, program: &ProgramData, fiber: Fiber, stop: Stop) {
        self.live += 1;
        let token = self.fibers.reserve();
        self.park(program, token, Box::new(fiber), stop);
    }

    /// Puts a fiber to sleep until what it stopped for has come.
    pub(super) fn park(&mut self, program: &ProgramData, token: u64, mut fiber: Box<Fiber>, stop: Stop) {
        // While the root waits only fibers that it started run, and they change nothing of its.
        if !fiber.is_root() && !fiber.lent {
            fiber.lent = true;
            let work = match &fiber.end {
                End::Gather(gather) => {
                    let acc = Value::Acc(gather.acc.clone());
                    lend(std::slice::from_ref(&acc), &[], token, &mut fiber.lends)
                }
                End::Function(_) => {
                    let own = fiber.frames.first().map(|frame| &*program.codes[frame.code as usize].own);
                    lend(&fiber.regs, own.unwrap_or_default(), token, &mut fiber.lends)
                }
                _ => lend(&fiber.regs, &[], token, &mut fiber.lends),
            };
            self.meter.fuel = self.meter.fuel.saturating_sub(work / 4);
        }
        self.fibers.put(token, fiber);
        match stop {
            Stop::Wait(slot) => slot.on_settled(Rc::clone(self.ready()) as Rc<dyn Waiter>, token),
            Stop::Lent => self.rare().lent.push(token),
            Stop::Barrier => self.rare().barrier = Some(token),
            // Failures end a fiber, and a turn that is over does not park it.
            Stop::Fail(_) | Stop::Yield => {}
        }
    }
}
