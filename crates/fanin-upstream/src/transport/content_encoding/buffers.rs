//! What an encoding is decoded from and to, in bounded steps.

use bytes::Bytes;

/// Most bytes that one step reads and writes. Both are bounded, because empty blocks take time and give no output.
pub(super) const STEP_IN: usize = 4 << 10;
pub(super) const STEP_OUT: usize = 32 << 10;

/// Why a stream cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Because(&'static str),
    TooLarge,
}

pub(super) const TRUNCATED: Broken = Broken::Because("it ends too early");
pub(super) const INVALID: Broken = Broken::Because("its bytes are not valid");
pub(super) const MORE: Broken = Broken::Because("bytes follow its end");

/// The bytes of a stream, and those that have been decoded.
pub(super) struct Buffers {
    pub(super) input: Bytes,
    /// Bytes of the input that have been decoded.
    pub(super) at: usize,
    pub(super) output: Vec<u8>,
}

/// What one step did.
pub(super) struct Step {
    pub(super) read: usize,
    pub(super) written: usize,
    /// Whether the stream has ended. `Err`: it is broken.
    pub(super) has_ended: Result<bool, ()>,
}

impl Buffers {
    pub(super) fn new(input: Bytes) -> Buffers {
        Buffers { input, at: 0, output: Vec::new() }
    }

    /// The input that is left.
    pub(super) fn rest(&self) -> &[u8] {
        &self.input[self.at..]
    }

    pub(super) fn finish(mut self) -> Bytes {
        // An answer may be cached for long: unused capacity must not be kept with it.
        self.output.shrink_to_fit();
        self.output.into()
    }

    /// Makes one step of at most `max` bytes of output in all. Gives what was written, and whether the stream has ended.
    pub(super) fn step(
        &mut self,
        max: usize,
        decode: impl FnOnce(&[u8], &mut [u8]) -> Step,
    ) -> Result<(&[u8], bool), Broken> {
        let rest = &self.input[self.at..];
        let input = &rest[..rest.len().min(STEP_IN)];
        let begin = self.output.len();
        // One byte more than allowed shows that the answer is too large.
        let room = STEP_OUT.min(max.saturating_add(1) - begin);
        self.output.resize(begin + room, 0);
        let Step { read, written, has_ended } = decode(input, &mut self.output[begin..]);
        self.at += read;
        self.output.truncate(begin + written);
        let has_ended = has_ended.map_err(|()| INVALID)?;
        if self.output.len() > max {
            return Err(Broken::TooLarge);
        }
        if !has_ended && written < room && self.at == self.input.len() {
            return Err(TRUNCATED);
        }
        Ok((&self.output[begin..], has_ended))
    }
}
