//! Fibers: suspended ones, and the queue of those that can run.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use smallvec::SmallVec;

use super::Frame;
use crate::code::Build;
use crate::pending::{PendingValue, Waiter};
use crate::program_order::Path;
use crate::program_point::Callers;
use crate::value::{Accumulator, Value};

/// What a fiber's end is.
#[derive(Debug)]
pub(crate) enum End {
    /// The root: its result is the instance's.
    Root,
    /// A suspended function: its result goes to the pending value.
    Function(PendingValue),
    /// One item of a comprehension: when it comes to the end of item `item` of its bottom frame, what
    /// it pushed goes to the pending value. One element if `one`, else a list of any number.
    Item { pending: PendingValue, item: u16, one: bool },
    /// A comprehension that waits for items of unknown number: the list goes to the pending value.
    PendingComprehension(Box<PendingComprehension>),
}

/// What a comprehension that waits gathers into.
#[derive(Debug)]
pub(crate) struct PendingComprehension {
    pub(crate) pending: PendingValue,
    pub(crate) acc: Rc<Accumulator>,
    pub(crate) build: Option<Build>,
}

impl End {
    /// Where the result goes, if it is not the instance's.
    pub(crate) fn slot(&self) -> Option<&PendingValue> {
        match self {
            End::Root => None,
            End::Function(pending) | End::Item { pending, .. } => Some(pending),
            End::PendingComprehension(gather) => Some(&gather.pending),
        }
    }
}

/// Most fibers borrow nothing.
pub(crate) type Borrows = Option<Box<Vec<Value>>>;

#[derive(Debug)]
pub(crate) struct Fiber {
    /// Both empty while it runs.
    pub(crate) frames: SmallVec<[Frame; 1]>,
    pub(crate) regs: Box<[Value]>,
    pub(crate) end: End,
    pub(crate) path: Path,
    pub(crate) tick: u32,
    /// Frames below its bottom one when it was started.
    pub(crate) depth: u32,
    pub(crate) callers: Callers,
    /// Containers that it can see and that others must not change while it waits.
    pub(crate) borrows: Borrows,
    /// Where it waited last.
    pub(crate) last_wait: LastWait,
    /// Loop iterations in which it has waited; saturates.
    pub(crate) iterations: u16,
    /// Whether that has been worked out. What others can change is all that it could see when it was
    /// started, so this is done once.
    pub(crate) borrowed: bool,
}

impl Default for Fiber {
    /// A root.
    fn default() -> Self {
        Self {
            frames: SmallVec::new(),
            regs: Box::default(),
            end: End::Root,
            path: Path::root(),
            tick: 0,
            depth: 0,
            callers: None,
            borrows: None,
            last_wait: LastWait::default(),
            iterations: 0,
            borrowed: false,
        }
    }
}

impl Fiber {
    /// Makes it a root again that has not run.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.end, End::Root)
    }
}

/// Where a fiber waited last, to recognize iterations of a loop.
#[derive(Debug, Default)]
pub(crate) struct LastWait {
    /// Function and operation of the bottom and of the top frame at the last wait; nothing before the first wait, when `tick` is 0.
    bottom: (u32, u32),
    top: (u32, u32),
    /// One more than the fiber's tick then.
    tick: u32,
}

impl LastWait {
    /// Whether control is at or before the place of the last wait, so that a loop has begun another iteration.
    fn back(&self, bottom: (u32, u32), top: (u32, u32)) -> bool {
        let (old_bottom, old_top) = (self.bottom, self.top);
        bottom.0 == old_bottom.0
            && (bottom.1 < old_bottom.1 || bottom.1 == old_bottom.1 && top.0 == old_top.0 && top.1 <= old_top.1)
    }

    /// Notes a wait. Returns whether this is another iteration of a loop with a new call or fiber: one that was made before
    /// the last wait ran beside it and does not count.
    pub(crate) fn wait(&mut self, bottom: (u32, u32), top: (u32, u32), tick: u32) -> bool {
        let back = self.tick > 0 && tick >= self.tick && self.back(bottom, top);
        (self.bottom, self.top) = (bottom, top);
        self.tick = tick.saturating_add(1);
        back
    }
}

/// Fibers by token; a token is never used for a second fiber.
#[derive(Debug)]
pub(crate) struct Fibers {
    places: SmallVec<[Entry; 1]>,
    /// The first of the free places, [`NONE`] if there is none.
    free: u32,
}

/// No place.
const NONE: u32 = u32::MAX;

/// Where a fiber waits, by the second half of its token.
#[derive(Debug)]
struct Entry {
    generation: u32,
    /// While it is free: the next free one.
    next: u32,
    fiber: Option<Box<Fiber>>,
}

impl Default for Fibers {
    fn default() -> Self {
        Self { places: SmallVec::new(), free: NONE }
    }
}

impl Fibers {
    /// A token for a fiber that is running.
    pub(crate) fn reserve(&mut self) -> u64 {
        let at = self.free;
        if at == NONE {
            self.places.push(Entry { generation: 0, next: NONE, fiber: None });
            return token(0, self.places.len() as u32 - 1);
        }
        let place = &self.places[at as usize];
        self.free = place.next;
        token(place.generation, at)
    }

    fn place(&mut self, token: u64) -> Option<&mut Option<Box<Fiber>>> {
        let place = self.places.get_mut(token as u32 as usize)?;
        (u64::from(place.generation) == token >> 32).then_some(&mut place.fiber)
    }

    /// Takes a waiting fiber out to run it; its token stays its own.
    pub(crate) fn take(&mut self, token: u64) -> Option<Box<Fiber>> {
        self.place(token)?.take()
    }

    /// Puts a fiber back that was taken out.
    pub(crate) fn put(&mut self, token: u64, fiber: Box<Fiber>) {
        if let Some(place) = self.place(token) {
            *place = Some(fiber);
        }
    }

    /// A waiting fiber.
    pub(crate) fn get(&mut self, token: u64) -> Option<&mut Box<Fiber>> {
        self.place(token)?.as_mut()
    }

    /// Forgets a fiber that was taken out.
    pub(crate) fn retire(&mut self, token: u64) {
        let at = token as u32;
        if let Some(place) = self.places.get_mut(at as usize)
            && u64::from(place.generation) == token >> 32
        {
            place.fiber = None;
            place.generation = place.generation.wrapping_add(1);
            place.next = self.free;
            self.free = at;
        }
    }

    /// Tokens of all waiting fibers.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.fiber.is_some())
            .map(|(at, place)| token(place.generation, at as u32))
            .collect()
    }

    pub(crate) fn memory(&self) -> usize {
        let own = if self.places.spilled() { self.places.capacity() * size_of::<Entry>() } else { 0 };
        let fibers = self.places.iter().filter_map(|place| place.fiber.as_ref());
        own + fibers
            .map(|fiber| {
                let lends = fiber
                    .borrows
                    .as_ref()
                    .map_or(0, |borrows| size_of::<Vec<Value>>() + borrows.capacity() * size_of::<Value>());
                let frames = if fiber.frames.spilled() { fiber.frames.capacity() * size_of::<Frame>() } else { 0 };
                size_of::<Fiber>() + frames + size_of_val(&*fiber.regs) + lends
            })
            .sum::<usize>()
    }
}

fn token(generation: u32, at: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(at)
}

/// Tokens of fibers that can continue, in the order in which they came. Most often it is one, and then it takes no room of its own.
#[derive(Default)]
pub(crate) struct Ready(Cell<Tokens>);

#[derive(Default)]
enum Tokens {
    #[default]
    None,
    One(u64),
    /// Never empty.
    #[allow(clippy::box_collection, reason = "thin: each flow that waits has one of these")]
    Many(Box<VecDeque<u64>>),
}

impl Ready {
    /// Takes the first.
    pub(crate) fn pop(&self) -> Option<u64> {
        match self.0.take() {
            Tokens::None => None,
            Tokens::One(token) => Some(token),
            Tokens::Many(mut tokens) => {
                let first = tokens.pop_front();
                if !tokens.is_empty() {
                    self.0.set(Tokens::Many(tokens));
                }
                first
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let tokens = self.0.take();
        let empty = matches!(tokens, Tokens::None);
        self.0.set(tokens);
        empty
    }
}

impl Waiter for Ready {
    fn settled(&self, token: u64) {
        self.0.set(match self.0.take() {
            Tokens::None => Tokens::One(token),
            Tokens::One(first) => Tokens::Many(Box::new([first, token].into())),
            Tokens::Many(mut tokens) => {
                tokens.push_back(token);
                Tokens::Many(tokens)
            }
        });
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ready")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_out_in_the_order_in_which_they_went_in() {
        let ready = Ready::default();
        assert!(ready.is_empty() && ready.pop().is_none());
        for round in [1, 2, 5] {
            for token in 0..round {
                ready.settled(token);
            }
            for token in 0..round {
                assert!(!ready.is_empty());
                assert_eq!(ready.pop(), Some(token));
            }
            assert!(ready.is_empty() && ready.pop().is_none());
        }
        ready.settled(7);
        assert_eq!(ready.pop(), Some(7));
        ready.settled(8);
        ready.settled(9);
        assert_eq!(ready.pop(), Some(8));
        ready.settled(10);
        assert_eq!((ready.pop(), ready.pop(), ready.pop()), (Some(9), Some(10), None));
    }

    #[test]
    fn what_waits_is_small() {
        // With the counters of an `Rc` before it.
        assert!(size_of::<Ready>() + 16 <= 32, "{}", size_of::<Ready>());
        assert!(size_of::<Fiber>() <= 112, "{}", size_of::<Fiber>());
    }
}
