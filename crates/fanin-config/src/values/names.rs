//! Names that users choose.

/// Whether a name may be an upstream's: letters, digits, `_` and `-`, a letter first.
pub(crate) fn is_upstream_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Whether a name can be used in a flow: letters, digits and `_`, no digit first.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
