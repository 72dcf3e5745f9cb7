//! The names that every module sees without `load`.

use std::collections::HashMap;

use arcstr::ArcStr;

use super::NativeFn;
use crate::value::{FrozenValue, ValueKind};

/// Methods of the builtin types and global names: what every module sees without `load`.
///
/// Built once by the host (`Globals::standard()` plus its own) and shared by all programs.
#[derive(Debug)]
pub struct Globals {
    pub(crate) names: HashMap<ArcStr, FrozenValue>,
    /// Methods by name, then by kind of the object.
    pub(crate) methods: Vec<(&'static str, [Option<&'static NativeFn>; ValueKind::COUNT])>,
    pub(crate) method_ids: HashMap<&'static str, u16>,
    /// Names of the host's types, for annotations.
    pub(crate) types: Vec<&'static str>,
    /// Whether programs count which of their statements and branches run.
    pub(crate) coverage: bool,
}

impl Globals {
    /// No names at all.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            names: HashMap::new(),
            methods: Vec::new(),
            method_ids: HashMap::new(),
            types: Vec::new(),
            coverage: false,
        }
    }

    /// Makes programs count which of their statements and branches run: see [`Program::coverage`](crate::Program::coverage).
    #[must_use]
    pub fn with_coverage(mut self, coverage: bool) -> Self {
        self.coverage = coverage;
        self
    }

    /// Adds functions under their names.
    pub fn functions(&mut self, natives: &'static [NativeFn]) {
        for native in natives {
            self.names.insert(ArcStr::from(native.name), FrozenValue::Native(native));
        }
    }

    /// Adds a value under a name.
    pub fn value(&mut self, name: &str, value: FrozenValue) {
        self.names.insert(ArcStr::from(name), value);
    }

    /// Names types of the host's, as `type()` gives them, so that annotations can use them.
    pub fn types(&mut self, names: &[&'static str]) {
        self.types.extend(names);
    }

    /// Adds methods of a builtin type.
    pub fn methods(&mut self, kind: ValueKind, natives: &'static [NativeFn]) {
        for native in natives {
            let next = self.methods.len();
            let id = *self.method_ids.entry(native.name).or_insert(next as u16);
            if usize::from(id) == next {
                self.methods.push((native.name, [None; ValueKind::COUNT]));
            }
            self.methods[usize::from(id)].1[kind as usize] = Some(native);
        }
    }

    /// The method of a kind of value.
    #[must_use]
    pub fn method(&self, kind: ValueKind, name: &str) -> Option<&'static NativeFn> {
        let id = self.method_ids.get(name)?;
        self.methods[usize::from(*id)].1[kind as usize]
    }

    /// Names of the methods of a kind, for hints and `dir`.
    pub fn method_names(&self, kind: ValueKind) -> impl Iterator<Item = &'static str> + '_ {
        self.methods.iter().filter(move |(_, kinds)| kinds[kind as usize].is_some()).map(|(name, _)| *name)
    }
}
