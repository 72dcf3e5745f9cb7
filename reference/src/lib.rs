//! Holds fanin-lang against the starlark crate.
