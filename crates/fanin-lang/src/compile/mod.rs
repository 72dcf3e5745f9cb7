//! The compiler: from source text to bytecode. What touches the parser's syntax tree is in this folder, in `check` and in `format`.

pub(crate) mod annotation;
mod builder;
mod call;
mod comprehension;
mod expr;
mod function;
pub(crate) mod nesting;
mod purity;
mod recover;
pub(crate) mod scope;
mod stmt;

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use starlark_syntax::codemap::{CodeMap, Span};
use starlark_syntax::syntax::ast::{AstStmt, Stmt};
use starlark_syntax::syntax::{AstModule, Dialect, DialectTypes};

use self::builder::Builder;
pub(crate) use self::call::literal;
pub(crate) use self::recover::{Broken, parse_all};
use crate::code::{Code, Op};
use crate::error::{Diagnostic, position};
use crate::intern::intern;
use crate::native::Globals;
use crate::program::Loader;
use crate::python_names;
use crate::value::FrozenValue;

pub(crate) const DIALECT: Dialect = Dialect {
    enable_def: true,
    enable_lambda: true,
    enable_load: true,
    enable_keyword_only_arguments: true,
    enable_positional_only_arguments: true,
    enable_types: DialectTypes::ParseOnly,
    enable_load_reexport: false,
    enable_top_level_stmt: true,
    enable_f_strings: true,
    _non_exhaustive: (),
};

/// A parsed file.
pub(crate) struct Parsed {
    ast: AstModule,
    name: ArcStr,
    loads: Vec<Load>,
}

/// A `load` statement.
pub(crate) struct Load {
    /// What it loads from, as written.
    pub(crate) module: String,
    /// The place of that.
    pub(crate) span: (u32, u32),
    /// The name here, the name there, the place.
    pub(crate) names: Vec<(String, String, (u32, u32))>,
}

/// A compiled module, its functions numbered from the count of those before it.
pub(crate) struct CompiledModule {
    pub(crate) codes: Vec<Code>,
    /// The top level.
    pub(crate) main: u32,
    /// Names of the module's variables, numbered from the count of those before it.
    pub(crate) globals: Vec<ArcStr>,
}

pub(crate) fn span_of(span: Span) -> (u32, u32) {
    (span.begin().get(), span.end().get())
}

/// Parses a file.
pub(crate) fn parse(name: &ArcStr, text: &str) -> Result<Parsed, Diagnostic> {
    let at = |message: String, span| Diagnostic::error(position(name, text, span), message);
    if text.len() > nesting::MAX_SOURCE {
        return Err(at(format!("the file is larger than {} bytes", nesting::MAX_SOURCE), (0, 0)));
    }
    let codemap = CodeMap::new(name.to_string(), text.to_owned());
    if let Some((start, end)) = nesting::too_deep(&codemap, &DIALECT) {
        return Err(at(
            format!("brackets, blocks and operators are nested deeper than {} here", nesting::MAX_NESTING),
            (start as u32, end as u32),
        ));
    }
    let ast = AstModule::parse(name, text.to_owned(), &DIALECT).map_err(|error| {
        let span = error.span().map_or((0, 0), |file| span_of(file.span));
        let message = error.without_diagnostic().to_string();
        if message.contains("in type expression") {
            let hint = "types are names, list[T], dict[K, V], tuple[A, B], set[T] and T | U, without quotes";
            return at("this is not a type".to_owned(), span).hint(Some(hint.to_owned()));
        }
        let message = message.strip_prefix("Parse error: ").unwrap_or(&message);
        let reserved = message.strip_prefix("cannot use reserved keyword `").and_then(|rest| rest.strip_suffix('`'));
        let (message, instead) = match reserved {
            Some(word) => (format!("there is no `{word}` in Starlark"), python_names::instead_of_keyword(word)),
            None => (message.to_owned(), python_names::instead_of_syntax(text, span)),
        };
        let hint = instead.map(|instead| format!("write instead: {instead}"));
        at(message, span).hint(hint)
    })?;
    let mut loads = Vec::new();
    collect_loads(ast.statement(), &mut loads);
    Ok(Parsed { ast, name: name.clone(), loads })
}

fn collect_loads(stmt: &AstStmt, loads: &mut Vec<Load>) {
    match &stmt.node {
        Stmt::Load(load) => loads.push(Load {
            module: load.module.node.clone(),
            span: span_of(load.module.span),
            names: load
                .args
                .iter()
                .map(|arg| (arg.local.node.ident.clone(), arg.their.node.clone(), span_of(arg.span())))
                .collect(),
        }),
        Stmt::Statements(all) => all.iter().for_each(|stmt| collect_loads(stmt, loads)),
        _ => {}
    }
}

impl Parsed {
    pub(crate) fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Its statements.
    pub(crate) fn top(&self) -> &AstStmt {
        self.ast.statement()
    }
}

/// A variable of the module.
struct Global {
    index: u32,
    /// The function that it certainly holds.
    known: Option<u32>,
}

struct Compiler<'a> {
    text: &'a str,
    name: ArcStr,
    file: u32,
    builtins: &'a Globals,
    loader: &'a dyn Loader,
    /// Functions of the modules before this one.
    before: &'a [Code],
    loaded: HashMap<String, FrozenValue>,
    /// Names whose load has failed, which is reported already: nothing of this module will run.
    opaque: HashSet<String>,
    globals: HashMap<String, Global>,
    /// Functions of this module: `None` while they are being compiled.
    codes: Vec<purity::Unsettled>,
    fns: Vec<Builder>,
    errors: Vec<Diagnostic>,
}

/// Compiles a parsed file, all its loads resolved to `loaded`.
#[allow(clippy::too_many_arguments, reason = "what the one caller has at hand")]
pub(crate) fn compile(
    parsed: &Parsed,
    text: &str,
    file: u32,
    builtins: &Globals,
    loader: &dyn Loader,
    before: &[Code],
    globals_before: u32,
    loaded: HashMap<String, FrozenValue>,
    opaque: HashSet<String>,
) -> Result<CompiledModule, Vec<Diagnostic>> {
    let mut lowerer = Compiler {
        text,
        name: parsed.name.clone(),
        file,
        builtins,
        loader,
        before,
        loaded,
        opaque,
        globals: HashMap::new(),
        codes: Vec::new(),
        fns: Vec::new(),
        errors: Vec::new(),
    };
    let names = lowerer.declare_globals(parsed.ast.statement(), globals_before);
    let main = lowerer.reserve();
    let mut builder = Builder::new(main, ArcStr::from("<module>"));
    builder.top = true;
    lowerer.fns.push(builder);
    lowerer.statement(parsed.ast.statement());
    let result = lowerer.fun().temp();
    lowerer.fun().emit(Op::None { dst: result });
    lowerer.fun().emit(Op::Return { src: result });
    lowerer.finish_function();
    if !lowerer.errors.is_empty() {
        let mut errors = lowerer.errors;
        errors.sort_by_key(|error| error.position.span);
        errors.dedup();
        return Err(errors);
    }
    let codes = purity::settle(lowerer.codes, before);
    Ok(CompiledModule { codes, main, globals: names })
}

impl Compiler<'_> {
    fn fun(&mut self) -> &mut Builder {
        // The module's own builder is pushed before anything is lowered and popped after all is.
        self.fns.last_mut().expect("a function is being compiled")
    }

    fn reserve(&mut self) -> u32 {
        self.codes.push(None);
        (self.before.len() + self.codes.len() - 1) as u32
    }

    fn finish_function(&mut self) {
        let Some(builder) = self.fns.pop() else { return };
        let at = builder.index as usize - self.before.len();
        if builder.too_large {
            let span = builder.span;
            let name = builder.name.clone();
            self.error(span, format!("the function {name} is too large: split it up"));
        }
        let file = self.file;
        self.codes[at] = Some(builder.finish(file));
    }

    fn error(&mut self, span: (u32, u32), message: impl Into<String>) {
        self.error_hint(span, message, None);
    }

    fn error_hint(&mut self, span: (u32, u32), message: impl Into<String>, hint: Option<String>) {
        let position = position(&self.name, self.text, span);
        self.errors.push(Diagnostic::error(position, message).hint(hint));
    }

    /// Finds the module's variables. A name may be bound by one statement only, so that a function
    /// defined at the top level is known wherever it is called.
    fn declare_globals(&mut self, top: &AstStmt, first: u32) -> Vec<ArcStr> {
        let bindings = scope::Bindings::of(&[], top);
        let mut names = Vec::new();
        let mut defs = HashMap::new();
        self.find_defs(top, &mut defs);
        for name in &bindings.order {
            let binding = &bindings.by_name[name];
            if binding.count > 1 && !binding.in_branch && !binding.in_loop {
                let place = self.second_binding(top, name);
                self.error_hint(
                    place,
                    format!("the module's variable {name} is assigned a second time"),
                    Some("variables of a module are assigned once; use another name or a function".to_owned()),
                );
            }
            if self.loaded.contains_key(name) {
                let place = self.second_binding(top, name);
                self.error_hint(
                    place,
                    format!("{name} is already loaded in this file"),
                    Some(format!("load it under another name: load(\"...\", other = \"{name}\")")),
                );
            }
            let known = match defs.get(name) {
                Some(1) if binding.count == 1 => Some(self.reserve()),
                _ => None,
            };
            self.globals.insert(name.clone(), Global { index: first + names.len() as u32, known });
            names.push(intern(name));
        }
        names
    }

    #[allow(clippy::only_used_in_recursion, reason = "a method beside its only user")]
    fn find_defs(&self, stmt: &AstStmt, defs: &mut HashMap<String, u32>) {
        match &stmt.node {
            Stmt::Def(def) => *defs.entry(def.name.node.ident.clone()).or_default() += 1,
            Stmt::Statements(all) => all.iter().for_each(|stmt| self.find_defs(stmt, defs)),
            _ => {}
        }
    }

    fn second_binding(&self, top: &AstStmt, name: &str) -> (u32, u32) {
        let mut found = Vec::new();
        let mut stack = vec![top];
        while let Some(stmt) = stack.pop() {
            match &stmt.node {
                Stmt::Statements(all) => stack.extend(all.iter().rev()),
                Stmt::Def(def) if def.name.node.ident == name => found.push(span_of(def.name.span)),
                Stmt::Def(_) => {}
                _ => {
                    let one = AstStmt { span: stmt.span, node: stmt.node.clone() };
                    if scope::Bindings::of(&[], &one).by_name.contains_key(name) {
                        found.push(span_of(stmt.span));
                    }
                }
            }
        }
        found.get(1).or(found.first()).copied().unwrap_or((0, 0))
    }
}
