//! Faults, and random sequences of them.

use std::ops::Range;
use std::time::Duration;

/// A fault. It applies to open connections and to new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: bytes pass as they come.
    #[default]
    Pass,
    /// New connections are refused, as if no process listened. Open ones continue.
    Refuse,
    /// Nothing moves, in either direction, not even the end of a connection: the host has vanished without a FIN.
    /// Connections can still be made, since the kernel makes them.
    Hang,
    /// All connections are reset, and new ones at once.
    Reset,
    /// Each piece of an answer is delayed by this much.
    Delay(Duration),
    /// Answers come in pieces of so many bytes with a pause between two.
    Slice {
        /// Bytes a piece, at least 1.
        bytes: usize,
        /// Time between two.
        pause: Duration,
    },
    /// One in so many bytes of answers (on average, by the seed) has a flipped bit.
    Corrupt {
        /// 1 flips a bit in every byte.
        one_in: u32,
    },
    /// Answers come at so many bytes a second, at least 1, on each connection.
    Bandwidth(u64),
    /// A connection ends, with a FIN, after so many bytes of answers since the fault was set.
    Cut(u64),
}

/// A fault and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The fault.
    pub fault: Fault,
    /// How long it lasts.
    pub lasts: Duration,
}

/// Faults of `faults` in random order for random times within `lasts`, until `total` is reached; the same for the same seed.
///
/// The last step is cut short so that the sum is `total`.
pub fn random_steps(seed: u64, faults: &[Fault], lasts: Range<Duration>, total: Duration) -> Vec<Step> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut steps = Vec::new();
    let mut left = total;
    // A step of no length would never fill the total.
    let least = lasts.start.max(Duration::from_millis(1));
    while !left.is_zero() {
        let Some(&fault) = random.choice(faults) else { break };
        let spread = lasts.end.saturating_sub(least).as_secs_f64();
        let lasts = (least + Duration::from_secs_f64(spread * random.f64())).min(left);
        steps.push(Step { fault, lasts });
        left -= lasts;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_steps_fill_the_time_and_are_repeatable() {
        let ms = Duration::from_millis;
        let faults = [Fault::Pass, Fault::Reset, Fault::Hang];
        let steps = |seed| random_steps(seed, &faults, ms(10)..ms(50), ms(2000));
        let first = steps(3);
        assert_eq!(first.iter().map(|step| step.lasts).sum::<Duration>(), ms(2000));
        assert!(first[..first.len() - 1].iter().all(|step| (ms(10)..ms(50)).contains(&step.lasts)));
        assert!(faults.iter().all(|fault| first.iter().any(|step| step.fault == *fault)));
        assert_eq!(first, steps(3));
        assert_ne!(first, steps(4));
        assert!(random_steps(1, &[], ms(1)..ms(2), ms(10)).is_empty());
        assert!(random_steps(1, &faults, ms(0)..ms(0), ms(10)).len() <= 10);
    }
}
