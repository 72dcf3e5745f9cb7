//! Static checks: what is wrong, or probably a mistake, before a flow runs.
//!
//! A walk over the syntax tree beside the compiler's own: names are resolved the same way, types are
//! inferred only as far as they are certain. An *error* is what would certainly fail when it runs; a
//! *warning* (a [lint]) works, and can be silenced by a comment.

mod allow;
mod call;
mod expr;
pub(crate) mod lint;
mod native_signatures;
mod reach;
mod scope;
mod signature;
mod statement;

use std::collections::HashMap;
use std::rc::Rc;

use arcstr::ArcStr;
use starlark_syntax::syntax::Dialect;
use starlark_syntax::syntax::ast::AstStmt;

use self::lint::Lint;
use self::reach::Reach;
use self::scope::Scopes;
use crate::code::Code;
use crate::error::Diagnostic;
use crate::error::position;
use crate::native::Globals;
use crate::types::Type;
use crate::value::FrozenValue;
pub(crate) use allow::Allowed;
pub(crate) use native_signatures::signature_line;

/// What a file is checked with.
pub(crate) struct Env<'a> {
    pub(crate) name: &'a ArcStr,
    pub(crate) text: &'a str,
    pub(crate) dialect: &'a Dialect,
    pub(crate) builtins: &'a Globals,
    /// Functions of the modules before this one.
    pub(crate) codes: &'a [Code],
    /// What the file loads; what could not be loaded is not there.
    pub(crate) loaded: &'a HashMap<String, FrozenValue>,
}

/// Checks a file. The lints that its comments silence are left out.
pub(crate) fn check(top: &AstStmt, env: &Env<'_>) -> (Vec<Diagnostic>, Allowed) {
    let (allowed, mut found) = Allowed::read(env.name, env.text, top, env.dialect);
    let mut checker = Checker {
        env,
        scopes: Scopes::default(),
        found: Vec::new(),
        returns: Vec::new(),
        reach: Reach::Always,
        within: None,
    };
    checker.module(top);
    found.append(&mut checker.found);
    // What is wrong has been said in other words.
    let wrong: Vec<_> = found.iter().filter(|one| one.lint.is_none()).map(|one| one.position.span).collect();
    found.retain(|one| {
        let (from, to) = one.position.span;
        one.lint.is_none() || !wrong.iter().any(|(start, end)| from <= *start && *end <= to)
    });
    found.retain(|one| !one.lint.is_some_and(|lint| allowed.covers(lint, one.position.line)));
    (found, allowed)
}

struct Checker<'a> {
    env: &'a Env<'a>,
    scopes: Scopes,
    found: Vec<Diagnostic>,
    /// What each function around returns, if it says so.
    returns: Vec<Option<Rc<Type>>>,
    /// Whether the code being checked certainly runs when its function is called.
    reach: Reach,
    /// The builtin whose argument is the call that is checked next.
    within: Option<&'static str>,
}

impl Checker<'_> {
    fn error(&mut self, span: (u32, u32), message: impl Into<String>) {
        self.error_hint(span, message, None);
    }

    fn error_hint(&mut self, span: (u32, u32), message: impl Into<String>, hint: Option<String>) {
        let position = position(self.env.name, self.env.text, span);
        self.found.push(Diagnostic::error(position, message).hint(hint));
    }

    /// An operation that cannot work on values of these types. It is an error only where it certainly runs.
    fn type_error(&mut self, span: (u32, u32), message: String, hint: Option<String>) {
        match self.reach {
            Reach::Always => self.error_hint(span, message, hint),
            Reach::Sometimes | Reach::Never => {
                self.lint(Lint::TypeMismatch, span, message, hint.as_deref());
            }
        }
    }

    /// A value that contradicts a declared type. It is an error unless the code is unreachable.
    fn mismatch(&mut self, span: (u32, u32), message: String, hint: Option<String>) {
        match self.reach {
            Reach::Always | Reach::Sometimes => self.error_hint(span, message, hint),
            Reach::Never => self.lint(Lint::TypeMismatch, span, message, hint.as_deref()),
        }
    }

    fn lint(&mut self, lint: Lint, span: (u32, u32), message: impl Into<String>, hint: Option<&str>) {
        let position = position(self.env.name, self.env.text, span);
        self.found.push(Diagnostic::warning(lint, position, message).hint(hint.map(ToOwned::to_owned)));
    }
}
