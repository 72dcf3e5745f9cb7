//! Bounds on what one instance may use.

use std::rc::{Rc, Weak};

use crate::error::{Kind, Stop};
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
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 10_000_000, memory: 64 << 20, depth: 64, fibers: 10_000 }
    }
}

/// What an instance has used, and the containers that it must take apart at its end.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Steps left of the slice that runs now.
    pub(crate) fuel: u64,
    /// Steps left after that.
    left: u64,
    memory: u64,
    limits: Limits,
    tracked: Vec<Tracked>,
}

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
    pub(crate) fn new(limits: Limits) -> Self {
        Self { fuel: 0, left: limits.steps, memory: limits.memory, limits, tracked: Vec::new() }
    }

    /// Starts a slice of at most `budget` steps.
    pub(crate) fn slice(&mut self, budget: u64) {
        self.left += self.fuel;
        self.fuel = self.left.min(budget);
        self.left -= self.fuel;
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
        if let Err(Stop::Wait(_) | Stop::Lent | Stop::Barrier) = &result {
            self.fuel = mark.fuel;
            self.left = mark.left;
            self.memory = mark.memory;
        }
        result
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
        Stop::fail(Kind::Limit, format!("the flow took more than {} steps", self.limits.steps))
    }

    #[inline]
    pub(crate) fn memory(&mut self, bytes: u64) -> Result<(), Stop> {
        match self.memory.checked_sub(bytes) {
            Some(left) => {
                self.memory = left;
                Ok(())
            }
            None => Err(self.no_memory()),
        }
    }

    #[cold]
    fn no_memory(&self) -> Stop {
        Stop::fail(Kind::Limit, format!("the flow took more than {} bytes of memory", self.limits.memory))
    }

    pub(crate) fn depth(&self, depth: u32) -> Result<(), Stop> {
        if depth < self.limits.depth {
            return Ok(());
        }
        Err(Stop::fail(Kind::Limit, format!("calls are nested deeper than {}", self.limits.depth)))
    }

    pub(crate) fn fibers(&self, live: u32) -> Result<(), Stop> {
        if live < self.limits.fibers {
            return Ok(());
        }
        Err(Stop::fail(
            Kind::Limit,
            format!("more than {} functions and items wait at the same time", self.limits.fibers),
        ))
    }

    /// Something that may hold other containers goes into this one: it may come to hold itself.
    pub(crate) fn track_list(&mut self, list: &Rc<List>) {
        if !list.marks.tracked.replace(true) {
            self.tracked.push(Tracked::List(Rc::downgrade(list)));
        }
    }

    pub(crate) fn track_dict(&mut self, dict: &Rc<Dict>) {
        if !dict.marks.tracked.replace(true) {
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
