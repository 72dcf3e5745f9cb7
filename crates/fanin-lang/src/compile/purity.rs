//! Purity analysis: which functions and items of comprehensions change only what they made.
//!
//! Only such code runs side by side with what follows it. The analysis is conservative: what is not
//! known to be harmless counts as a change. A function in a cycle of calls counts as impure too: the
//! calls below a function that is suspended are then never recursive, so recursion can be
//! refused by looking at the frames of one fiber.

use std::collections::HashSet;

use super::builder::Event;
use crate::code::{Code, Reason};

/// A compiled function with what it may change and its variables that may hold others' containers;
/// `None` while it is being compiled.
pub(super) type Unsettled = Option<(Code, Vec<(u16, Event)>, HashSet<String>)>;

/// Works out the effects of a module's functions.
pub(super) fn settle(codes: Vec<Unsettled>, before: &[Code]) -> Vec<Code> {
    let first = before.len() as u32;
    let mut all: Vec<(Code, Vec<(u16, Event)>)> = Vec::with_capacity(codes.len());
    for unsettled in codes {
        // Every function that was reserved has been compiled unless there were errors.
        let (code, events, foreign) = unsettled.unwrap_or_default();
        let events = events.into_iter().filter(|(pc, event)| !harmless(&code, *pc, event, &foreign)).collect();
        all.push((code, events));
    }
    // Assume all pure, and take back what turns out wrong until nothing changes.
    let mut pure: Vec<bool> = vec![true; all.len()];
    let mut writes: Vec<bool> = vec![false; all.len()];
    for (at, (_, events)) in all.iter().enumerate() {
        if reaches(&all, first, at as u32 + first) {
            pure[at] = false;
        }
        for (_, event) in events {
            match event {
                Event::Impure(_) | Event::Changes { .. } => pure[at] = false,
                Event::Writes(_) => {
                    pure[at] = false;
                    writes[at] = true;
                }
                Event::Calls(_) => {}
            }
        }
    }
    let mut changed = true;
    while changed {
        changed = false;
        for (at, (_, events)) in all.iter().enumerate() {
            for (_, event) in events {
                let Event::Calls(callee) = event else { continue };
                let (callee_pure, callee_writes) = match callee.checked_sub(first) {
                    Some(index) => (pure[index as usize], writes[index as usize]),
                    None => (before[*callee as usize].pure, before[*callee as usize].writes),
                };
                if !callee_pure && pure[at] {
                    pure[at] = false;
                    changed = true;
                }
                if callee_writes && !writes[at] {
                    writes[at] = true;
                    changed = true;
                }
            }
        }
    }
    let names: Vec<_> = all.iter().map(|(code, _)| code.name.clone()).collect();
    let mut settled = Vec::with_capacity(all.len());
    for (at, (mut code, events)) in all.into_iter().enumerate() {
        code.pure = pure[at];
        code.writes = writes[at];
        for (pc, event) in &events {
            let text = match event {
                Event::Impure(text) | Event::Writes(text) => text.clone(),
                Event::Changes { what, .. } => what.clone(),
                Event::Calls(callee) => {
                    let (callee_pure, name) = match callee.checked_sub(first) {
                        Some(index) => (pure[index as usize], &names[index as usize]),
                        None => (before[*callee as usize].pure, &before[*callee as usize].name),
                    };
                    if callee_pure {
                        continue;
                    }
                    format!("calls {name}, which is not pure")
                }
            };
            for item in &mut code.items {
                if item.start <= *pc && *pc <= item.end {
                    item.pure = false;
                }
            }
            code.reasons.push(Reason { pc: *pc, text });
        }
        settled.push(code);
    }
    settled
}

/// A change to a container that the function made itself, outside any comprehension, is harmless.
/// An item of a comprehension did not make the function's containers.
fn harmless(code: &Code, pc: u16, event: &Event, foreign: &HashSet<String>) -> bool {
    match event {
        Event::Changes { var, .. } => {
            !foreign.contains(var) && !code.items.iter().any(|item| item.start <= pc && pc <= item.end)
        }
        _ => false,
    }
}

/// Whether a function can call itself through known calls of this module.
fn reaches(all: &[(Code, Vec<(u16, Event)>)], first: u32, target: u32) -> bool {
    let mut seen = HashSet::new();
    let mut stack = vec![target];
    while let Some(at) = stack.pop() {
        let Some(index) = at.checked_sub(first) else { continue };
        for (_, event) in &all[index as usize].1 {
            if let Event::Calls(callee) = event {
                if *callee == target {
                    return true;
                }
                if seen.insert(*callee) {
                    stack.push(*callee);
                }
            }
        }
    }
    false
}
