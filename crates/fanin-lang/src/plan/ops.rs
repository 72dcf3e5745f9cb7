//! What each operation waits for and gives.

use std::rc::Rc;

use super::heap::Object;
use super::interpreter::{Frame, Interpreter};
use super::state::State;
use super::value::{AbstractValue, FunctionValue, MOST_ITEMS, Shape};
use crate::code::{Binary, ItemInfo, Op, Piece, Reg};
use crate::value::{Frozen, FrozenValue};

/// Whether a module's value holds one of the host's objects.
fn holds_host(value: &FrozenValue) -> bool {
    match value {
        FrozenValue::Host(_) => true,
        FrozenValue::Frozen(frozen) => match &**frozen {
            Frozen::List(items) => items.iter().any(holds_host),
            Frozen::Tuple(items) => items.iter().any(holds_host),
            Frozen::Dict(map) => map.entries().iter().any(|(_, value)| holds_host(value)),
            Frozen::Struct(fields) => fields.iter().any(|(_, value)| holds_host(value)),
            _ => false,
        },
        _ => false,
    }
}

impl Interpreter<'_> {
    /// A module's value.
    pub(super) fn frozen(&mut self, state: &mut State, value: &FrozenValue) -> AbstractValue {
        let shape = match value {
            FrozenValue::Str(text) => Shape::Text(text.clone()),
            FrozenValue::Int(int) => Shape::Int(*int),
            FrozenValue::Bool(value) => Shape::Bool(*value),
            FrozenValue::Host(object) => Shape::Host(vec![object.clone()]),
            FrozenValue::Native(native) => Shape::Native(native),
            FrozenValue::Frozen(frozen) => match &**frozen {
                Frozen::Function(function) => {
                    let defaults = function.defaults.iter().map(|one| self.frozen(state, one)).collect();
                    let captured = function.captured.iter().map(|one| self.frozen(state, one)).collect();
                    Shape::Function(Rc::new(FunctionValue { code: function.code, defaults, captured }))
                }
                Frozen::List(items) if items.len() <= MOST_ITEMS => {
                    let items = items.iter().map(|one| self.frozen(state, one)).collect();
                    return self.make(state, Object::new(Some(items), None));
                }
                Frozen::Tuple(items) if items.len() <= MOST_ITEMS => {
                    let items = items.iter().map(|one| self.frozen(state, one)).collect();
                    return self.make(state, Object::new(Some(items), None));
                }
                _ if holds_host(value) => Shape::Blurred,
                _ => Shape::Unknown,
            },
            _ => Shape::Unknown,
        };
        AbstractValue::plain(shape)
    }

    /// An operation that control passes on to the next from. `None` if it always fails.
    #[allow(clippy::too_many_lines, reason = "one arm for each operation")]
    pub(super) fn operation(&mut self, frame: &mut Frame<'_>, mut state: State, pc: usize, op: Op) -> Option<State> {
        let code = frame.code;
        macro_rules! r {
            ($reg:expr) => {
                state.regs[usize::from($reg)]
            };
        }
        let row = |state: &State, base: Reg, count: usize| -> Vec<AbstractValue> {
            state.regs[usize::from(base)..usize::from(base) + count].to_vec()
        };
        match op {
            Op::Const { dst, k } => r!(dst) = self.frozen(&mut state, &code.consts[usize::from(k)]),
            Op::Int { dst, value } => r!(dst) = AbstractValue::plain(Shape::Int(i64::from(value))),
            Op::None { dst } => r!(dst) = AbstractValue::plain(Shape::Unknown),
            Op::Bool { dst, value } => r!(dst) = AbstractValue::plain(Shape::Bool(value)),
            Op::Move { dst, src } => r!(dst) = r!(src).clone(),
            Op::Global { dst, index } => {
                r!(dst) = match self.program.globals.get(index as usize) {
                    Some(value) => self.frozen(&mut state, value),
                    None => AbstractValue::plain(Shape::Unknown),
                }
            }
            Op::SetGlobal { .. } | Op::Check { .. } | Op::Forget { .. } | Op::Pass { .. } => {}
            Op::NewCell { dst } => r!(dst) = self.make(&mut state, Object::new(None, None)),
            Op::LoadCell { dst, cell } => {
                let cell = r!(cell).clone();
                r!(dst) = match &cell.shape {
                    Shape::Object(ids) => {
                        let mut value = AbstractValue::plain(Shape::Nothing);
                        ids.iter().filter_map(|id| state.heap.get(id)).for_each(|cell| value.join(&cell.element));
                        value
                    }
                    _ => cell,
                };
            }
            Op::StoreCell { cell, src } => {
                let value = r!(src).clone();
                if let Shape::Object(ids) = &r!(cell).shape.clone() {
                    for id in ids.iter() {
                        if let Some(cell) = state.heap.get_mut(id) {
                            cell.element.join(&value);
                        }
                    }
                }
            }
            Op::Binary { op, dst, a, b } | Op::InPlace { op, dst, a, b } => {
                let in_place = matches!(code.ops[pc], Op::InPlace { .. });
                self.decide(frame, &mut state, pc, a);
                if op == Binary::Modulo {
                    self.decide_all(frame, &mut state, pc, b);
                } else {
                    self.decide(frame, &mut state, pc, b);
                }
                let (left, right) = (r!(a).clone(), r!(b).clone());
                if in_place && !left.refs.is_empty() {
                    let added = state.elements(&right).1;
                    self.change(frame, &mut state, pc, &left, &[added], false);
                }
                if let (true, Shape::Object(_)) = (in_place, &left.shape) {
                    r!(dst) = left;
                } else {
                    let mut sum = AbstractValue::plain(Shape::Unknown);
                    sum.whole = state.whole(&left);
                    sum.whole.max(&state.whole(&right));
                    sum.origins = state.all_origins(&left);
                    sum.origins.extend(&state.all_origins(&right));
                    sum.refs.clone_from(&left.refs);
                    sum.refs.extend(&right.refs);
                    r!(dst) = sum;
                }
            }
            Op::BinaryInt { dst, a, .. } => {
                self.decide(frame, &mut state, pc, a);
                r!(dst) = AbstractValue { whole: state.whole(&r!(a)), ..AbstractValue::plain(Shape::Unknown) };
            }
            Op::Compare { dst, a, b, .. } | Op::Equal { dst, a, b, .. } => {
                self.decide_all(frame, &mut state, pc, a);
                self.decide_all(frame, &mut state, pc, b);
                r!(dst) = AbstractValue::plain(Shape::Unknown);
            }
            Op::In { dst, a, b, .. } => {
                self.decide_all(frame, &mut state, pc, a);
                self.decide_all(frame, &mut state, pc, b);
                r!(dst) = AbstractValue::plain(Shape::Unknown);
            }
            Op::Not { dst, src } => {
                self.decide(frame, &mut state, pc, src);
                let shape = match r!(src).shape {
                    Shape::Bool(value) => Shape::Bool(!value),
                    _ => Shape::Unknown,
                };
                r!(dst) = AbstractValue::plain(shape);
            }
            Op::Negate { dst, src } | Op::Plus { dst, src } | Op::Invert { dst, src } => {
                self.decide(frame, &mut state, pc, src);
                r!(dst) = AbstractValue::plain(Shape::Unknown);
            }
            Op::Index { dst, of, key } => {
                self.decide(frame, &mut state, pc, key);
                r!(dst) = state.part(&r!(of), Some(&r!(key).shape));
            }
            Op::Key { dst, of, key } => {
                let key = Shape::Text(code.keys[usize::from(key)].clone());
                r!(dst) = state.part(&r!(of), Some(&key));
            }
            Op::SetIndex { of, key, value } => {
                self.decide(frame, &mut state, pc, of);
                self.decide(frame, &mut state, pc, key);
                let (of, value) = (r!(of).clone(), r!(value).clone());
                self.change(frame, &mut state, pc, &of, &[value], false);
            }
            Op::Slice { dst, of, base } => {
                self.decide(frame, &mut state, pc, of);
                (base..base + 3).for_each(|reg| self.decide(frame, &mut state, pc, reg));
                let element = state.elements(&r!(of)).1;
                r!(dst) = self.make(&mut state, Object { element, ..Object::new(None, None) });
            }
            Op::Attribute { dst, of, .. } => {
                self.decide(frame, &mut state, pc, of);
                let of = r!(of).clone();
                let mut found = AbstractValue::plain(Shape::Unknown);
                found.whole = state.whole(&of);
                found.there.clone_from(&found.whole);
                found.origins = state.all_origins(&of);
                if state.may_hold_host(&of) {
                    found.shape = Shape::Blurred;
                }
                found.refs = of.refs;
                r!(dst) = found;
            }
            Op::List { dst, base, count } | Op::Tuple { dst, base, count } => {
                let items = row(&state, base, usize::from(count));
                r!(dst) = self.make(&mut state, Object::new(Some(items), None));
            }
            Op::Dict { dst, base, pairs } => {
                let all = row(&state, base, usize::from(pairs) * 2);
                for at in 0..pairs {
                    self.decide(frame, &mut state, pc, base + 2 * at);
                }
                let mut object = Object::new(None, None);
                all.iter().for_each(|one| object.element.join(one));
                r!(dst) = self.make(&mut state, object);
            }
            Op::Record { dst, shape, base } => {
                let keys = &code.shapes[usize::from(shape)];
                let items = row(&state, base, keys.len());
                let keys = Some(keys.to_vec().into());
                r!(dst) = self.make(&mut state, Object::new(Some(items), keys));
            }
            Op::Format { dst, format, base } => {
                let mut text = String::new();
                for piece in &code.formats[usize::from(format)] {
                    match piece {
                        Piece::Text(part) => text.push_str(part),
                        Piece::Str(at) | Piece::Repr(at) => {
                            self.decide_all(frame, &mut state, pc, base + at);
                            text.push_str("{}");
                        }
                    }
                }
                r!(dst) = AbstractValue::plain(Shape::Text(text.into()));
            }
            Op::Call { dst, call } => {
                let value = self.call(frame, &mut state, pc, call)?;
                r!(dst) = value;
            }
            Op::Closure { dst, closure } => {
                let info = &code.closures[usize::from(closure)];
                let defaults = row(&state, info.defaults, usize::from(info.default_count));
                let captured = info.captures.iter().map(|reg| r!(*reg).clone()).collect();
                r!(dst) = AbstractValue::plain(Shape::Function(Rc::new(FunctionValue {
                    code: info.code,
                    defaults,
                    captured,
                })));
            }
            Op::TypeWait { src, .. } => self.decide_all(frame, &mut state, pc, src),
            Op::Await { src } => self.decide(frame, &mut state, pc, src),
            Op::Iter { dst, src } => {
                self.decide(frame, &mut state, pc, src);
                // An item that waits for what a loop within it goes through: how many elements it gives is not known before.
                let inside = |item: &&ItemInfo| (usize::from(item.start)..usize::from(item.end)).contains(&pc);
                let item = code.items.iter().filter(inside).max_by_key(|item| item.start);
                if let Some(item) = item.filter(|item| pc < usize::from(item.element))
                    && let Shape::Object(ids) = &r!(item.acc).shape.clone()
                {
                    let now = state.now.clone();
                    for id in ids.iter() {
                        if let Some(object) = state.heap.get_mut(id) {
                            object.there.max(&now);
                        }
                    }
                }
                let of = r!(src).clone();
                r!(dst) = AbstractValue { refs: of.refs.clone(), ..AbstractValue::plain(Shape::Iter(Box::new(of))) };
            }
            Op::Unpack { src, base, count } => {
                self.decide(frame, &mut state, pc, src);
                let (items, element) = (state.in_places(&r!(src)), state.elements(&r!(src)).1);
                for at in 0..usize::from(count) {
                    let item = items.as_ref().and_then(|items| items.get(at)).unwrap_or(&element);
                    state.regs[usize::from(base) + at] = item.clone();
                }
            }
            Op::Begin { acc } => r!(acc) = self.make(&mut state, Object::new(Some(Vec::new()), None)),
            Op::Push { acc, value } => {
                let mut value = r!(value).clone();
                // Whether an item gives an element is known from the start if nothing is decided before it, in its own loop and
                // in those around it up to the next one.
                let around = |item: &&ItemInfo| {
                    item.acc == acc && (usize::from(item.start)..usize::from(item.end)).contains(&pc)
                };
                let starts: Vec<usize> = code.items.iter().filter(around).map(|item| usize::from(item.start)).collect();
                let sure = code.items.iter().filter(around).all(|item| {
                    let start = usize::from(item.start);
                    let inner = starts.iter().copied().filter(|other| *other > start).min().unwrap_or(pc);
                    !code.ops[start..inner.min(usize::from(item.element)).max(start)]
                        .iter()
                        .any(|op| matches!(op, Op::JumpIf { .. } | Op::JumpIfNot { .. } | Op::Unpack { .. }))
                });
                // An item that has waited gives its element when it comes to its end.
                value.there.max(&state.now);
                value.origins.extend(&state.waited);
                let now = state.now.clone();
                if let Shape::Object(ids) = &r!(acc).shape.clone() {
                    for id in ids.iter() {
                        if let Some(object) = state.heap.get_mut(id) {
                            object.element.join(&value);
                            if !sure {
                                object.there.max(&now);
                            }
                            match &mut object.items {
                                Some(items) if items.len() < MOST_ITEMS => items.push(value.clone()),
                                items => *items = None,
                            }
                        }
                    }
                }
            }
            Op::PushPair { acc, key, value } => {
                self.decide(frame, &mut state, pc, key);
                let (value, now) = (r!(value).clone(), state.now.clone());
                if let Shape::Object(ids) = &r!(acc).shape.clone() {
                    for object in ids.iter() {
                        if let Some(object) = state.heap.get_mut(object) {
                            object.element.join(&value);
                            object.there.max(&now);
                            object.items = None;
                        }
                    }
                }
            }
            Op::End { dst, acc, .. } => {
                let mut whole = r!(acc).clone();
                if let Shape::Object(ids) = &whole.shape
                    && let Some(object) = ids.first().and_then(|id| state.heap.get(id))
                {
                    whole.origins.extend(&object.element.origins);
                    let (until, element) = (object.there.clone(), object.element.clone());
                    if until.exceeds(&state.now) {
                        // It waits for items that may give nothing, and holds what the others have given.
                        state.borrow([&element], &until, &element.origins);
                    }
                }
                r!(dst) = whole;
            }
            // Handled where control is.
            Op::Jump { .. }
            | Op::JumpIf { .. }
            | Op::JumpIfNot { .. }
            | Op::TypeNow { .. }
            | Op::Return { .. }
            | Op::Next { .. }
            | Op::Item { .. } => {}
        }
        Some(state)
    }
}
