//! A call of a replay that may change something.

use super::answers::Wanted;

/// A call that may change something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect(pub(super) String);

impl Effect {
    pub(crate) fn of(wanted: &Wanted<'_>) -> Effect {
        let Wanted { upstream, operation, method, path, body } = wanted;
        let operation = operation.map(|operation| format!(".{operation}")).unwrap_or_default();
        Effect(format!("{upstream}{operation} {method} {path} {}", String::from_utf8_lossy(body)))
    }
}
