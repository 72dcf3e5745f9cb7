//! SIMD within a register: finds the next quote, backslash or control character of a string, many bytes at a time,
//! without `unsafe`.
//!
//! Words of eight bytes are compared as integers; long runs go in blocks of 32 bytes, written so
//! that the compiler turns them into the vector instructions of the target's baseline.

/// The top bit of each byte of a word.
pub(crate) const HIGH: u64 = 0x8080_8080_8080_8080;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Where a run of plain bytes stops.
pub(crate) struct Stop {
    pub(crate) at: usize,
    /// The quote, backslash or control character that is there; `None` at the end of the bytes.
    pub(crate) byte: Option<u8>,
}

/// Nonzero in the top bit of each byte of `word` that is zero. Bytes above the first zero may be
/// marked wrongly (a borrow goes upwards); the lowest mark is always right.
#[inline(always)]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word
}

/// Marks (as [`zeros`]) the bytes that end a run of plain bytes.
#[inline(always)]
fn special(word: u64) -> u64 {
    let quote = zeros(word ^ (ONES * b'"' as u64));
    let backslash = zeros(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & HIGH
}

#[inline(always)]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Skips bytes from `at` on that are neither `"`, `\` nor a control character, and ors words that
/// hold all of them (and maybe some after them) into `seen`.
#[inline(always)]
pub(crate) fn plain(bytes: &[u8], mut at: usize, seen: &mut u64) -> Stop {
    // Keys and short strings end within the first words.
    for _ in 0..3 {
        let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
            return tail(bytes, at, seen);
        };
        let word = u64::from_le_bytes(*chunk);
        *seen |= word;
        let marks = special(word);
        if marks != 0 {
            let index = marks.trailing_zeros() as usize / 8;
            return Stop { at: at + index, byte: Some(chunk[index]) };
        }
        at += 8;
    }
    long(bytes, at, seen)
}

fn long(bytes: &[u8], mut at: usize, seen: &mut u64) -> Stop {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        let mut found = 0_u8;
        let mut high = 0_u8;
        for &byte in block {
            found |= u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
            high |= byte;
        }
        *seen |= u64::from(high);
        if found != 0 {
            break;
        }
        at += 32;
    }
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        *seen |= word;
        let marks = special(word);
        if marks != 0 {
            let index = marks.trailing_zeros() as usize / 8;
            return Stop { at: at + index, byte: Some(chunk[index]) };
        }
        at += 8;
    }
    tail(bytes, at, seen)
}

/// The last, less than eight, bytes of the body.
fn tail(bytes: &[u8], mut at: usize, seen: &mut u64) -> Stop {
    while let Some(&byte) = bytes.get(at) {
        if is_special(byte) {
            return Stop { at, byte: Some(byte) };
        }
        *seen |= u64::from(byte);
        at += 1;
    }
    Stop { at, byte: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_first_special_byte_at_every_offset_and_length() {
        for special in [b'"', b'\\', 0, 0x0A, 0x1F] {
            for length in 0..90 {
                for stop in 0..=length {
                    // 0x7F, 0x21, 0x23, 0x5B, 0x5D and high bytes neighbour the special ones.
                    let mut bytes: Vec<u8> =
                        (0..length).map(|i| [0x7F, 0x21, 0x5B, 0x20, 0x5D, 0xA2, 0xDC, 0x80][i % 8]).collect();
                    if stop < length {
                        bytes[stop] = special;
                    }
                    let mut seen = 0;
                    let found = plain(&bytes, 0, &mut seen);
                    assert_eq!(found.at, stop);
                    assert_eq!(found.byte, bytes.get(stop).copied());
                    if bytes[..stop].iter().any(|b| *b >= 0x80) {
                        assert_ne!(seen & HIGH, 0);
                    }
                }
            }
        }
    }
}
