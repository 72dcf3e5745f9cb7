//! Arguments that every call takes. No parameter may have such a name.

/// Arguments of every call, whatever the kind of the upstream.
pub const CALL_OPTIONS: [&str; 6] = ["timeout", "ok", "optional", "default", "safe", "unordered"];

/// Arguments of every call of an operation: those of every call, `headers` and `linger`.
pub const OPERATION_CALL_OPTIONS: [&str; 8] =
    ["default", "headers", "linger", "ok", "optional", "safe", "timeout", "unordered"];
