//! A compiled program: functions, frozen globals, sources.

use std::collections::HashMap;
use std::sync::Arc;

use arcstr::ArcStr;

use crate::code::{Code, PointKind};
use crate::error::{Position, position};
use crate::host::CallSite;
use crate::native::Globals;
use crate::value::FrozenValue;

#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: ArcStr,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct ProgramData {
    pub(crate) codes: Vec<Code>,
    pub(crate) globals: Vec<FrozenValue>,
    pub(crate) global_names: Vec<ArcStr>,
    pub(crate) files: Vec<SourceFile>,
    /// For each file its variables.
    pub(super) modules: HashMap<ArcStr, HashMap<ArcStr, u32>>,
    /// Names of the program's own files, as requested.
    pub(super) roots: HashMap<String, ArcStr>,
    pub(crate) builtins: Arc<Globals>,
}

impl ProgramData {
    pub(crate) fn position(&self, code: u32, pc: u32) -> Option<Position> {
        let code = self.codes.get(code as usize)?;
        let file = self.files.get(code.file as usize)?;
        let span = code.spans.get(pc as usize).copied()?;
        Some(position(&file.name, &file.text, span))
    }
}

/// All flows of a configuration, compiled. A clone is one reference count; workers share it.
#[derive(Debug, Clone)]
pub struct Program(pub(crate) Arc<ProgramData>);

/// How often a point of a program has been passed.
#[derive(Debug, Clone)]
pub struct CoveredPoint {
    /// Where it is.
    pub position: Position,
    /// The function that it is in; `<module>` at the top level.
    pub function: ArcStr,
    /// What it is.
    pub kind: PointKind,
    /// How often it was passed.
    pub count: u64,
}

/// A function of a program. Functions of one file are ordered as in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionRef {
    pub(crate) code: u32,
    pub(crate) global: u32,
}

impl Program {
    /// A function that a file of the program (as requested in [`load`](Self::load)) defines.
    #[must_use]
    pub fn function(&self, file: &str, name: &str) -> Option<FunctionRef> {
        let file = self.0.roots.get(file)?;
        let global = *self.0.modules.get(file)?.get(name)?;
        match self.0.globals.get(global as usize)? {
            FrozenValue::Frozen(value) => match &**value {
                crate::value::Frozen::Function(function) => Some(FunctionRef { code: function.code, global }),
                _ => None,
            },
            _ => None,
        }
    }

    /// A variable that a file of the program defines.
    #[must_use]
    pub fn value(&self, file: &str, name: &str) -> Option<FrozenValue> {
        let file = self.0.roots.get(file)?;
        let global = *self.0.modules.get(file)?.get(name)?;
        self.0.globals.get(global as usize).cloned()
    }

    /// Names of the functions that a file defines, for hints.
    #[must_use]
    pub fn functions(&self, file: &str) -> Vec<ArcStr> {
        let Some(names) = self.0.roots.get(file).and_then(|file| self.0.modules.get(file)) else { return Vec::new() };
        let mut found: Vec<ArcStr> = names.keys().filter(|name| self.function(file, name).is_some()).cloned().collect();
        found.sort();
        found
    }

    /// Names of a function's parameters that can be given by position.
    #[must_use]
    pub fn parameters(&self, function: FunctionRef) -> &[ArcStr] {
        let params = &self.0.codes[function.code as usize].params;
        &params.names[..usize::from(params.positional)]
    }

    /// Whether a call of the function may change something outside, as far as is known before it runs.
    #[must_use]
    pub fn writes(&self, function: FunctionRef) -> bool {
        self.0.codes[function.code as usize].writes
    }

    /// Whether the function changes nothing that it did not make, so that it may run side by side with
    /// its caller; if not, why not, each reason with its place.
    #[must_use]
    pub fn purity(&self, function: FunctionRef) -> (bool, Vec<(String, Option<Position>)>) {
        let code = &self.0.codes[function.code as usize];
        let reasons = code
            .reasons
            .iter()
            .map(|reason| (reason.text.clone(), self.0.position(function.code, u32::from(reason.pc))))
            .collect();
        (code.pure, reasons)
    }

    /// What a call by position needs for each parameter that has one: its name and its default value.
    #[must_use]
    pub fn defaults(&self, function: FunctionRef) -> Vec<(ArcStr, Option<FrozenValue>)> {
        let params = &self.0.codes[function.code as usize].params;
        let frozen = self.0.globals.get(function.global as usize);
        let values: &[FrozenValue] = match frozen {
            Some(FrozenValue::Frozen(frozen)) => match &**frozen {
                crate::value::Frozen::Function(function) => &function.defaults,
                _ => &[],
            },
            _ => &[],
        };
        let default = |at: usize| params.defaults.get(at).copied().flatten().and_then(|at| values.get(usize::from(at)));
        params.names.iter().enumerate().map(|(at, name)| (name.clone(), default(at).cloned())).collect()
    }

    /// The line on which the function's body begins.
    #[must_use]
    pub fn line(&self, function: FunctionRef) -> u32 {
        self.0.position(function.code, 0).map_or(0, |position| position.line)
    }

    /// Whether it also takes `*args` or `**kwargs`.
    #[must_use]
    pub fn takes_more(&self, function: FunctionRef) -> bool {
        let params = &self.0.codes[function.code as usize].params;
        params.args || params.kwargs
    }

    /// What of the program has run how often, if its globals ask for [coverage](crate::Globals::with_coverage). In the order of the source.
    #[must_use]
    pub fn coverage(&self) -> Vec<CoveredPoint> {
        let mut points: Vec<CoveredPoint> = Vec::new();
        for code in &self.0.codes {
            let Some(file) = self.0.files.get(code.file as usize) else { continue };
            points.extend(code.points.iter().map(|point| CoveredPoint {
                position: position(&file.name, &file.text, point.span),
                function: code.name.clone(),
                kind: point.kind,
                count: point.count(),
            }));
        }
        points.sort_by(|a, b| {
            (&a.position.file, a.position.span, a.kind).cmp(&(&b.position.file, b.position.span, b.kind))
        });
        points
    }

    /// A place in full.
    #[must_use]
    pub fn position(&self, call_site: CallSite) -> Position {
        self.0.position(call_site.code, call_site.pc).unwrap_or_default()
    }

    /// Name and text of each file, for showing source lines.
    pub fn files(&self) -> impl Iterator<Item = (&ArcStr, &str)> {
        self.0.files.iter().map(|file| (&file.name, file.text.as_str()))
    }
}
