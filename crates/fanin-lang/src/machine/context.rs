//! What operations work with, and how they end.

use std::rc::Rc;

use super::fiber::Fiber;
use super::{Building, Frame};
use crate::code::{Build, Reg, Target};
use crate::error::Stop;
use crate::host::{CallSite, Host};
use crate::meter::Meter;
use crate::native::Ctx;
use crate::program::ProgramData;
use crate::program_point::{CallerFrames, Callers, ProgramPoint};
use crate::value::{Accumulator, Value};

/// What a running fiber and its instance give to operations.
pub(crate) struct Cx<'a> {
    pub(crate) program: &'a ProgramData,
    pub(crate) host: &'a mut dyn Host,
    pub(crate) meter: &'a mut Meter,
    pub(crate) building: Option<&'a Building>,
    pub(crate) frames: &'a [Frame],
    pub(crate) fiber: &'a mut Fiber,
    /// Fibers besides this one.
    pub(crate) others: u32,
}

/// Why a frame's operations ended.
pub(crate) enum Action {
    /// The operation at the frame's `pc` stopped.
    Stop(Stop),
    /// The slice of steps is used up.
    Fuel,
    /// Call of a function of the program; `pc` is after it.
    Call {
        call: u16,
        dst: Reg,
    },
    Return(Value),
    /// End of an item of a comprehension in the bottom frame.
    ItemEnd(u16),
    /// A comprehension some of whose items are still running.
    PendingComprehension {
        dst: Reg,
        acc: Rc<Accumulator>,
        build: Build,
    },
}

impl Cx<'_> {
    pub(crate) fn call_site(&self, pc: usize) -> CallSite {
        CallSite { code: self.frames.last().map_or(0, |frame| frame.code), pc: pc as u32 }
    }

    pub(crate) fn ctx(&mut self, pc: usize) -> Ctx<'_> {
        let call_site = self.call_site(pc);
        Ctx { host: &mut *self.host, call_site, meter: &mut *self.meter, program: self.program }
    }
}

/// The place of the operation at `pc` of the top frame.
pub(crate) fn place(frames: &[Frame], callers: &Callers, pc: usize) -> ProgramPoint {
    let code = frames.last().map_or(0, |frame| frame.code);
    let below = &frames[..frames.len().saturating_sub(1)];
    ProgramPoint { code, pc: pc as u32, callers: callers_of(below, callers) }
}

/// The chain of callers that `below`, frames of a fiber with callers `up`, adds to.
pub(crate) fn callers_of(below: &[Frame], up: &Callers) -> Callers {
    if below.is_empty() {
        return up.clone();
    }
    Some(Rc::new(CallerFrames {
        // The operation before the next one is the call.
        frames: below.iter().map(|frame| (frame.code, frame.pc.saturating_sub(1))).collect(),
        up: up.clone(),
    }))
}

/// What a call's target is, for messages.
pub(crate) fn target_name(target: &Target) -> &str {
    match target {
        Target::Method { name, .. } => name,
        Target::Native(native) => native.name,
        _ => "the function",
    }
}
