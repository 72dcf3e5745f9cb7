//! brotli (RFC 7932).

use std::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::buffers::{Broken, Buffers, MORE, Step};

/// Decodes brotli.
pub(super) struct Brotli {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    has_ended: bool,
}

impl fmt::Debug for Brotli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Brotli")
    }
}

impl Brotli {
    pub(super) fn new() -> Brotli {
        let alloc = StandardAlloc::default;
        let mut state = BrotliState::new(alloc(), alloc(), alloc());
        // A later extension, by which a few bytes could ask for a gigabyte. Without it, the window has at most 16 MB.
        state.large_window = false;
        Brotli { state: Box::new(state), has_ended: false }
    }

    /// Decodes one step. Whether everything is decoded.
    pub(super) fn step(&mut self, buffers: &mut Buffers, max: usize) -> Result<bool, Broken> {
        if self.has_ended {
            return if buffers.rest().is_empty() { Ok(true) } else { Err(MORE) };
        }
        let state = &mut *self.state;
        let (_, has_ended) = buffers.step(max, |input, output| {
            let (mut left, mut read, mut room, mut written) = (input.len(), 0, output.len(), 0);
            let result =
                BrotliDecompressStream(&mut left, &mut read, input, &mut room, &mut written, output, &mut 0, state);
            let has_ended = match result {
                BrotliResult::ResultSuccess => Ok(true),
                BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok(false),
                BrotliResult::ResultFailure => Err(()),
            };
            Step { read, written, has_ended }
        })?;
        self.has_ended = has_ended;
        Ok(false)
    }
}
