//! Loading: files and what they load are parsed, checked, compiled, run once and frozen.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arcstr::ArcStr;

use crate::check::{self, Allowed, Env};
use crate::compile::{self, Broken};
use crate::error::{Diagnostic, Failure, Position, Severity, position};
use crate::host::NoHost;
use crate::machine::{Building, Instance, Machine, Run};
use crate::meter::Limits;
use crate::native::Globals;
use crate::suggest;
use crate::value::{FrozenValue, frozen};

use super::data::{Program, ProgramData, SourceFile};
use super::loader::{Loaded, Loader};

/// Bounds for the top level of one module.
pub const LOAD_LIMITS: Limits = Limits { steps: 50_000_000, memory: 256 << 20, depth: 64, fibers: 1, value: 64 << 20 };

impl Program {
    /// Loads files and all that they load, runs their top levels and freezes the result.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the files.
    pub fn load(globals: Arc<Globals>, loader: &dyn Loader, roots: &[&str]) -> Result<Self, Vec<Diagnostic>> {
        Self::load_within(globals, loader, roots, LOAD_LIMITS)
    }

    /// The same with other bounds for the top level of each file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_within(
        globals: Arc<Globals>,
        loader: &dyn Loader,
        roots: &[&str],
        limits: Limits,
    ) -> Result<Self, Vec<Diagnostic>> {
        let linked = Self::link(globals, loader, roots, false, limits);
        match linked.program {
            Some(program) => Ok(program),
            None => Err(linked.found),
        }
    }

    /// The same, with everything that can be known to be wrong before it runs, and with warnings of
    /// what is probably a mistake.
    #[must_use]
    pub fn check(globals: Arc<Globals>, loader: &dyn Loader, roots: &[&str]) -> Checked {
        Self::link(globals, loader, roots, true, LOAD_LIMITS)
    }

    fn link(globals: Arc<Globals>, loader: &dyn Loader, roots: &[&str], checks: bool, limits: Limits) -> Checked {
        let mut linker = Linker {
            data: Some(ProgramData { builtins: globals, ..ProgramData::default() }),
            loader,
            errors: Vec::new(),
            loading: Vec::new(),
            failed: Vec::new(),
            checks,
            allowed: HashMap::new(),
            defined: HashMap::new(),
            limits,
        };
        for root in roots {
            match linker.module(root, "") {
                Ok(Some(Module::Source(name))) => {
                    if let Some(data) = &mut linker.data {
                        data.roots.insert((*root).to_owned(), name);
                    }
                }
                Ok(_) => {}
                Err(message) => linker.errors.push(Diagnostic::error(
                    Position { file: ArcStr::from(*root), line: 1, column: 1, span: (0, 0) },
                    message,
                )),
            }
        }
        let Linker { data, errors: mut found, failed, allowed, defined, .. } = linker;
        let program = data
            .filter(|_| failed.is_empty() && !found.iter().any(|one| one.severity == Severity::Error))
            .map(|data| Self(Arc::new(data)));
        if checks && let Some(program) = &program {
            let silent = |one: &Diagnostic| {
                let allowed = allowed.get(&one.position.file);
                allowed.is_some_and(|allowed| one.lint.is_some_and(|lint| allowed.covers(lint, one.position.line)))
            };
            found.extend(program.sequential_loops().into_iter().filter(|one| !silent(one)));
        }
        if checks {
            found.sort_by(|a, b| (&a.position.file, a.position.span).cmp(&(&b.position.file, b.position.span)));
        }
        Checked { program, found, defined }
    }

    /// A program of one file that loads nothing.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn from_source(name: &str, text: &str) -> Result<Self, Vec<Diagnostic>> {
        struct One<'a>(&'a str, &'a str);
        impl Loader for One<'_> {
            fn load(&self, module: &str, from: &str) -> Result<Loaded, String> {
                if from.is_empty() {
                    Ok(Loaded::Source { name: ArcStr::from(self.0), text: self.1.to_owned() })
                } else {
                    Err(format!("there is no module {module}"))
                }
            }
        }
        Self::load(Arc::new(Globals::standard()), &One(name, text), &[name])
    }
}

/// A program, checked.
#[derive(Debug)]
pub struct Checked {
    /// The program, if nothing is wrong.
    pub program: Option<Program>,
    /// Errors and warnings, by file and place.
    pub found: Vec<Diagnostic>,
    /// For each file that could be parsed, the names that it defines.
    pub defined: HashMap<ArcStr, Vec<String>>,
}

enum Module {
    Source(ArcStr),
    Values(HashMap<String, FrozenValue>),
}

struct Linker<'a> {
    /// `None` only while a module's top level runs.
    data: Option<ProgramData>,
    loader: &'a dyn Loader,
    errors: Vec<Diagnostic>,
    loading: Vec<ArcStr>,
    /// Files with errors, which are reported once.
    failed: Vec<ArcStr>,
    /// Whether to look for more than what keeps the program from being compiled.
    checks: bool,
    /// For each file the lints that its comments silence.
    allowed: HashMap<ArcStr, Allowed>,
    /// For each file that could be parsed, the names that it defines.
    defined: HashMap<ArcStr, Vec<String>>,
    /// Bounds for the top level of each file.
    limits: Limits,
}

impl Linker<'_> {
    fn data(&mut self) -> &mut ProgramData {
        // It is restored after each run of a top level.
        self.data.get_or_insert_with(ProgramData::default)
    }

    /// Loads a module. `Ok(None)` if it has errors of its own, which are noted.
    fn module(&mut self, module: &str, from: &str) -> Result<Option<Module>, String> {
        let (name, text) = match self.loader.load(module, from)? {
            Loaded::Values(values) => {
                let values = values.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
                return Ok(Some(Module::Values(values)));
            }
            Loaded::Source { name, text } => (name, text),
        };
        if self.data().modules.contains_key(&name) {
            return Ok(Some(Module::Source(name)));
        }
        if self.failed.contains(&name) {
            return Ok(None);
        }
        if let Some(at) = self.loading.iter().position(|loading| *loading == name) {
            let mut cycle: Vec<&str> = self.loading[at..].iter().map(ArcStr::as_str).collect();
            cycle.push(&name);
            return Err(format!("files load each other in a cycle: {}", cycle.join(" loads ")));
        }
        if self.loading.len() >= 64 {
            return Err("files load each other more than 64 deep".to_owned());
        }
        self.loading.push(name.clone());
        let loaded = self.source(&name, text);
        self.loading.pop();
        match loaded {
            Ok(()) => Ok(Some(Module::Source(name))),
            Err(errors) => {
                self.failed.push(name);
                self.errors.extend(errors);
                Ok(None)
            }
        }
    }

    fn source(&mut self, name: &ArcStr, text: String) -> Result<(), Vec<Diagnostic>> {
        let parsed = if self.checks {
            match compile::parse_all(name, &text) {
                Ok(parsed) => parsed,
                Err(broken) => {
                    let Broken { mut errors, rest } = *broken;
                    // What it loads is checked all the same. What else is wrong in it may follow from these.
                    if let Some(rest) = rest {
                        self.loads(name, &text, &rest, &mut errors);
                    }
                    return Err(errors);
                }
            }
        } else {
            compile::parse(name, &text).map_err(|error| vec![error])?
        };
        let mut errors = Vec::new();
        let (loaded, opaque) = self.loads(name, &text, &parsed, &mut errors);
        if !self.checks && (!errors.is_empty() || !opaque.is_empty()) {
            return Err(errors);
        }
        let unusable = !opaque.is_empty();
        let mut more = Vec::new();
        if self.checks {
            let data = self.data();
            let env = Env {
                name,
                text: &text,
                dialect: &compile::DIALECT,
                builtins: &data.builtins,
                codes: &data.codes,
                loaded: &loaded,
            };
            let (found, allowed) = check::check(parsed.top(), &env);
            more = found;
            self.defined.insert(name.clone(), compile::scope::Bindings::of(&[], parsed.top()).order);
            self.allowed.insert(name.clone(), allowed);
        }
        let loader = self.loader;
        let data = self.data();
        let file = data.files.len() as u32;
        let first = data.globals.len() as u32;
        let compiled =
            compile::compile(&parsed, &text, file, &data.builtins, loader, &data.codes, first, loaded, opaque);
        let compiled = match compiled {
            Ok(compiled) if !unusable => compiled,
            compiled => {
                errors.extend(compiled.err().unwrap_or_default());
                // Of the same place the compiler's words are enough.
                more.retain(|one| !errors.iter().any(|error| error.position.span == one.position.span));
                errors.append(&mut more);
                return Err(errors);
            }
        };
        self.errors.append(&mut more);
        let data = self.data();
        data.files.push(SourceFile { name: name.clone(), text });
        data.codes.extend(compiled.codes);
        let names: HashMap<ArcStr, u32> =
            compiled.globals.iter().enumerate().map(|(at, name)| (name.clone(), first + at as u32)).collect();
        let values = self.run_top_level(compiled.main, first, compiled.globals.len()).map_err(|failure| {
            let start = || Position { file: name.clone(), line: 1, column: 1, span: (0, 0) };
            let position = failure.position.clone().unwrap_or_else(start);
            vec![Diagnostic::error(position, failure.message.clone()).hint(failure.hint.clone())]
        })?;
        let data = self.data();
        data.globals.extend(values);
        data.global_names.extend(compiled.globals);
        data.modules.insert(name.clone(), names);
        Ok(())
    }

    /// What a file loads, and the names that it does not get, for which it or another file has errors.
    fn loads(
        &mut self,
        name: &ArcStr,
        text: &str,
        parsed: &compile::Parsed,
        errors: &mut Vec<Diagnostic>,
    ) -> (HashMap<String, FrozenValue>, HashSet<String>) {
        let mut loaded = HashMap::new();
        let mut opaque = HashSet::new();
        for load in parsed.loads() {
            let at = |message: String, span| Diagnostic::error(position(name, text, span), message);
            let all = || load.names.iter().map(|(local, ..)| local.clone());
            let module = match self.module(&load.module, name) {
                Ok(Some(module)) => module,
                Ok(None) => {
                    opaque.extend(all());
                    continue;
                }
                Err(message) => {
                    errors.push(at(message, load.span));
                    opaque.extend(all());
                    continue;
                }
            };
            for (local, theirs, span) in &load.names {
                let found = match &module {
                    Module::Values(values) => values.get(theirs).cloned(),
                    Module::Source(file) => {
                        let data = self.data();
                        let index = data.modules.get(file).and_then(|names| names.get(theirs.as_str())).copied();
                        index
                            .filter(|_| !theirs.starts_with('_'))
                            .and_then(|index| data.globals.get(index as usize).cloned())
                    }
                };
                match found {
                    Some(value) => {
                        if loaded.insert(local.clone(), value).is_some() {
                            errors.push(at(format!("{local} is loaded twice"), *span));
                        }
                    }
                    None => {
                        let names: Vec<String> = match &module {
                            Module::Values(values) => values.keys().cloned().collect(),
                            Module::Source(file) => self
                                .data()
                                .modules
                                .get(file)
                                .map(|names| names.keys().map(ToString::to_string).collect())
                                .unwrap_or_default(),
                        };
                        let hint = match theirs.strip_prefix('_') {
                            Some(_) if names.contains(theirs) => {
                                Some("names that begin with _ are the file's own".to_owned())
                            }
                            _ => {
                                let names = names.iter().map(String::as_str).filter(|name| !name.starts_with('_'));
                                suggest::nearest(theirs, names).map(|near| format!("did you mean {near}?"))
                            }
                        };
                        errors.push(at(format!("{} has no {theirs}", load.module), *span).hint(hint));
                        opaque.insert(local.clone());
                    }
                }
            }
        }
        (loaded, opaque)
    }

    /// Runs a module's top level and gives its variables frozen.
    fn run_top_level(&mut self, main: u32, first: u32, count: usize) -> Result<Vec<FrozenValue>, Box<Failure>> {
        let program = Program(Arc::new(self.data.take().unwrap_or_default()));
        let mut instance = Instance::top_level(&program, main, Building::new(first, count), self.limits);
        let run = instance.run(&mut Machine::new(), &mut NoHost, u64::MAX);
        let result = match run {
            Run::Failed(failure) => Err(failure),
            Run::Done(_) => {
                instance.take_building().iter().map(|value| frozen::freeze(value).map_err(Box::new)).collect()
            }
            // Nothing at a top level can be pending, and the budget is the whole limit.
            Run::Waiting | Run::Yielded => {
                Err(Box::new(Failure::new(crate::error::Kind::Limit, "the top level of a module cannot wait")))
            }
        };
        drop(instance);
        self.data = Arc::into_inner(program.0);
        result
    }
}
