//! The function builder: operations, registers and tables of a function being compiled.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;

use crate::code::{
    CallInfo, ClosureInfo, Code, CodeTables, ItemInfo, Op, Params, Piece, Point, PointKind, Reason, Reg,
};
use crate::intern::intern;
use crate::types::{Annotations, Type, TypeCheck};
use crate::value::FrozenValue;

/// A variable of the function.
#[derive(Debug, Clone)]
pub(super) struct Var {
    pub(super) reg: Reg,
    /// The register holds a cell shared with nested functions.
    pub(super) cell: bool,
    /// The function that it certainly holds.
    pub(super) known: Option<u32>,
    /// Whether it may be read before it has a value.
    pub(super) check: bool,
    /// Captured from the function around.
    pub(super) captured: bool,
}

/// What an operation may change, for the purity analysis.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// It may change something that the function did not make.
    Impure(String),
    /// It makes a call that changes something.
    Writes(String),
    /// It calls a function of the program.
    Calls(u32),
    /// It changes the container in this variable, which is harmless if the function made it.
    Changes { var: String, what: String },
}

pub(super) struct Loop {
    pub(super) start: u16,
    pub(super) breaks: Vec<usize>,
}

/// A function while it is being compiled.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) index: u32,
    pub(super) name: ArcStr,
    pub(super) ops: Vec<Op>,
    pub(super) spans: Vec<(u32, u32)>,
    pub(super) consts: Vec<FrozenValue>,
    pub(super) keys: Vec<ArcStr>,
    key_ids: HashMap<ArcStr, u16>,
    pub(super) calls: Vec<CallInfo>,
    pub(super) closures: Vec<ClosureInfo>,
    pub(super) shapes: Vec<Box<[ArcStr]>>,
    pub(super) formats: Vec<Box<[Piece]>>,
    pub(super) items: Vec<ItemInfo>,
    pub(super) params: Params,
    pub(super) types: Vec<TypeCheck>,
    pub(super) annotations: Option<Box<Annotations>>,
    pub(super) vars: HashMap<String, Var>,
    /// Names of comprehensions, innermost last.
    pub(super) scopes: Vec<HashMap<String, Var>>,
    pub(super) loops: Vec<Loop>,
    pub(super) events: Vec<(u16, Event)>,
    /// Variables that are assigned something that may be someone else's container.
    pub(super) foreign: HashSet<String>,
    /// Variables that certainly have a value here.
    pub(super) assigned: HashSet<String>,
    next: Reg,
    most: Reg,
    /// First register that is no variable's.
    pub(super) temps: Reg,
    pub(super) span: (u32, u32),
    /// The top level of a module: its variables are the module's.
    pub(super) top: bool,
    /// Something does not fit into the operations.
    pub(super) too_large: bool,
    points: Vec<Point>,
}

impl Builder {
    pub(super) fn new(index: u32, name: ArcStr) -> Self {
        Self { index, name, ..Self::default() }
    }

    pub(super) fn emit(&mut self, op: Op) -> usize {
        if self.ops.len() >= usize::from(u16::MAX) {
            self.too_large = true;
            return 0;
        }
        self.ops.push(op);
        self.spans.push(self.span);
        self.ops.len() - 1
    }

    /// Counts how often this place is passed.
    pub(super) fn count(&mut self, span: (u32, u32), kind: PointKind) {
        let point = self.table(self.points.len());
        self.points.push(Point::new(span, kind));
        self.emit(Op::Pass { point });
    }

    /// The place of the next operation.
    pub(super) fn here(&self) -> u16 {
        self.ops.len() as u16
    }

    /// Sends the jump at `at` to the next operation.
    pub(super) fn land(&mut self, at: usize) {
        let here = self.here();
        match self.ops.get_mut(at) {
            Some(
                Op::Jump { to }
                | Op::JumpIf { to, .. }
                | Op::JumpIfNot { to, .. }
                | Op::Next { to, .. }
                | Op::Item { to, .. }
                | Op::TypeNow { to, .. },
            ) => *to = here,
            _ => self.too_large = true,
        }
    }

    pub(super) fn temp(&mut self) -> Reg {
        self.temp_run(1)
    }

    /// Registers in a row; gives the first.
    pub(super) fn temp_run(&mut self, count: usize) -> Reg {
        let first = self.next;
        match u16::try_from(usize::from(first) + count) {
            Ok(next) if next < 60_000 => self.next = next,
            _ => self.too_large = true,
        }
        self.most = self.most.max(self.next);
        first
    }

    /// Where temporaries are now; give it back to [`release`](Self::release).
    pub(super) fn mark(&self) -> Reg {
        self.next
    }

    pub(super) fn release(&mut self, mark: Reg) {
        self.next = mark;
    }

    pub(super) fn constant(&mut self, value: FrozenValue) -> u16 {
        self.consts.push(value);
        u16::try_from(self.consts.len() - 1).unwrap_or_else(|_| {
            self.too_large = true;
            0
        })
    }

    pub(super) fn key(&mut self, text: &str) -> u16 {
        if let Some(id) = self.key_ids.get(text) {
            return *id;
        }
        let Ok(id) = u16::try_from(self.keys.len()) else {
            self.too_large = true;
            return 0;
        };
        let text = intern(text);
        self.keys.push(text.clone());
        self.key_ids.insert(text, id);
        id
    }

    pub(super) fn event(&mut self, event: Event) {
        self.events.push((self.here(), event));
    }

    /// What it returns, if it says so.
    pub(super) fn returns(&self) -> Option<Type> {
        self.annotations.as_ref()?.returns.clone()
    }

    /// A table's next index.
    pub(super) fn table(&mut self, len: usize) -> u16 {
        u16::try_from(len).unwrap_or_else(|_| {
            self.too_large = true;
            0
        })
    }

    /// The function, its effects still to be worked out.
    pub(super) fn finish(mut self, file: u32) -> (Code, Vec<(u16, Event)>, HashSet<String>) {
        self.find_live_registers();
        let own = self
            .vars
            .iter()
            .filter(|(name, var)| !var.captured && !var.cell && !self.foreign.contains(*name))
            .map(|(_, var)| var.reg)
            .collect();
        let code = Code {
            name: self.name,
            file,
            ops: self.ops.into_boxed_slice(),
            spans: self.spans.into_boxed_slice(),
            consts: self.consts.into_boxed_slice(),
            keys: self.keys.into_boxed_slice(),
            calls: self.calls.into_boxed_slice(),
            closures: self.closures.into_boxed_slice(),
            shapes: self.shapes.into_boxed_slice(),
            formats: self.formats.into_boxed_slice(),
            items: self.items.into_boxed_slice(),
            params: self.params,
            types: self.types.into_boxed_slice(),
            annotations: self.annotations,
            registers: self.most,
            own,
            pure: false,
            writes: false,
            reasons: Vec::<Reason>::new(),
            points: self.points.into_boxed_slice(),
        };
        (code, self.events, self.foreign)
    }

    /// What an item of a comprehension reads is all that a fiber which runs only this item needs.
    fn find_live_registers(&mut self) {
        let tables =
            CodeTables { calls: &self.calls, closures: &self.closures, shapes: &self.shapes, formats: &self.formats };
        for item in &mut self.items {
            let mut live = std::collections::BTreeSet::new();
            for op in &self.ops[usize::from(item.start)..usize::from(item.end)] {
                op.reads(&tables, &mut |reg| {
                    live.insert(reg);
                });
            }
            live.remove(&item.acc);
            item.live = live.into_iter().collect();
        }
    }
}
