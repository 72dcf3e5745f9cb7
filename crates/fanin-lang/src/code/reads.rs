//! Which registers an operation reads.

use arcstr::ArcStr;

use super::function::{CallInfo, ClosureInfo, Piece, Target};
use super::operation::{Op, Reg};

impl Op {
    /// Calls `visit` for each register that the operation reads.
    pub(crate) fn reads(&self, code: &CodeTables<'_>, visit: &mut dyn FnMut(Reg)) {
        let mut range = |base: Reg, count: u16| (base..base + count).for_each(&mut *visit);
        match *self {
            Self::Const { .. }
            | Self::Int { .. }
            | Self::None { .. }
            | Self::Bool { .. }
            | Self::Global { .. }
            | Self::NewCell { .. }
            | Self::Jump { .. }
            | Self::Forget { .. }
            | Self::Item { .. }
            | Self::Pass { .. }
            | Self::Begin { .. } => {}
            Self::Move { src, .. }
            | Self::SetGlobal { src, .. }
            | Self::Check { src, .. }
            | Self::Not { src, .. }
            | Self::Negate { src, .. }
            | Self::Plus { src, .. }
            | Self::Invert { src, .. }
            | Self::Return { src }
            | Self::Await { src }
            | Self::TypeNow { src, .. }
            | Self::TypeWait { src, .. }
            | Self::Iter { src, .. }
            | Self::Unpack { src, .. } => visit(src),
            Self::LoadCell { cell, .. } => visit(cell),
            Self::StoreCell { cell, src } => {
                visit(cell);
                visit(src);
            }
            Self::Binary { a, b, .. }
            | Self::InPlace { a, b, .. }
            | Self::Equal { a, b, .. }
            | Self::Compare { a, b, .. }
            | Self::In { a, b, .. } => {
                visit(a);
                visit(b);
            }
            Self::BinaryInt { a, .. } => visit(a),
            Self::JumpIf { cond, .. } | Self::JumpIfNot { cond, .. } => visit(cond),
            Self::Index { of, key, .. } => {
                visit(of);
                visit(key);
            }
            Self::Key { of, .. } | Self::Attribute { of, .. } => visit(of),
            Self::SetIndex { of, key, value } => {
                visit(of);
                visit(key);
                visit(value);
            }
            Self::Slice { of, base, .. } => {
                range(base, 3);
                visit(of);
            }
            Self::List { base, count, .. } | Self::Tuple { base, count, .. } => range(base, count),
            Self::Dict { base, pairs, .. } => range(base, pairs * 2),
            Self::Record { shape, base, .. } => range(base, code.shapes[usize::from(shape)].len() as u16),
            Self::Format { format, base, .. } => {
                let count = code.formats[usize::from(format)]
                    .iter()
                    .filter(|piece| matches!(piece, Piece::Str(_) | Piece::Repr(_)))
                    .count();
                range(base, count as u16);
            }
            Self::Call { call, .. } => {
                let call = &code.calls[usize::from(call)];
                range(call.base, call.positional + call.names.len() as u16);
                match &call.target {
                    Target::Value(reg) | Target::Method { of: reg, .. } => visit(*reg),
                    Target::Global(_) | Target::Known(_) | Target::Native(_) | Target::Host { .. } => {}
                }
                call.star.iter().chain(&call.star_star).for_each(|reg| visit(*reg));
            }
            Self::Closure { closure, .. } => {
                let closure = &code.closures[usize::from(closure)];
                range(closure.defaults, closure.default_count);
                closure.captures.iter().for_each(|reg| visit(*reg));
            }
            Self::Next { iter, .. } => visit(iter),
            Self::Push { acc, value } => {
                visit(acc);
                visit(value);
            }
            Self::PushPair { acc, key, value } => {
                visit(acc);
                visit(key);
                visit(value);
            }
            Self::End { acc, .. } => visit(acc),
        }
    }
}

/// The tables that [`Op::reads`] looks into.
pub(crate) struct CodeTables<'a> {
    pub(crate) calls: &'a [CallInfo],
    pub(crate) closures: &'a [ClosureInfo],
    pub(crate) shapes: &'a [Box<[ArcStr]>],
    pub(crate) formats: &'a [Box<[Piece]>],
}
