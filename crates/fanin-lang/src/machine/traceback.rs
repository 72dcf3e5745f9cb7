//! Where a failure happened: its position and the functions that were running.

use crate::code::Op;
use crate::error::{Failure, TraceFrame};
use crate::host::Host;
use crate::program::ProgramData;
use crate::program_point::ProgramPoint;
use crate::types::Blame;
use crate::value::part::name_origin;

/// Fills in where a failure came up.
#[cold]
pub(super) fn placed(
    program: &ProgramData,
    mut failure: Box<Failure>,
    place: &ProgramPoint,
    host: &dyn Host,
) -> Box<Failure> {
    name_origin(&mut failure, |doc| Some((host.origin(doc)?, host.made(doc))));
    if failure.position.is_none() {
        failure.position = program.position(place.code, place.pc);
    }
    failure.trace = place.trace(program);
    blame(program, &mut failure, place);
    failure
}

/// A value of the wrong type is reported where it was passed, not where that was noticed.
fn blame(program: &ProgramData, failure: &mut Failure, place: &ProgramPoint) {
    let code = &program.codes[place.code as usize];
    let (ty, hidden) = match code.ops.get(place.pc as usize) {
        Some(Op::TypeNow { ty, .. }) => (*ty, false),
        Some(Op::TypeWait { ty, .. }) => (*ty, true),
        _ => return,
    };
    let caller = code.types[usize::from(ty)].blame == Blame::Caller;
    for drop in [hidden, caller] {
        if drop && failure.trace.len() > 1 {
            failure.trace.pop();
        }
    }
    failure.position = failure.trace.last().map(|frame| frame.position.clone());
}

impl ProgramPoint {
    /// The functions at this place, outermost first.
    pub(crate) fn trace(&self, program: &ProgramData) -> Vec<TraceFrame> {
        let mut places = vec![(self.code, self.pc)];
        let mut link = &self.callers;
        while let Some(callers) = link {
            places.extend(callers.frames.iter().rev());
            link = &callers.up;
        }
        places.reverse();
        places
            .into_iter()
            .map(|(code, pc)| TraceFrame {
                function: program.codes[code as usize].name.clone(),
                position: program.position(code, pc).unwrap_or_default(),
            })
            .collect()
    }
}
