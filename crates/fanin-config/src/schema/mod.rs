//! The JSON Schema of `fanin.toml`.

mod document;
pub(crate) mod types;
