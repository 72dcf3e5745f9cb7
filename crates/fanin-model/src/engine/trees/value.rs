//! A value of an XGBoost document, whichever of its formats it was read from.

/// A value of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Object(Vec<(String, Value)>),
    List(Vec<Value>),
    /// A list of nothing but numbers. Doubles hold all of XGBoost's (single precision, 32 bits, counts) exactly.
    Numbers(Vec<f64>),
    Text(String),
    Number(f64),
    Bool(bool),
    Null,
}

/// Deeper documents are refused.
pub(super) const MAX_DEPTH: usize = 64;

/// Keys that a prediction does not need, and that take much memory.
const SKIPPED: [&str; 4] = ["loss_changes", "sum_hessian", "base_weights", "parents"];

pub(super) fn is_skipped(key: &str) -> bool {
    SKIPPED.contains(&key)
}
