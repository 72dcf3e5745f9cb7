//! The virtual machine: runs compiled functions, suspends what must wait, keeps failures in program order.
//!
//! A *fiber* is a stack of frames. An instance starts with one, the root. Others come into being only
//! when pure code must wait: a function whose caller continues (`suspend`), or one item of a
//! comprehension. One fiber runs at a time, with its frames on the [`Machine`]'s stack. A suspended one
//! is a few boxes of exact size. A call in a program never recurses in Rust.
//!
//! - `instance`, `state`: one execution; its fibers, its result, its first failure;
//! - `run`: the loop over the frames of one fiber; `dispatch`: the operations of one frame;
//! - `context`: what operations work with; `registers`, `charge`: helpers of all operations;
//! - `ops`, `arithmetic`, `index`, `build`, `call`, `args`: the operations by subject;
//! - `fiber`, `suspend`, `borrow`: suspending, resuming, and what a suspended fiber can see;
//! - `traceback`, `none_provenance`: positions and hints of failures.

mod args;
mod arithmetic;
mod borrow;
mod build;
mod call;
mod charge;
mod context;
mod dispatch;
mod fiber;
mod index;
mod instance;
mod none_provenance;
pub(crate) mod ops;
mod registers;
mod run;
mod state;
mod suspend;
mod traceback;

use std::cell::RefCell;

pub use instance::{Instance, Run};
pub use ops::truth;
pub(crate) use registers::push_copy;

use crate::meter;
use crate::value::Value;

/// A frame of a function: plain data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) code: u32,
    /// The next operation. For frames below the top one the call is the operation before it.
    pub(crate) pc: u32,
    /// Its first register on the stack.
    pub(crate) base: u32,
    /// Register of the frame below that the result goes to.
    pub(crate) dst: u16,
}

/// The stack on which fibers run. One per worker, for all its instances.
#[derive(Debug, Default)]
pub struct Machine {
    pub(crate) regs: Vec<Value>,
    pub(crate) frames: Vec<Frame>,
    /// A root that has ended, for the next.
    spare: Option<Box<fiber::Fiber>>,
    /// Buffer for building strings, shared by the instances that run on this machine.
    scratch: meter::Scratch,
}

impl Machine {
    /// An empty stack.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// The variables of a module whose top level runs.
#[derive(Debug, Default)]
pub(crate) struct Building {
    first: u32,
    values: RefCell<Vec<Value>>,
}

impl Building {
    pub(crate) fn new(first: u32, count: usize) -> Self {
        Self { first, values: RefCell::new(vec![Value::UNBOUND; count]) }
    }

    fn get(&self, index: u32) -> Option<Value> {
        let at = index.checked_sub(self.first)?;
        self.values.borrow().get(at as usize).cloned()
    }

    fn set(&self, index: u32, value: Value) {
        if let Some(at) = index.checked_sub(self.first)
            && let Some(place) = self.values.borrow_mut().get_mut(at as usize)
        {
            *place = value;
        }
    }

    pub(crate) fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.values.borrow_mut())
    }
}
