//! Metering: what one instance uses of its limits.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::error::{Failure, Kind, Stop};
use crate::value::{Dict, List};

/// Bounds on what one instance may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Operations, and steps that natives charge for work whose size the program chooses.
    pub steps: u64,
    /// Bytes of memory taken for values over the whole run, whether or not they were freed.
    pub memory: u64,
    /// Calls nested within each other.
    pub depth: u32,
    /// Fibers that wait or run at the same time.
    pub fibers: u32,
    /// Bytes of one string, or of one list, set or dict: an element of a list counts 16, an entry 48. No
    /// single operation can be stopped half-way, so this bounds how long one takes.
    pub value: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 10_000_000, memory: 64 << 20, depth: 64, fibers: 10_000, value: 1 << 20 }
    }
}

/// Which of the [`Limits`] a flow was stopped by: the payload of its [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::steps`]
    Steps,
    /// [`Limits::memory`]
    Memory,
    /// [`Limits::depth`]
    Depth,
    /// [`Limits::fibers`]
    Fibers,
    /// [`Limits::value`], and other bounds on single values.
    Value,
    /// Calls, which the host counts.
    Calls,
    /// The response, which the host bounds.
    Response,
}

impl Limit {
    /// The limit that stopped a flow, if one did.
    #[must_use]
    pub fn of(failure: &Failure) -> Option<Self> {
        if failure.kind != Kind::Limit {
            return None;
        }
        // Bounds that do not say so are on the nesting or the size of one value.
        Some(failure.payload.as_ref().and_then(|payload| payload.downcast_ref().copied()).unwrap_or(Self::Value))
    }

    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Steps, Self::Memory, Self::Value, Self::Depth, Self::Fibers, Self::Calls, Self::Response];

    /// A short name, as metrics have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Memory => "memory",
            Self::Depth => "depth",
            Self::Fibers => "fibers",
            Self::Value => "value",
            Self::Calls => "calls",
            Self::Response => "response",
        }
    }

    /// The failure of a flow that passed it.
    #[cold]
    #[must_use]
    pub fn failure(self, message: impl Into<String>) -> Failure {
        Failure::new(Kind::Limit, message).with_payload(Arc::new(self))
    }

    fn stop(self, message: String) -> Stop {
        self.failure(message).into()
    }
}

/// What a run has used of its limits so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Steps.
    pub steps: u64,
    /// Bytes of memory taken for values, whether or not they were freed.
    pub memory: u64,
}

/// What an instance has used, and the containers that it must take apart at its end.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Steps left of the slice that runs now.
    pub(crate) fuel: u64,
    /// Steps left after that.
    left: u64,
    memory: u64,
    /// Those of all runs of one function, most often.
    limits: Arc<Limits>,
    tracked: Vec<Tracked>,
    /// Room in which texts are put together, so that one that is made takes one allocation. The machine's, and here only
    /// while the instance runs.
    scratch: Scratch,
    /// What a native that gave its worker back has done so far. Nothing else of the instance runs before
    /// that native does.
    #[allow(
        clippy::redundant_allocation,
        reason = "thin: what waits is small, and few natives give their worker back"
    )]
    task: Option<Box<Box<dyn std::any::Any>>>,
}

/// Room for texts, one word wide.
#[allow(clippy::box_collection, reason = "thin: an instance that waits has none")]
pub(crate) type Scratch = Option<Box<String>>;

/// What was left at some point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    fuel: u64,
    left: u64,
    memory: u64,
}

#[derive(Debug)]
enum Tracked {
    List(Weak<List>),
    Dict(Weak<Dict>),
    Cell(Weak<std::cell::RefCell<crate::value::Value>>),
}

impl Meter {
    pub(crate) fn new(limits: Arc<Limits>) -> Self {
        Self {
            fuel: 0,
            left: limits.steps,
            memory: limits.memory,
            limits,
            tracked: Vec::new(),
            scratch: None,
            task: None,
        }
    }

    /// Starts a slice of at most `budget` steps.
    pub(crate) fn slice(&mut self, budget: u64) {
        self.left += self.fuel;
        self.fuel = self.left.min(budget);
        self.left -= self.fuel;
    }

    /// What has been used.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            steps: self.limits.steps.saturating_sub(self.steps_left()),
            memory: self.limits.memory.saturating_sub(self.memory),
        }
    }

    /// Whether a native has given its worker back and is to continue.
    pub(crate) fn resumes(&self) -> bool {
        self.task.is_some()
    }

    /// What the native that runs now has done before it gave its worker back.
    pub(crate) fn resume<T: 'static>(&mut self) -> Option<Box<T>> {
        (*self.task.take()?).downcast().ok()
    }

    /// Keeps what a native has done, so that others can run.
    pub(crate) fn suspend(&mut self, task: Box<dyn std::any::Any>) -> Stop {
        self.task = Some(Box::new(task));
        Stop::Yield
    }

    /// Exchanges the room for texts with another.
    #[inline]
    pub(crate) fn swap_scratch(&mut self, other: &mut Scratch) {
        std::mem::swap(&mut self.scratch, other);
    }

    /// An empty string with room; give it back with [`put_scratch`](Self::put_scratch).
    pub(crate) fn scratch(&mut self) -> String {
        self.scratch.as_deref_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Keeps the room for the next text, unless it is large.
    pub(crate) fn put_scratch(&mut self, mut scratch: String) {
        const KEPT: usize = 4096;
        if scratch.capacity() <= KEPT {
            scratch.clear();
            **self.scratch.get_or_insert_default() = scratch;
        }
    }

    /// Whether nothing is left at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.fuel == 0 && self.left == 0
    }

    /// Steps left in all.
    pub(crate) fn steps_left(&self) -> u64 {
        self.fuel.saturating_add(self.left)
    }

    /// Bytes left.
    pub(crate) fn memory_left(&self) -> u64 {
        self.memory
    }

    /// What is left, to come back to if an operation stops to wait: it will run again from its start,
    /// and what it may use must not depend on how often.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark { fuel: self.fuel, left: self.left, memory: self.memory }
    }

    /// Gives back what was charged since the mark if the operation stopped to wait.
    #[inline]
    pub(crate) fn settle<T>(&mut self, mark: Mark, result: Result<T, Stop>) -> Result<T, Stop> {
        if let Err(stop) = &result {
            self.stopped(mark, stop);
        }
        result
    }

    /// What [`settle`](Self::settle) does if the operation stopped.
    #[cold]
    pub(crate) fn stopped(&mut self, mark: Mark, stop: &Stop) {
        if let Stop::Wait(_) | Stop::Borrowed | Stop::Barrier = stop {
            self.fuel = mark.fuel;
            self.left = mark.left;
            self.memory = mark.memory;
        }
    }

    #[inline]
    pub(crate) fn steps(&mut self, steps: u64) -> Result<(), Stop> {
        if steps <= self.fuel {
            self.fuel -= steps;
            return Ok(());
        }
        let over = steps - self.fuel;
        self.fuel = 0;
        if over > self.left {
            self.left = 0;
            return Err(self.no_steps());
        }
        self.left -= over;
        Ok(())
    }

    #[cold]
    pub(crate) fn no_steps(&self) -> Stop {
        Limit::Steps.stop(format!("the flow took more than {} steps", self.limits.steps))
    }

    #[inline]
    pub(crate) fn memory(&mut self, bytes: u64) -> Result<(), Stop> {
        // Some natives charge for more than the value itself.
        const MORE: u64 = 256;
        match self.memory.checked_sub(bytes) {
            Some(left) if bytes <= self.limits.value.saturating_add(MORE) => {
                self.memory = left;
                Ok(())
            }
            Some(_) => Err(self.too_large()),
            None => Err(self.no_memory()),
        }
    }

    #[cold]
    fn no_memory(&self) -> Stop {
        Limit::Memory.stop(format!("the flow took more than {} bytes of memory", self.limits.memory))
    }

    /// Whether a value may have so many bytes.
    #[inline]
    pub(crate) fn value(&self, bytes: usize) -> Result<(), Stop> {
        if bytes as u64 <= self.limits.value { Ok(()) } else { Err(self.too_large()) }
    }

    /// Most bytes that a value may have.
    pub(crate) fn most_value(&self) -> u64 {
        self.limits.value
    }

    #[cold]
    fn too_large(&self) -> Stop {
        Limit::Value.stop(format!("a single value of more than {} bytes", self.limits.value))
    }

    pub(crate) fn depth(&self, depth: u32) -> Result<(), Stop> {
        if depth < self.limits.depth {
            return Ok(());
        }
        Err(Limit::Depth.stop(format!("calls are nested deeper than {}", self.limits.depth)))
    }

    pub(crate) fn fibers(&self, live: u32) -> Result<(), Stop> {
        if live < self.limits.fibers {
            return Ok(());
        }
        Err(Limit::Fibers.stop(format!("more than {} functions and items wait at the same time", self.limits.fibers)))
    }

    /// Something that may hold other containers goes into this one: it may come to hold itself.
    pub(crate) fn track_list(&mut self, list: &Rc<List>) {
        if !list.guard.tracked.replace(true) {
            self.tracked.push(Tracked::List(Rc::downgrade(list)));
        }
    }

    pub(crate) fn track_dict(&mut self, dict: &Rc<Dict>) {
        if !dict.guard.tracked.replace(true) {
            self.tracked.push(Tracked::Dict(Rc::downgrade(dict)));
        }
    }

    pub(crate) fn track_cell(&mut self, cell: &Rc<std::cell::RefCell<crate::value::Value>>) {
        self.tracked.push(Tracked::Cell(Rc::downgrade(cell)));
    }

    /// Empties containers that may hold themselves, so that they are freed. Only containers that
    /// others were put into after they were made can be part of a cycle.
    pub(crate) fn break_cycles(&mut self) {
        for tracked in self.tracked.drain(..) {
            match tracked {
                Tracked::List(list) => drop(list.upgrade().map(|list| list.take())),
                Tracked::Dict(dict) => drop(dict.upgrade().map(|dict| dict.take())),
                Tracked::Cell(cell) => drop(cell.upgrade().map(|cell| cell.take())),
            }
        }
    }
}
