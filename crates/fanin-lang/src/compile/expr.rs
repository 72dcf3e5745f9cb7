//! Expressions.

use arcstr::ArcStr;
use starlark_syntax::codemap::Spanned;
use starlark_syntax::dot_format_parser::{FormatConv, FormatParser, FormatToken};
use starlark_syntax::lexer::TokenInt;
use starlark_syntax::syntax::ast::{AstExpr, AstFString, AstLiteral, AstStmt, BinOp, Expr, Stmt};

use super::builder::Var;
use super::{Compiler, span_of};
use crate::code::{Binary, Comparison, Op, Piece, Reg};
use crate::intern::intern;
use crate::python_names;
use crate::suggest;
use crate::value::{FrozenValue, number};

/// What a name denotes.
pub(super) enum Place {
    Local(Var),
    Global { index: u32, known: Option<u32> },
    Known(FrozenValue),
    Unknown,
}

impl Compiler<'_> {
    pub(super) fn place(&mut self, name: &str) -> Place {
        let fun = self.fun();
        if let Some(var) = fun.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Place::Local(var.clone());
        }
        if let Some(var) = fun.vars.get(name) {
            return Place::Local(var.clone());
        }
        if let Some(global) = self.globals.get(name) {
            return Place::Global { index: global.index, known: global.known };
        }
        if let Some(value) = self.loaded.get(name) {
            return Place::Known(value.clone());
        }
        if self.opaque.contains(name) {
            return Place::Global { index: 0, known: None };
        }
        match self.builtins.names.get(name) {
            Some(value) => Place::Known(value.clone()),
            None => Place::Unknown,
        }
    }

    /// The builtin that a name denotes, if nothing in the file hides it.
    pub(super) fn builtin(&mut self, name: &str) -> Option<&'static crate::native::NativeFn> {
        match self.place(name) {
            Place::Known(FrozenValue::Native(native)) if !self.loaded.contains_key(name) => Some(native),
            _ => None,
        }
    }

    /// The register that holds the value of an expression: a variable's own, or a new temporary.
    pub(super) fn expr(&mut self, expr: &AstExpr) -> Reg {
        if let Expr::Identifier(ident) = &expr.node {
            return self.read_name(&ident.node.ident, span_of(expr.span));
        }
        let dst = self.fun().temp();
        self.expr_to(expr, dst);
        dst
    }

    pub(super) fn read_name(&mut self, name: &str, span: (u32, u32)) -> Reg {
        self.fun().span = span;
        match self.place(name) {
            Place::Local(var) => {
                let mut reg = var.reg;
                if var.cell {
                    reg = self.fun().temp();
                    self.fun().emit(Op::LoadCell { dst: reg, cell: var.reg });
                }
                if (var.check || var.cell) && !self.fun().assigned.contains(name) {
                    let key = self.fun().key(name);
                    self.fun().emit(Op::Check { src: reg, key });
                }
                reg
            }
            _ => {
                let dst = self.fun().temp();
                self.name_to(name, span, dst);
                dst
            }
        }
    }

    fn name_to(&mut self, name: &str, span: (u32, u32), dst: Reg) {
        self.fun().span = span;
        match self.place(name) {
            Place::Local(_) => {
                let src = self.read_name(name, span);
                self.fun().emit(Op::Move { dst, src });
            }
            Place::Global { index, .. } => {
                self.fun().emit(Op::Global { dst, index });
            }
            Place::Known(value) => self.constant_to(value, dst),
            Place::Unknown => self.unknown(name, span),
        }
    }

    fn constant_to(&mut self, value: FrozenValue, dst: Reg) {
        let fun = self.fun();
        let op = match value {
            FrozenValue::None => Op::None { dst },
            FrozenValue::Bool(value) => Op::Bool { dst, value },
            FrozenValue::Int(value) if i32::try_from(value).is_ok() => Op::Int { dst, value: value as i32 },
            value => Op::Const { dst, k: fun.constant(value) },
        };
        fun.emit(op);
    }

    pub(super) fn unknown(&mut self, name: &str, span: (u32, u32)) {
        let mut names: Vec<String> = Vec::new();
        for fun in &self.fns {
            names.extend(fun.vars.keys().cloned());
            names.extend(fun.scopes.iter().flat_map(|scope| scope.keys().cloned()));
        }
        names.extend(self.globals.keys().cloned());
        names.extend(self.loaded.keys().cloned());
        names.extend(self.builtins.names.keys().map(ToString::to_string));
        names.sort();
        // A name of Python's is hardly a misspelt one of the flow's.
        let hint =
            python_names::instead_of_name(name).map(|instead| format!("write instead: {instead}")).or_else(|| {
                suggest::nearest(name, names.iter().map(String::as_str)).map(|near| format!("did you mean {near}?"))
            });
        self.error_hint(span, format!("the name {name} is not defined"), hint);
    }

    /// Puts the value of an expression into a register. The register is written last, so it may be a
    /// variable that the expression reads.
    pub(super) fn expr_to(&mut self, expr: &AstExpr, dst: Reg) {
        let mark = self.fun().mark();
        let span = span_of(expr.span);
        self.fun().span = span;
        match &expr.node {
            Expr::Identifier(ident) => self.name_to(&ident.node.ident, span, dst),
            Expr::Literal(literal) => self.literal(literal, span, dst),
            Expr::Tuple(all) => {
                let base = self.row(all);
                self.fun().span = span;
                self.fun().emit(Op::Tuple { dst, base, count: all.len() as u16 });
            }
            Expr::List(all) => {
                let base = self.row(all);
                self.fun().span = span;
                self.fun().emit(Op::List { dst, base, count: all.len() as u16 });
            }
            Expr::Dict(pairs) => self.dict(pairs, span, dst),
            Expr::Dot(of, field) => {
                let of = self.expr(of);
                let key = self.fun().key(&field.node);
                self.fun().span = span_of(field.span);
                self.fun().emit(Op::Attribute { dst, of, key });
            }
            Expr::Call(callee, args) => self.call(callee, &args.args, span, dst),
            Expr::Index(both) => {
                let of = self.expr(&both.0);
                if let Expr::Literal(AstLiteral::String(text)) = &both.1.node {
                    let key = self.fun().key(&text.node);
                    self.fun().span = span;
                    self.fun().emit(Op::Key { dst, of, key });
                } else {
                    let key = self.expr(&both.1);
                    self.fun().span = span;
                    self.fun().emit(Op::Index { dst, of, key });
                }
            }
            Expr::Index2(_) => self.error(span, "an index with a comma is not Starlark"),
            Expr::Slice(of, start, stop, step) => {
                let of = self.expr(of);
                let base = self.fun().temp_run(3);
                for (at, part) in [start, stop, step].into_iter().enumerate() {
                    match part {
                        Some(part) => self.expr_to(part, base + at as u16),
                        None => {
                            self.fun().emit(Op::None { dst: base + at as u16 });
                        }
                    }
                }
                self.fun().span = span;
                self.fun().emit(Op::Slice { dst, of, base });
            }
            Expr::Lambda(lambda) => {
                let code = self.reserve();
                let body: AstStmt =
                    Spanned { span: lambda.body.span, node: Stmt::Return(Some((*lambda.body).clone())) };
                let made = self.function(code, "lambda", &lambda.params, None, &body, span);
                self.fun().emit(Op::Move { dst, src: made });
            }
            Expr::Not(of) => {
                let src = self.expr(of);
                self.fun().span = span;
                self.fun().emit(Op::Not { dst, src });
            }
            Expr::Minus(of) => {
                if let Expr::Literal(AstLiteral::Int(int)) = &of.node
                    && let TokenInt::I32(value) = &int.node
                    && let Some(value) = value.checked_neg()
                {
                    self.fun().emit(Op::Int { dst, value });
                    return;
                }
                let src = self.expr(of);
                self.fun().span = span;
                self.fun().emit(Op::Negate { dst, src });
            }
            Expr::Plus(of) => {
                let src = self.expr(of);
                self.fun().span = span;
                self.fun().emit(Op::Plus { dst, src });
            }
            Expr::BitNot(of) => {
                let src = self.expr(of);
                self.fun().span = span;
                self.fun().emit(Op::Invert { dst, src });
            }
            Expr::Op(left, op, right) => self.operator(left, *op, right, span, dst),
            Expr::If(parts) => {
                let (cond, yes, no) = &**parts;
                let to = self.own_temp(dst);
                let skip = self.jump_unless(cond);
                self.expr_to(yes, to);
                let end = self.fun().emit(Op::Jump { to: 0 });
                self.land_all(&skip);
                self.expr_to(no, to);
                self.fun().land(end);
                self.move_to(dst, to);
            }
            Expr::ListComprehension(element, first, rest) => {
                self.comprehension(expr, super::comprehension::Element::One(element), first, rest, dst);
            }
            Expr::DictComprehension(pair, first, rest) => {
                self.comprehension(expr, super::comprehension::Element::Pair(&pair.0, &pair.1), first, rest, dst);
            }
            Expr::FString(format) => self.format(format, span, dst),
        }
        self.fun().release(mark);
    }

    /// A temporary to build a value in step by step, if `dst` is a variable that the steps may read.
    fn own_temp(&mut self, dst: Reg) -> Reg {
        if dst < self.fun().temps { self.fun().temp() } else { dst }
    }

    fn move_to(&mut self, dst: Reg, src: Reg) {
        if dst != src {
            self.fun().emit(Op::Move { dst, src });
        }
    }

    /// Values of expressions in registers in a row.
    pub(super) fn row(&mut self, all: &[AstExpr]) -> Reg {
        let base = self.fun().temp_run(all.len());
        for (at, one) in all.iter().enumerate() {
            self.expr_to(one, base + at as u16);
        }
        base
    }

    fn literal(&mut self, literal: &AstLiteral, span: (u32, u32), dst: Reg) {
        let value = match literal {
            AstLiteral::Int(int) => match &int.node {
                TokenInt::I32(value) => FrozenValue::Int(i64::from(*value)),
                TokenInt::BigInt(big) => match big.to_string().parse::<num_bigint::BigInt>().map(number::normal) {
                    Ok(crate::value::Value::Int(value)) => FrozenValue::Int(value),
                    Ok(crate::value::Value::BigInt(value)) => FrozenValue::BigInt(value),
                    _ => FrozenValue::None,
                },
            },
            AstLiteral::Float(float) => FrozenValue::Float(float.node),
            AstLiteral::String(text) => FrozenValue::Str(intern(&text.node)),
            AstLiteral::Bytes(bytes) => FrozenValue::Bytes(std::sync::Arc::new(bytes.node.clone())),
            AstLiteral::Ellipsis => {
                self.error(span, "`...` is no value");
                return;
            }
        };
        self.constant_to(value, dst);
    }

    fn dict(&mut self, pairs: &[(AstExpr, AstExpr)], span: (u32, u32), dst: Reg) {
        let mut keys: Vec<ArcStr> = Vec::with_capacity(pairs.len());
        for (key, _) in pairs {
            if let Expr::Literal(AstLiteral::String(text)) = &key.node {
                if keys.iter().any(|other| other.as_str() == text.node) {
                    self.error(span_of(key.span), format!("the key {:?} stands here a second time", text.node));
                }
                keys.push(intern(&text.node));
            }
        }
        if keys.len() == pairs.len() && !pairs.is_empty() {
            let base = self.fun().temp_run(pairs.len());
            for (at, (_, value)) in pairs.iter().enumerate() {
                self.expr_to(value, base + at as u16);
            }
            let fun = self.fun();
            fun.span = span;
            let shape = fun.table(fun.shapes.len());
            fun.shapes.push(keys.into_boxed_slice());
            fun.emit(Op::Record { dst, shape, base });
            return;
        }
        let base = self.fun().temp_run(pairs.len() * 2);
        for (at, (key, value)) in pairs.iter().enumerate() {
            self.expr_to(key, base + 2 * at as u16);
            self.expr_to(value, base + 2 * at as u16 + 1);
        }
        self.fun().span = span;
        self.fun().emit(Op::Dict { dst, base, pairs: pairs.len() as u16 });
    }

    /// Evaluates a condition and gives the jumps that are taken if it does not hold.
    pub(super) fn jump_unless(&mut self, cond: &AstExpr) -> Vec<usize> {
        let mark = self.fun().mark();
        let jumps = match &cond.node {
            Expr::Op(left, BinOp::And, right) => {
                let mut jumps = self.jump_unless(left);
                jumps.extend(self.jump_unless(right));
                jumps
            }
            Expr::Not(inner) if !matches!(inner.node, Expr::Op(_, BinOp::And | BinOp::Or, _)) => {
                let reg = self.expr(inner);
                self.fun().span = span_of(cond.span);
                vec![self.fun().emit(Op::JumpIf { cond: reg, to: 0 })]
            }
            _ => {
                let reg = self.expr(cond);
                self.fun().span = span_of(cond.span);
                vec![self.fun().emit(Op::JumpIfNot { cond: reg, to: 0 })]
            }
        };
        self.fun().release(mark);
        jumps
    }

    pub(super) fn land_all(&mut self, jumps: &[usize]) {
        for at in jumps {
            self.fun().land(*at);
        }
    }

    fn operator(&mut self, left: &AstExpr, op: BinOp, right: &AstExpr, span: (u32, u32), dst: Reg) {
        if matches!(op, BinOp::And | BinOp::Or) {
            let to = self.own_temp(dst);
            self.expr_to(left, to);
            self.fun().span = span_of(left.span);
            let skip = if op == BinOp::And {
                self.fun().emit(Op::JumpIfNot { cond: to, to: 0 })
            } else {
                self.fun().emit(Op::JumpIf { cond: to, to: 0 })
            };
            self.expr_to(right, to);
            self.fun().land(skip);
            self.move_to(dst, to);
            return;
        }
        let a = self.expr(left);
        if let (Some(op), Expr::Literal(AstLiteral::Int(int))) = (binary_of(op), &right.node)
            && let TokenInt::I32(value) = &int.node
            && let Ok(value) = i16::try_from(*value)
        {
            self.fun().span = span;
            self.fun().emit(Op::BinaryInt { op, dst, a, value });
            return;
        }
        let b = self.expr(right);
        let compare = |op| Op::Compare { op, dst, a, b };
        let op = match op {
            BinOp::Equal => Op::Equal { dst, a, b, not: false },
            BinOp::NotEqual => Op::Equal { dst, a, b, not: true },
            BinOp::Less => compare(Comparison::Less),
            BinOp::Greater => compare(Comparison::Greater),
            BinOp::LessOrEqual => compare(Comparison::LessEqual),
            BinOp::GreaterOrEqual => compare(Comparison::GreaterEqual),
            BinOp::In => Op::In { dst, a, b, not: false },
            BinOp::NotIn => Op::In { dst, a, b, not: true },
            other => match binary_of(other) {
                Some(op) => Op::Binary { op, dst, a, b },
                // `and` and `or` were handled above.
                None => return,
            },
        };
        self.fun().span = span;
        self.fun().emit(op);
    }

    fn format(&mut self, format: &AstFString, span: (u32, u32), dst: Reg) {
        let mut pieces = Vec::new();
        let mut count = 0_u16;
        let mut text = String::new();
        let mut parser = FormatParser::new(&format.node.format.node);
        loop {
            match parser.next() {
                Ok(None) => break,
                Ok(Some(FormatToken::Text(part))) => text.push_str(part),
                Ok(Some(FormatToken::Escape(brace))) => text.push_str(brace.as_str()),
                Ok(Some(FormatToken::Capture { conv, .. })) => {
                    if !text.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut text)));
                    }
                    pieces.push(match conv {
                        FormatConv::Str => Piece::Str(count),
                        FormatConv::Repr => Piece::Repr(count),
                    });
                    count += 1;
                }
                Err(error) => {
                    self.error(span, error.to_string());
                    return;
                }
            }
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        let base = self.row(&format.node.expressions);
        let fun = self.fun();
        fun.span = span;
        let format = fun.table(fun.formats.len());
        fun.formats.push(pieces.into_boxed_slice());
        fun.emit(Op::Format { dst, format, base });
    }
}

/// The arithmetic operator, if it is one.
fn binary_of(op: BinOp) -> Option<Binary> {
    Some(match op {
        BinOp::Subtract => Binary::Subtract,
        BinOp::Add => Binary::Add,
        BinOp::Multiply => Binary::Multiply,
        BinOp::Percent => Binary::Modulo,
        BinOp::Divide => Binary::Divide,
        BinOp::FloorDivide => Binary::FloorDivide,
        BinOp::BitAnd => Binary::And,
        BinOp::BitOr => Binary::Or,
        BinOp::BitXor => Binary::Xor,
        BinOp::LeftShift => Binary::Left,
        BinOp::RightShift => Binary::Right,
        _ => return None,
    })
}
