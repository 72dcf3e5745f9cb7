//! A compiled program: functions, frozen globals, sources.

use std::collections::HashMap;
use std::sync::Arc;

use arcstr::ArcStr;

use crate::code::Code;
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

/// A function of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
