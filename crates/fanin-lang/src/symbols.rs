//! The names of a file for editors: where each is defined, where it is used, and what is known of it.

use std::collections::HashMap;

use arcstr::ArcStr;
use starlark_syntax::syntax::ast::{
    AssignTarget, AstExpr, AstLiteral, AstParameter, AstStmt, Clause, Expr, ForClause, Parameter, Stmt,
};

use crate::check::signature_line;
use crate::compile::{self, Broken, span_of};
use crate::native::Globals;
use crate::value::{FrozenValue, ValueKind};

/// A range of bytes.
pub type Span = (u32, u32);

/// What a name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SymbolKind {
    /// A function of the file or within one.
    Function,
    /// A parameter of a function.
    Parameter,
    /// A variable.
    Variable,
    /// Loaded from another file or module.
    Load {
        /// The module, as written.
        module: String,
        /// Its name there.
        name: String,
    },
}

/// A name that a file defines.
#[derive(Debug, Clone)]
pub struct Symbol {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: SymbolKind,
    /// Where it is defined.
    pub span: Span,
    /// Where it can be used.
    pub scope: Span,
    /// A function's name and parameters, as written.
    pub signature: Option<String>,
    /// A function's documentation.
    pub doc: Option<String>,
    /// Whether it is one of the file's own, which other files can load.
    pub top: bool,
}

/// A place where a name is written.
#[derive(Debug, Clone)]
pub struct Occurrence {
    /// The place, quotes left out.
    pub span: Span,
    /// The name.
    pub name: String,
    /// Its number in [`Symbols::symbols`]; `None` for a builtin, or what is not defined.
    pub symbol: Option<usize>,
    /// Whether it is the name in another file, which `load` gives.
    pub theirs: bool,
}

/// `object.name`, the object being a name.
#[derive(Debug, Clone)]
pub struct Member {
    /// The object's name.
    pub object: String,
    /// The object's number.
    pub symbol: Option<usize>,
    /// The attribute's or method's name.
    pub name: String,
    /// The place of that.
    pub span: Span,
}

/// The names of a file.
#[derive(Debug, Default)]
pub struct Symbols {
    /// All that it defines.
    pub symbols: Vec<Symbol>,
    /// All places of names.
    pub occurrences: Vec<Occurrence>,
    /// All places of attributes and methods of names.
    pub members: Vec<Member>,
    /// `load` statements: the module as written, and its place.
    pub loads: Vec<(String, Span)>,
}

impl Symbols {
    /// Reads a file. Statements of the top level that cannot be parsed are left out.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let parsed = match compile::parse_all(&ArcStr::from("file"), text) {
            Ok(parsed) => parsed,
            Err(broken) => {
                let Broken { rest: Some(rest), .. } = *broken else { return Self::default() };
                rest
            }
        };
        let mut walk = Walk { text, out: Self::default(), scopes: Vec::new() };
        walk.scopes.push(Scope { names: HashMap::new(), span: (0, u32::MAX) });
        walk.bind(parsed.top());
        walk.statement(parsed.top());
        walk.out.loads = parsed.loads().iter().map(|load| (load.module.clone(), load.span)).collect();
        walk.out
    }

    /// The name at a place, its end included.
    #[must_use]
    pub fn at(&self, offset: u32) -> Option<&Occurrence> {
        self.occurrences.iter().find(|one| one.span.0 <= offset && offset <= one.span.1)
    }

    /// The attribute or method at a place, its end included.
    #[must_use]
    pub fn member_at(&self, offset: u32) -> Option<&Member> {
        self.members.iter().find(|one| one.span.0 <= offset && offset <= one.span.1)
    }

    /// The names that can be used at a place, innermost last.
    pub fn visible(&self, offset: u32) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(move |symbol| symbol.scope.0 <= offset && offset <= symbol.scope.1)
    }

    /// The number of a name of the top level.
    #[must_use]
    pub fn top(&self, name: &str) -> Option<usize> {
        self.symbols.iter().position(|symbol| symbol.top && symbol.name == name)
    }
}

/// The builtin functions and values of a program's globals, each with its signature if known, in alphabetical order.
#[must_use]
pub fn builtins(globals: &Globals) -> Vec<(String, Option<String>)> {
    let mut found: Vec<(String, Option<String>)> = globals
        .names
        .iter()
        .map(|(name, value)| match value {
            FrozenValue::Native(native) => (name.to_string(), signature_line(native)),
            _ => (name.to_string(), None),
        })
        .collect();
    found.sort();
    found
}

/// The methods of strings, lists, dicts and sets.
#[must_use]
pub fn methods(globals: &Globals) -> Vec<&'static str> {
    let kinds = [ValueKind::Str, ValueKind::List, ValueKind::Dict, ValueKind::Set];
    let mut found: Vec<&'static str> = kinds.into_iter().flat_map(|kind| globals.method_names(kind)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether a text can be the name of a variable.
#[must_use]
pub fn is_name(text: &str) -> bool {
    starlark_syntax::lexer::lex_exactly_one_identifier(text).is_some()
}

struct Scope {
    names: HashMap<String, usize>,
    span: Span,
}

struct Walk<'a> {
    text: &'a str,
    out: Symbols,
    scopes: Vec<Scope>,
}

impl Walk<'_> {
    fn define(&mut self, name: &str, kind: SymbolKind, span: Span) -> usize {
        let top = self.scopes.len() == 1;
        // The scope of the module is there as long as the walk.
        let scope = self.scopes.last_mut().expect("a scope is open");
        if let Some(known) = scope.names.get(name) {
            return *known;
        }
        let number = self.out.symbols.len();
        scope.names.insert(name.to_owned(), number);
        let (scope, name) = (scope.span, name.to_owned());
        self.out.symbols.push(Symbol { name, kind, span, scope, signature: None, doc: None, top });
        number
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.scopes.iter().rev().find_map(|scope| scope.names.get(name)).copied()
    }

    fn note(&mut self, name: &str, span: Span) {
        let symbol = self.find(name);
        self.out.occurrences.push(Occurrence { span, name: name.to_owned(), symbol, theirs: false });
    }

    /// Defines the names that statements of this scope bind.
    fn bind(&mut self, stmt: &AstStmt) {
        match &stmt.node {
            Stmt::Assign(assign) => self.bind_target(&assign.lhs.node),
            Stmt::AssignModify(target, _, _) => self.bind_target(&target.node),
            Stmt::Def(def) => {
                let number = self.define(&def.name.node.ident, SymbolKind::Function, span_of(def.name.span));
                let slice = |span: Span| self.text.get(span.0 as usize..span.1 as usize).unwrap_or_default();
                let params: Vec<&str> = def.params.iter().map(|param| slice(span_of(param.span))).collect();
                let returns = def.return_type.as_ref().map(|ty| format!(" -> {}", slice(span_of(ty.span))));
                let signature =
                    format!("{}({}){}", def.name.node.ident, params.join(", "), returns.unwrap_or_default());
                let symbol = &mut self.out.symbols[number];
                symbol.signature = Some(signature);
                symbol.doc = doc(&def.body);
            }
            Stmt::For(all) => {
                self.bind_target(&all.var.node);
                self.bind(&all.body);
            }
            Stmt::Load(load) => {
                for arg in &load.args {
                    let kind = SymbolKind::Load { module: load.module.node.clone(), name: arg.their.node.clone() };
                    let span = unquoted(self.text, span_of(arg.local.span));
                    self.define(&arg.local.node.ident, kind, span);
                }
            }
            Stmt::If(_, body) => self.bind(body),
            Stmt::IfElse(_, both) => {
                self.bind(&both.0);
                self.bind(&both.1);
            }
            Stmt::Statements(all) => all.iter().for_each(|stmt| self.bind(stmt)),
            _ => {}
        }
    }

    fn bind_target(&mut self, target: &AssignTarget) {
        match target {
            AssignTarget::Tuple(all) => all.iter().for_each(|target| self.bind_target(&target.node)),
            AssignTarget::Identifier(ident) => {
                self.define(&ident.node.ident, SymbolKind::Variable, span_of(ident.span));
            }
            _ => {}
        }
    }

    fn target(&mut self, target: &AssignTarget) {
        match target {
            AssignTarget::Tuple(all) => all.iter().for_each(|target| self.target(&target.node)),
            AssignTarget::Identifier(ident) => self.note(&ident.node.ident, span_of(ident.span)),
            AssignTarget::Index(both) => {
                self.expr(&both.0);
                self.expr(&both.1);
            }
            AssignTarget::Dot(object, _) => self.expr(object),
        }
    }

    fn statement(&mut self, stmt: &AstStmt) {
        match &stmt.node {
            Stmt::Statements(all) => all.iter().for_each(|stmt| self.statement(stmt)),
            Stmt::Return(value) => value.iter().for_each(|expr| self.expr(expr)),
            Stmt::Expression(expr) => self.expr(expr),
            Stmt::Assign(assign) => {
                self.target(&assign.lhs.node);
                assign.ty.iter().for_each(|ty| self.expr(&ty.expr));
                self.expr(&assign.rhs);
            }
            Stmt::AssignModify(target, _, value) => {
                self.target(&target.node);
                self.expr(value);
            }
            Stmt::If(condition, body) => {
                self.expr(condition);
                self.statement(body);
            }
            Stmt::IfElse(condition, both) => {
                self.expr(condition);
                self.statement(&both.0);
                self.statement(&both.1);
            }
            Stmt::For(all) => {
                self.expr(&all.over);
                self.target(&all.var.node);
                self.statement(&all.body);
            }
            Stmt::Def(def) => {
                self.note(&def.name.node.ident, span_of(def.name.span));
                self.outside(&def.params);
                def.return_type.iter().for_each(|ty| self.expr(&ty.expr));
                self.inner(span_of(stmt.span), &def.params, |walk| {
                    walk.bind(&def.body);
                    walk.statement(&def.body);
                });
            }
            Stmt::Load(load) => {
                for arg in &load.args {
                    let (local, their) = (span_of(arg.local.span), span_of(arg.their.span));
                    let (local, their) = (unquoted(self.text, local), unquoted(self.text, their));
                    self.note(&arg.local.node.ident, local);
                    if local != their {
                        let symbol = self.find(&arg.local.node.ident);
                        let name = arg.their.node.clone();
                        self.out.occurrences.push(Occurrence { span: their, name, symbol, theirs: true });
                    }
                }
            }
            Stmt::Break | Stmt::Continue | Stmt::Pass => {}
        }
    }

    /// What parameters name outside of their function.
    fn outside(&mut self, params: &[AstParameter]) {
        for param in params {
            match &param.node {
                Parameter::Normal(_, ty, default) => {
                    ty.iter().for_each(|ty| self.expr(&ty.expr));
                    default.iter().for_each(|default| self.expr(default));
                }
                Parameter::Args(_, ty) | Parameter::KwArgs(_, ty) => ty.iter().for_each(|ty| self.expr(&ty.expr)),
                Parameter::NoArgs | Parameter::Slash => {}
            }
        }
    }

    /// A scope within, with its parameters.
    fn inner(&mut self, span: Span, params: &[AstParameter], body: impl FnOnce(&mut Self)) {
        self.scopes.push(Scope { names: HashMap::new(), span });
        for ident in params.iter().filter_map(|param| param.node.ident()) {
            self.define(&ident.node.ident, SymbolKind::Parameter, span_of(ident.span));
            self.note(&ident.node.ident, span_of(ident.span));
        }
        body(self);
        self.scopes.pop();
    }

    fn expr(&mut self, expr: &AstExpr) {
        match &expr.node {
            Expr::Identifier(ident) => self.note(&ident.node.ident, span_of(ident.span)),
            Expr::Dot(object, name) => {
                if let Expr::Identifier(ident) = &object.node {
                    self.out.members.push(Member {
                        object: ident.node.ident.clone(),
                        symbol: self.find(&ident.node.ident),
                        name: name.node.clone(),
                        span: span_of(name.span),
                    });
                }
                self.expr(object);
            }
            Expr::Lambda(lambda) => {
                self.outside(&lambda.params);
                self.inner(span_of(expr.span), &lambda.params, |walk| walk.expr(&lambda.body));
            }
            Expr::ListComprehension(item, first, clauses) => {
                self.comprehension(span_of(expr.span), first, clauses, |walk| walk.expr(item));
            }
            Expr::DictComprehension(item, first, clauses) => {
                self.comprehension(span_of(expr.span), first, clauses, |walk| {
                    walk.expr(&item.0);
                    walk.expr(&item.1);
                });
            }
            other => other.visit_expr(|inner| self.expr(inner)),
        }
    }

    fn comprehension(&mut self, span: Span, first: &ForClause, clauses: &[Clause], item: impl FnOnce(&mut Self)) {
        self.expr(&first.over);
        self.inner(span, &[], |walk| {
            walk.bind_target(&first.var.node);
            walk.target(&first.var.node);
            for clause in clauses {
                match clause {
                    Clause::For(clause) => {
                        walk.expr(&clause.over);
                        walk.bind_target(&clause.var.node);
                        walk.target(&clause.var.node);
                    }
                    Clause::If(condition) => walk.expr(condition),
                }
            }
            item(walk);
        });
    }
}

/// The text at the start of a function.
fn doc(body: &AstStmt) -> Option<String> {
    let first = match &body.node {
        Stmt::Statements(all) => all.first()?,
        _ => body,
    };
    match &first.node {
        Stmt::Expression(expr) => match &expr.node {
            Expr::Literal(AstLiteral::String(text)) => Some(text.node.trim().to_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// The place within the quotes of a string literal; any other place as it is.
fn unquoted(text: &str, (start, end): Span) -> Span {
    let written = text.get(start as usize..end as usize).unwrap_or_default();
    let quoted = written.len() >= 2 && written.starts_with(['"', '\'']) && written.ends_with(['"', '\'']);
    if quoted { (start + 1, end - 1) } else { (start, end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_their_scope() {
        let text = "load(\"a.star\", \"f\", g = \"h\")\nX = 1\ndef p(x, y = X):\n    \"\"\"Doc.\"\"\"\n    z = [x for x in y]\n    \
                    return f(x, z, lambda x: x + g.name)\n";
        let symbols = Symbols::of(text);
        let of = |needle: &str, nth: usize| {
            let at = text.match_indices(needle).nth(nth).expect("there").0 as u32;
            symbols.at(at).and_then(|one| one.symbol).expect("a symbol")
        };
        let names: Vec<&str> = symbols.symbols.iter().map(|symbol| symbol.name.as_str()).collect();
        assert_eq!(names, ["f", "g", "X", "p", "x", "y", "z", "x", "x"]);
        assert_eq!(of("X", 0), of("X", 1));
        // The parameter, the variable of the comprehension, the parameter of the lambda.
        assert_eq!((of("x,", 0), of("x for", 0), of("x in", 0), of("x +", 0)), (4, 7, 7, 8));
        assert_eq!(of("f(x", 0), of("f\", g", 0));
        assert_eq!(symbols.symbols[3].signature.as_deref(), Some("p(x, y = X)"));
        assert_eq!(symbols.symbols[3].doc.as_deref(), Some("Doc."));
        assert_eq!(symbols.members[0].object, "g");
        let theirs: Vec<&str> = symbols.occurrences.iter().filter(|one| one.theirs).map(|one| &*one.name).collect();
        assert_eq!(theirs, ["h"]);
        assert_eq!(symbols.loads[0].0, "a.star");
    }

    #[test]
    fn a_broken_function_hides_no_other() {
        let symbols = Symbols::of("def a():\n    return 1 +\n\ndef b(x):\n    return x\n");
        assert!(symbols.top("b").is_some() && symbols.top("a").is_none());
        assert!(Symbols::of("((((").symbols.is_empty());
    }
}
