//! One request in 16 bytes.

/// Bits for a length in microseconds: 101 days.
const LENGTH_BITS: u32 = 43;
/// Bits for a place within a second, in microseconds.
const PLACE_BITS: u32 = 20;

/// The longest request believed, microseconds. A longer one is a mistaken unit or another number of the line.
pub(crate) const MAX_LENGTH: u64 = 30 * 86_400 * 1_000_000;

pub(crate) const SECOND: i64 = 1_000_000;

/// When a request began and how long it took.
///
/// A stamp in whole seconds says only that the request began somewhere within a second after `earliest`. `place` is then a
/// guess where; guesses are spread evenly over the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    earliest: i64,
    /// From the top: whether the stamp is in whole seconds, place, length.
    packed: u64,
}

impl Record {
    /// A request whose start is known.
    pub(crate) fn exact(start: i64, length: u64) -> Record {
        debug_assert!(length <= MAX_LENGTH);
        Record { earliest: start, packed: length.min(MAX_LENGTH) }
    }

    /// A request that began at `earliest` or less than a second later, the `number`th of its log.
    pub(crate) fn within_second(earliest: i64, length: u64, number: u64) -> Record {
        // Multiples of the golden ratio modulo 1 fill the second evenly however many there are (Weyl's sequence).
        let share = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = (share * SECOND as u64) >> 32;
        Record { earliest, packed: length.min(MAX_LENGTH) | place << LENGTH_BITS | 1 << (LENGTH_BITS + PLACE_BITS) }
    }

    /// Length in microseconds.
    #[inline]
    pub(crate) fn length(self) -> u64 {
        self.packed & ((1 << LENGTH_BITS) - 1)
    }

    /// Whether the start is known to a second only.
    #[inline]
    pub(crate) fn is_whole_seconds(self) -> bool {
        self.packed >> (LENGTH_BITS + PLACE_BITS) != 0
    }

    /// The start, or the guess of it.
    #[inline]
    pub(crate) fn start(self) -> i64 {
        self.earliest + (self.packed >> LENGTH_BITS & ((1 << PLACE_BITS) - 1)) as i64
    }

    /// The end that goes with [`Record::start`].
    #[inline]
    pub(crate) fn end(self) -> i64 {
        self.start() + self.length() as i64
    }

    /// The earliest start possible.
    #[inline]
    pub(crate) fn earliest(self) -> i64 {
        self.earliest
    }

    /// The latest start possible.
    #[inline]
    pub(crate) fn latest(self) -> i64 {
        self.earliest + if self.is_whole_seconds() { SECOND } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        assert_eq!(size_of::<Record>(), 16);
        let exact = Record::exact(-5, MAX_LENGTH);
        assert_eq!((exact.start(), exact.length(), exact.latest()), (-5, MAX_LENGTH, -5));
        assert!(!exact.is_whole_seconds());
        for number in 0..10_000 {
            let record = Record::within_second(7 * SECOND, 400_000, number);
            assert!(record.is_whole_seconds());
            assert_eq!((record.earliest(), record.latest(), record.length()), (7 * SECOND, 8 * SECOND, 400_000));
            assert!((7 * SECOND..8 * SECOND).contains(&record.start()));
        }
    }

    #[test]
    fn places_fill_the_second_evenly() {
        let mut tenths = [0; 10];
        for number in 0..1000 {
            tenths[(Record::within_second(0, 1, number).start() / 100_000) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (95..=105).contains(count)), "{tenths:?}");
    }
}
