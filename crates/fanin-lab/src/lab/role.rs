//! Measuring parts that need a process of their own, because they look at its memory or block it.

use serde_json::{Value, json};

use super::error::LabError;
use super::{blocked_loop, coroutines, memory, push};

/// Runs `NAME ARGUMENTS...` and gives its result.
pub(super) fn run(what: &[String]) -> Result<Value, LabError> {
    let words: Vec<&str> = what.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().map_err(|_| LabError::Wrong(format!("{text:?} is no number")));
    let result = match words[..] {
        ["coroutines", kind, count] => json!(coroutines::role(kind, number(count)?)?),
        ["memory", allocator, generations] => json!(memory::role(allocator, number(generations)?)?),
        ["push-threads"] => json!(push::role()?),
        ["blocked-loop", kind] => json!(blocked_loop::role(kind)?),
        _ => return Err(LabError::Wrong(format!("there is no role {what:?}"))),
    };
    Ok(result)
}
