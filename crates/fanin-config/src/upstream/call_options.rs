//! Arguments that every call takes. No parameter may have such a name.

/// Arguments of every call, whatever the kind of the upstream.
pub const CALL_OPTIONS: [&str; 7] = ["timeout", "ok", "optional", "default", "returns", "safe", "unordered"];

/// Arguments of every call of an operation: those of every call, `headers`, `linger` and `stream`.
pub const OPERATION_CALL_OPTIONS: [&str; 10] =
    ["default", "headers", "linger", "ok", "optional", "returns", "safe", "stream", "timeout", "unordered"];
