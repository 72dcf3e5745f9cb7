//! Lints: code that runs, but is probably a mistake. A comment can silence each by name.

/// A lint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lint {
    DuplicateKey,
    SequentialLoop,
    TypeMismatch,
    UnknownName,
    Unreachable,
    UnusedLoad,
    UnusedValue,
    UnusedVariable,
}

impl Lint {
    /// All, by name.
    pub(crate) const ALL: [Self; 8] = [
        Self::DuplicateKey,
        Self::SequentialLoop,
        Self::TypeMismatch,
        Self::UnknownName,
        Self::Unreachable,
        Self::UnusedLoad,
        Self::UnusedValue,
        Self::UnusedVariable,
    ];

    /// The name in messages and in `# fanin: allow(...)`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DuplicateKey => "duplicate-key",
            Self::SequentialLoop => "sequential-loop",
            Self::TypeMismatch => "type-mismatch",
            Self::UnknownName => "unknown-lint",
            Self::Unreachable => "unreachable",
            Self::UnusedLoad => "unused-load",
            Self::UnusedValue => "unused-value",
            Self::UnusedVariable => "unused-variable",
        }
    }

    /// The lint of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lint| lint.name() == name)
    }
}

/// Names of all lints, in order.
#[must_use]
pub fn lint_names() -> Vec<&'static str> {
    Lint::ALL.iter().map(|lint| lint.name()).collect()
}
