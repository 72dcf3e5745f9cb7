//! Scope analysis: which names a function binds, and which of its variables nested functions capture.

use std::collections::{BTreeSet, HashMap};

use starlark_syntax::syntax::ast::{
    AssignTarget, AstExpr, AstParameter, AstStmt, Clause, Expr, ForClause, Parameter, Stmt,
};

/// How a function binds one of its names.
#[derive(Debug, Default, Clone)]
pub(crate) struct Binding {
    /// Statements that bind it; parameters count as one.
    pub(crate) count: u32,
    /// Bound within a loop.
    pub(crate) in_loop: bool,
    /// Bound within an `if`.
    pub(crate) in_branch: bool,
    /// End of the first statement that binds it.
    pub(crate) end: u32,
    /// Start of the first nested function that uses it.
    pub(crate) captured: Option<u32>,
}

impl Binding {
    /// Whether nested functions can take the value along when they are made: it never changes after.
    pub(crate) fn is_stable(&self) -> bool {
        self.captured.is_none_or(|captured| self.count == 1 && !self.in_loop && self.end <= captured)
    }
}

/// The names that a function's body binds, in order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) order: Vec<String>,
    pub(crate) by_name: HashMap<String, Binding>,
}

impl Bindings {
    fn bind(&mut self, name: &str, end: u32, in_loop: bool, in_branch: bool) {
        if !self.by_name.contains_key(name) {
            self.order.push(name.to_owned());
        }
        let binding = self.by_name.entry(name.to_owned()).or_default();
        if binding.count == 0 {
            binding.end = end;
        }
        binding.count += 1;
        binding.in_loop |= in_loop;
        binding.in_branch |= in_branch;
    }

    /// The names bound by parameters and body, with what nested functions capture.
    pub(crate) fn of(params: &[AstParameter], body: &AstStmt) -> Self {
        let mut bindings = Self::default();
        for param in params {
            if let Some(ident) = param.node.ident() {
                bindings.bind(&ident.node.ident, 0, false, false);
            }
        }
        bindings.statement(body, false, false);
        let mut captured = Vec::new();
        captures_of_statement(body, &mut captured);
        for (name, at) in captured {
            if let Some(binding) = bindings.by_name.get_mut(&name) {
                binding.captured = Some(binding.captured.map_or(at, |first| first.min(at)));
            }
        }
        bindings
    }

    fn target(&mut self, target: &AssignTarget, end: u32, in_loop: bool, in_branch: bool) {
        match target {
            AssignTarget::Tuple(targets) => {
                for target in targets {
                    self.target(&target.node, end, in_loop, in_branch);
                }
            }
            AssignTarget::Identifier(ident) => self.bind(&ident.node.ident, end, in_loop, in_branch),
            AssignTarget::Index(_) | AssignTarget::Dot(..) => {}
        }
    }

    fn statement(&mut self, stmt: &AstStmt, in_loop: bool, in_branch: bool) {
        let end = stmt.span.end().get();
        match &stmt.node {
            Stmt::Assign(assign) => self.target(&assign.lhs.node, end, in_loop, in_branch),
            Stmt::AssignModify(target, _, _) => self.target(&target.node, end, in_loop, in_branch),
            Stmt::Def(def) => self.bind(&def.name.node.ident, end, in_loop, in_branch),
            Stmt::For(looped) => {
                self.target(&looped.var.node, end, true, in_branch);
                self.statement(&looped.body, true, in_branch);
            }
            Stmt::If(_, body) => self.statement(body, in_loop, true),
            Stmt::IfElse(_, both) => {
                self.statement(&both.0, in_loop, true);
                self.statement(&both.1, in_loop, true);
            }
            Stmt::Statements(all) => {
                for stmt in all {
                    self.statement(stmt, in_loop, in_branch);
                }
            }
            _ => {}
        }
    }
}

/// Names that a function uses and does not bind itself.
pub(crate) fn free_names(params: &[AstParameter], body: &AstStmt) -> BTreeSet<String> {
    let bound = Bindings::of(params, body);
    let mut used = BTreeSet::new();
    used_in_statement(body, &mut used);
    used.retain(|name| !bound.by_name.contains_key(name));
    used
}

/// The same for a lambda.
pub(crate) fn free_names_of_lambda(params: &[AstParameter], body: &AstExpr) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    used_in(body, &mut used);
    for param in params {
        if let Some(ident) = param.node.ident() {
            used.remove(&ident.node.ident);
        }
    }
    used
}

fn used_in_statement(stmt: &AstStmt, used: &mut BTreeSet<String>) {
    if let Stmt::Def(def) = &stmt.node {
        used.extend(free_names(&def.params, &def.body));
        defaults(&def.params, |default| used_in(default, used));
        return;
    }
    if let Stmt::AssignModify(target, _, _) = &stmt.node
        && let AssignTarget::Identifier(ident) = &target.node
    {
        used.insert(ident.node.ident.clone());
    }
    own_expressions(stmt, &mut |expr| used_in(expr, used));
    stmt.node.visit_stmt(|inner| used_in_statement(inner, used));
}

/// Calls `visit` for the expressions of a statement, but not for those of statements within it.
fn own_expressions(stmt: &AstStmt, visit: &mut dyn FnMut(&AstExpr)) {
    fn target(node: &AssignTarget, visit: &mut dyn FnMut(&AstExpr)) {
        match node {
            AssignTarget::Tuple(all) => all.iter().for_each(|one| target(&one.node, visit)),
            AssignTarget::Index(both) => {
                visit(&both.0);
                visit(&both.1);
            }
            AssignTarget::Dot(of, _) => visit(of),
            AssignTarget::Identifier(_) => {}
        }
    }
    match &stmt.node {
        Stmt::Return(Some(value)) | Stmt::Expression(value) => visit(value),
        Stmt::Assign(assign) => {
            target(&assign.lhs.node, visit);
            visit(&assign.rhs);
        }
        Stmt::AssignModify(to, _, value) => {
            target(&to.node, visit);
            visit(value);
        }
        Stmt::If(cond, _) | Stmt::IfElse(cond, _) => visit(cond),
        Stmt::For(looped) => {
            target(&looped.var.node, visit);
            visit(&looped.over);
        }
        _ => {}
    }
}

pub(crate) fn defaults<'a>(params: &'a [AstParameter], mut visit: impl FnMut(&'a AstExpr)) {
    for param in params {
        if let Parameter::Normal(_, _, Some(default)) = &param.node {
            visit(default);
        }
    }
}

/// Names of a comprehension's clauses.
pub(crate) fn clause_names(first: &ForClause, rest: &[Clause]) -> BTreeSet<String> {
    fn target(node: &AssignTarget, names: &mut BTreeSet<String>) {
        match node {
            AssignTarget::Tuple(all) => all.iter().for_each(|one| target(&one.node, names)),
            AssignTarget::Identifier(ident) => {
                names.insert(ident.node.ident.clone());
            }
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    target(&first.var.node, &mut names);
    for clause in rest {
        if let Clause::For(clause) = clause {
            target(&clause.var.node, &mut names);
        }
    }
    names
}

fn used_in(expr: &AstExpr, used: &mut BTreeSet<String>) {
    match &expr.node {
        Expr::Identifier(ident) => {
            used.insert(ident.node.ident.clone());
        }
        Expr::Lambda(lambda) => {
            used.extend(free_names_of_lambda(&lambda.params, &lambda.body));
            defaults(&lambda.params, |default| used_in(default, used));
        }
        Expr::ListComprehension(_, first, rest) | Expr::DictComprehension(_, first, rest) => {
            used_in(&first.over, used);
            let names = clause_names(first, rest);
            let mut inner = BTreeSet::new();
            comprehension_parts(expr, &mut |part| used_in(part, &mut inner));
            used.extend(inner.into_iter().filter(|name| !names.contains(name)));
        }
        _ => expr.node.visit_expr(|inner| used_in(inner, used)),
    }
}

/// Calls `visit` for the parts of a comprehension that its own names are visible in.
fn comprehension_parts(expr: &AstExpr, visit: &mut dyn FnMut(&AstExpr)) {
    let rest = match &expr.node {
        Expr::ListComprehension(element, _, rest) => {
            visit(element);
            rest
        }
        Expr::DictComprehension(pair, _, rest) => {
            visit(&pair.0);
            visit(&pair.1);
            rest
        }
        _ => return,
    };
    for clause in rest {
        match clause {
            Clause::For(clause) => visit(&clause.over),
            Clause::If(cond) => visit(cond),
        }
    }
}

/// Names used by functions nested in a statement, with the place where the function is made.
fn captures_of_statement(stmt: &AstStmt, captured: &mut Vec<(String, u32)>) {
    if let Stmt::Def(def) = &stmt.node {
        let at = stmt.span.begin().get();
        captured.extend(free_names(&def.params, &def.body).into_iter().map(|name| (name, at)));
        defaults(&def.params, |default| captures_of(default, captured));
        return;
    }
    own_expressions(stmt, &mut |expr| captures_of(expr, captured));
    stmt.node.visit_stmt(|inner| captures_of_statement(inner, captured));
}

/// Names used by functions nested in an expression.
pub(crate) fn captures_of(expr: &AstExpr, captured: &mut Vec<(String, u32)>) {
    match &expr.node {
        Expr::Lambda(lambda) => {
            let at = expr.span.begin().get();
            captured.extend(free_names_of_lambda(&lambda.params, &lambda.body).into_iter().map(|name| (name, at)));
            defaults(&lambda.params, |default| captures_of(default, captured));
        }
        Expr::ListComprehension(_, first, rest) | Expr::DictComprehension(_, first, rest) => {
            captures_of(&first.over, captured);
            let names = clause_names(first, rest);
            let mut inner = Vec::new();
            comprehension_parts(expr, &mut |part| captures_of(part, &mut inner));
            captured.extend(inner.into_iter().filter(|(name, _)| !names.contains(name)));
        }
        _ => expr.node.visit_expr(|inner| captures_of(inner, captured)),
    }
}

/// Names of a comprehension that functions nested in it use.
pub(crate) fn captured_clause_names(expr: &AstExpr, names: &BTreeSet<String>) -> BTreeSet<String> {
    let mut captured = Vec::new();
    comprehension_parts(expr, &mut |part| captures_of(part, &mut captured));
    captured.into_iter().map(|(name, _)| name).filter(|name| names.contains(name)).collect()
}
