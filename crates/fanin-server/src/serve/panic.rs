//! Panics of the application's code.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the application's code; a panic ends its request and nothing else. The panic hook logs the message.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    // RequestState that a panic leaves half changed belongs to the request and is dropped with it.
    catch_unwind(AssertUnwindSafe(run)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_caught() {
        assert_eq!(catch_panic(|| 1), Some(1));
        assert_eq!(catch_panic(|| -> u8 { panic!("expected by this test") }), None);
    }
}
