//! How long a stub takes to answer: a duration, a range, or a distribution of latencies, drawn from the test's seed.

use std::time::Duration;

use fanin_config::parse_duration;

/// How long a stub takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Delay {
    /// Always as long.
    Fixed(Duration),
    /// Evenly from one to the other.
    Uniform(Duration, Duration),
    /// Log-normal, by its median and its 99th percentile: the usual form of latencies.
    LogNormal {
        /// Half of the answers are faster.
        median: Duration,
        /// 99 % of the answers are faster.
        p99: Duration,
    },
}

/// The 99th percentile of the standard normal distribution.
const Z99: f64 = 2.326_347_874_040_841;
/// A drawn latency is at most so many times the 99th percentile: a test should not wait for ever by chance.
const MOST: f64 = 10.0;

impl Delay {
    /// Reads `"20ms"`, `"5ms..20ms"` or `"p50 20ms, p99 200ms"`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Delay, String> {
        let duration = |text: &str| parse_duration(text.trim()).map_err(|error| format!("{:?}: {error}", text.trim()));
        if let Some((least, most)) = text.split_once("..") {
            let (least, most) = (duration(least)?, duration(most)?);
            return match least <= most {
                true => Ok(Delay::Uniform(least, most)),
                false => Err(format!("{text:?}: the first duration is longer than the second")),
            };
        }
        if let Some(rest) = text.trim().strip_prefix("p50") {
            let (median, rest) = rest.split_once(',').ok_or_else(|| format!("{text:?} has no p99"))?;
            let p99 = rest.trim().strip_prefix("p99").ok_or_else(|| format!("{text:?} has no p99"))?;
            let (median, p99) = (duration(median)?, duration(p99)?);
            return match !median.is_zero() && median <= p99 {
                true => Ok(Delay::LogNormal { median, p99 }),
                false => Err(format!("{text:?}: p50 must be above zero and at most p99")),
            };
        }
        duration(text).map(Delay::Fixed)
    }

    /// One latency.
    pub(crate) fn draw(&self, random: &mut fastrand::Rng) -> Duration {
        match *self {
            Delay::Fixed(delay) => delay,
            Delay::Uniform(least, most) => least + (most - least).mul_f64(random.f64()),
            Delay::LogNormal { median, p99 } => {
                let sigma = (p99.as_secs_f64() / median.as_secs_f64()).ln() / Z99;
                let factor = (sigma * normal(random)).exp();
                median.mul_f64(factor.min(MOST * p99.as_secs_f64() / median.as_secs_f64()))
            }
        }
    }
}

/// A standard normal number (Box and Muller, 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    // Not zero, whose logarithm is infinite.
    let (a, b) = (1.0 - random.f64(), random.f64());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let ms = Duration::from_millis;
        assert_eq!(Delay::parse("20ms"), Ok(Delay::Fixed(ms(20))));
        assert_eq!(Delay::parse("5ms..1s"), Ok(Delay::Uniform(ms(5), ms(1000))));
        assert_eq!(Delay::parse("p50 20ms, p99 200ms"), Ok(Delay::LogNormal { median: ms(20), p99: ms(200) }));
        for bad in
            ["", "20", "x..y", "9ms..5ms", "p50 20ms", "p50 20ms, 200ms", "p50 30ms, p99 20ms", "p50 0ms, p99 1ms"]
        {
            assert!(Delay::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn percentiles_are_those_asked_for() {
        let delay = Delay::parse("p50 20ms, p99 200ms").unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut drawn: Vec<f64> = (0..20_000).map(|_| delay.draw(&mut random).as_secs_f64() * 1e3).collect();
        drawn.sort_by(f64::total_cmp);
        assert!((19.0..21.0).contains(&drawn[10_000]), "{}", drawn[10_000]);
        assert!((180.0..220.0).contains(&drawn[19_800]), "{}", drawn[19_800]);
    }
}
