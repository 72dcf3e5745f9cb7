//! zstd (RFC 8878), with the window that HTTP allows (RFC 9659).

use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::buffers::{Broken, Buffers, Step};

/// The largest window, as a power of two: 8 MB.
const MAX_WINDOW: u32 = 23;

/// Decodes zstd. An answer may have several frames.
pub(super) struct Zstandard {
    decoder: Decoder<'static>,
    has_ended: bool,
}

impl Zstandard {
    /// `None`: there is no memory.
    pub(super) fn new() -> Option<Zstandard> {
        let mut decoder = Decoder::new().ok()?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW)).ok()?;
        Some(Zstandard { decoder, has_ended: false })
    }

    /// Decodes one step. Whether everything is decoded.
    pub(super) fn step(&mut self, buffers: &mut Buffers, max: usize) -> Result<bool, Broken> {
        if self.has_ended && buffers.rest().is_empty() {
            return Ok(true);
        }
        let decoder = &mut self.decoder;
        let (_, has_ended) = buffers.step(max, |input, output| match decoder.run_on_buffers(input, output) {
            Ok(status) => {
                Step { read: status.bytes_read, written: status.bytes_written, has_ended: Ok(status.remaining == 0) }
            }
            Err(_) => Step { read: 0, written: 0, has_ended: Err(()) },
        })?;
        self.has_ended = has_ended;
        Ok(false)
    }
}
