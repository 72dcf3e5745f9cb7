//! The run loop of one fiber: pushes and pops frames. Operations within a frame run in `dispatch`.

use super::args::{self, Callee};
use super::borrow::release_borrows;
use super::build::{build_from, open_hole};
use super::context::{Action, Cx, place};
use super::dispatch::step;
use super::fiber::{End, Fiber, PendingComprehension};
use super::state::State;
use super::traceback::placed;
use super::{Frame, Machine, none_provenance};
use crate::error::{Failure, Kind, Stop};
use crate::host::Host;
use crate::program::ProgramData;
use crate::value::Value;

/// Where a fiber's run ended.
pub(super) enum Exit {
    Done(Value),
    Park(Stop),
    Yield,
    Failed(Box<Failure>),
}

impl State {
    /// Runs the fiber whose frames are on the machine's stack.
    pub(super) fn drive(
        &mut self,
        program: &ProgramData,
        machine: &mut Machine,
        host: &mut dyn Host,
        fiber: &mut Fiber,
    ) -> Exit {
        loop {
            let Some(frame) = machine.frames.last().copied() else { return Exit::Done(Value::None) };
            let code = &program.codes[frame.code as usize];
            let mut pc = frame.pc as usize;
            let action = step(
                &mut machine.regs[frame.base as usize..],
                code,
                &mut pc,
                &mut Cx {
                    program,
                    host,
                    meter: &mut self.meter,
                    building: self.rare.as_deref().and_then(|rare| rare.building.as_deref()),
                    frames: &machine.frames,
                    fiber,
                    others: self.live - 1,
                },
            );
            if let Some(top) = machine.frames.last_mut() {
                top.pc = pc as u32;
            }
            let stop = match action {
                Action::Return(value) => {
                    machine.regs.truncate(frame.base as usize);
                    machine.frames.pop();
                    match machine.frames.last() {
                        Some(caller) => {
                            machine.regs[caller.base as usize + usize::from(frame.dst)] = value;
                            continue;
                        }
                        None => return Exit::Done(value),
                    }
                }
                Action::Call { call, dst } => {
                    let info = &code.calls[usize::from(call)];
                    match self.enter(machine, fiber, program, frame, info, dst) {
                        Ok(()) => continue,
                        Err(stop) => {
                            if let Some(top) = machine.frames.last_mut() {
                                top.pc -= 1;
                            }
                            stop
                        }
                    }
                }
                Action::Stop(stop) => stop,
                Action::Fuel if self.meter.is_empty() => self.meter.no_steps(),
                Action::Fuel => return Exit::Yield,
                Action::ItemEnd(item) => {
                    let reg = frame.base as usize + usize::from(code.items[usize::from(item)].acc);
                    let Value::Accumulator(acc) = std::mem::take(&mut machine.regs[reg]) else {
                        return Exit::Done(Value::None);
                    };
                    machine.regs.clear();
                    machine.frames.clear();
                    let End::Item { pending, one, .. } = &fiber.end else { return Exit::Done(Value::None) };
                    if *one {
                        let element = acc.items.borrow_mut().pop();
                        return Exit::Done(element.unwrap_or_default());
                    }
                    match open_hole(&acc) {
                        None => return Exit::Done(build_from(&acc, None)),
                        Some(hole) => {
                            fiber.end = End::PendingComprehension(Box::new(PendingComprehension {
                                pending: pending.clone(),
                                acc,
                                build: None,
                            }));
                            return Exit::Park(Stop::Wait(hole));
                        }
                    }
                }
                Action::PendingComprehension { dst, acc, build } => {
                    match self.suspend_comprehension(program, machine, fiber, acc, build) {
                        Ok(pending) => {
                            machine.regs[frame.base as usize + usize::from(dst)] = Value::Pending(pending);
                            continue;
                        }
                        Err(stop) => {
                            if let Some(top) = machine.frames.last_mut() {
                                top.pc -= 1;
                            }
                            stop
                        }
                    }
                }
            };
            let stop = match stop {
                // It may be borrowed to this very fiber, which made it before it first last_wait. Nobody else
                // can change what a fiber made, so its own marks may go until it waits again.
                Stop::Borrowed if fiber.borrows.is_some() => {
                    release_borrows(&mut fiber.borrows);
                    fiber.borrowed = false;
                    continue;
                }
                // It counts again when it continues: a step given back here would never be charged.
                Stop::Yield => return Exit::Yield,
                Stop::Fail(failure) => return Exit::Failed(failed(program, machine, fiber, failure, host)),
                other => other,
            };
            // The operation runs again, and counts then.
            self.meter.fuel += 1;
            match self.suspend_frame(program, machine, fiber, stop) {
                Ok(()) => {}
                Err(Stop::Fail(failure)) => return Exit::Failed(failed(program, machine, fiber, failure, host)),
                Err(stop) => return Exit::Park(stop),
            }
        }
    }

    /// Starts a frame for a call of a function of the program.
    fn enter(
        &mut self,
        machine: &mut Machine,
        fiber: &Fiber,
        program: &ProgramData,
        caller: Frame,
        info: &crate::code::CallInfo,
        dst: u16,
    ) -> Result<(), Stop> {
        let building = self.rare.as_deref().and_then(|rare| rare.building.as_deref());
        let callee = Callee::of(&info.target, &machine.regs[caller.base as usize..], program, building);
        let Some(callee) = callee else { return Err(Stop::fail(Kind::Type, "this cannot be called")) };
        let index = callee.code();
        let code = &program.codes[index as usize];
        self.meter.depth(fiber.depth + machine.frames.len() as u32)?;
        // Pure functions are in no cycle of calls.
        if !code.pure && machine.frames.iter().any(|frame| frame.code == index) {
            return Err(Stop::fail(Kind::Recursion, format!("{} calls itself, directly or through others", code.name)));
        }
        let base = machine.regs.len();
        machine.regs.resize_with(base + usize::from(code.registers), || Value::UNBOUND);
        if let Err(stop) = args::pass(&mut machine.regs, caller.base as usize, info, &callee, code, base, &self.meter) {
            machine.regs.truncate(base);
            return Err(stop);
        }
        machine.frames.push(Frame { code: index, pc: 0, base: base as u32, dst });
        Ok(())
    }
}

#[cold]
fn failed(
    program: &ProgramData,
    machine: &Machine,
    fiber: &Fiber,
    failure: Box<Failure>,
    host: &dyn Host,
) -> Box<Failure> {
    let pc = machine.frames.last().map_or(0, |frame| frame.pc as usize);
    let mut failure = failure;
    if let Some(frame) = machine.frames.last() {
        none_provenance::explain(program, machine, *frame, &mut failure);
    }
    placed(program, failure, &place(&machine.frames, &fiber.callers, pc), host)
}
