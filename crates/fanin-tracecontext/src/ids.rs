//! Ids of traces and spans, and where new ones come from.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The id of a trace: 16 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// The id of a span: 8 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// A new id.
    pub fn random() -> TraceId {
        let (high, low) = RANDOM.with(|cell| {
            let (one, other) = cell.get();
            let next = (one.wrapping_add(STEP), other.wrapping_add(STEP));
            cell.set(next);
            (mix(next.0), mix(next.1))
        });
        TraceId((u128::from(high) << 64 | u128::from(low)).max(1))
    }

    pub(crate) fn new(id: u128) -> Option<TraceId> {
        (id != 0).then_some(TraceId(id))
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Its lowest 56 bits: the random ones, by which sampling decides.
    pub fn random_bits(self) -> u64 {
        self.0 as u64 & ((1 << 56) - 1)
    }

    /// As text.
    pub fn hex(self) -> [u8; 32] {
        let mut text = [0; 32];
        hex(&self.bytes(), &mut text);
        text
    }
}

impl SpanId {
    /// A new id.
    pub fn random() -> SpanId {
        SpanId(random())
    }

    pub(crate) fn new(id: u64) -> Option<SpanId> {
        (id != 0).then_some(SpanId(id))
    }

    /// An id that follows from this one and a number. The same number gives the same id.
    pub(crate) fn derive(self, number: u64) -> SpanId {
        SpanId(mix(self.0.wrapping_add(number.wrapping_add(1).wrapping_mul(STEP))).max(1))
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// As text.
    pub fn hex(self) -> [u8; 16] {
        let mut text = [0; 16];
        hex(&self.bytes(), &mut text);
        text
    }
}

fn hex(bytes: &[u8], to: &mut [u8]) {
    for (byte, to) in bytes.iter().zip(to.chunks_exact_mut(2)) {
        to[0] = DIGITS[usize::from(byte >> 4)];
        to[1] = DIGITS[usize::from(byte & 15)];
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64 (Steele, Lea, Flood: *Fast Splittable Pseudorandom Number Generators*, 2014).
fn mix(state: u64) -> u64 {
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

thread_local! {
    /// Two generators, each with 64 bits from the operating system, so that the ids of no two threads or processes meet.
    static RANDOM: Cell<(u64, u64)> = {
        let seed = || RandomState::new().build_hasher().finish();
        Cell::new((seed(), seed()))
    };
}

fn random() -> u64 {
    RANDOM.with(|cell| {
        let (one, other) = cell.get();
        cell.set((one.wrapping_add(STEP), other));
        mix(one.wrapping_add(STEP)).max(1)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_distinct_also_between_threads() {
        let some = || (0..1000).map(|_| (TraceId::random(), SpanId::random())).collect::<Vec<_>>();
        let other = std::thread::spawn(some);
        let all: Vec<(TraceId, SpanId)> = some().into_iter().chain(other.join().expect("no panic")).collect();
        assert_eq!(all.iter().map(|(trace, _)| trace).collect::<HashSet<_>>().len(), 2000);
        assert_eq!(all.iter().map(|(_, span)| span).collect::<HashSet<_>>().len(), 2000);
    }

    #[test]
    fn derived_ids_are_distinct_and_repeatable() {
        let span = SpanId(7);
        let derived: HashSet<SpanId> = (0..10_000).map(|number| span.derive(number)).collect();
        assert_eq!(derived.len(), 10_000);
        assert!(!derived.contains(&span));
        assert_eq!(span.derive(3), SpanId(7).derive(3));
    }

    #[test]
    fn text_has_leading_zeros() {
        assert_eq!(
            (TraceId(0xab).to_string().as_bytes(), TraceId(0xab).to_string().len()),
            (&TraceId(0xab).hex()[..], 32)
        );
        assert_eq!(
            (SpanId(1).to_string().as_bytes(), SpanId(1).to_string().as_str()),
            (&SpanId(1).hex()[..], "0000000000000001")
        );
    }
}
