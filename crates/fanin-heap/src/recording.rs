//! Whether this thread is recording a sample. Recording allocates as well, and those allocations are not sampled.

use std::cell::Cell;

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread records a sample, or is ending and has no thread-locals any more.
pub(crate) fn is_recording() -> bool {
    RECORDING.try_with(Cell::get).unwrap_or(true)
}

/// Begins recording. Returns `false` if this thread already does.
pub(crate) fn begin() -> bool {
    !RECORDING.try_with(|recording| recording.replace(true)).unwrap_or(true)
}

/// Ends recording.
pub(crate) fn end() {
    // Fails only for a thread that is ending.
    let _ = RECORDING.try_with(|recording| recording.set(false));
}
