//! When requests are due: a rate over time, turned into moments.

use std::time::Duration;

use serde::Serialize;

use crate::error::LoadError;

/// How requests are spread within the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Evenly spaced.
    #[default]
    Even,
    /// A Poisson process, as independent users are. Reproducible by its seed.
    Poisson {
        /// Seed of the random numbers.
        seed: u64,
    },
}

/// A stretch of time over which the rate goes straight from one value to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Segment {
    /// Requests a second at its beginning.
    pub from: f64,
    /// Requests a second at its end.
    pub to: f64,
    /// How long it lasts, seconds in JSON.
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
}

/// The offered rate over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Shape {
    segments: Vec<Segment>,
}

impl Shape {
    /// The same rate all the time.
    pub fn constant(rate: f64, duration: Duration) -> Self {
        Self::of([Segment { from: rate, to: rate, duration }])
    }

    /// From one rate to another.
    pub fn ramp(from: f64, to: f64, duration: Duration) -> Self {
        Self::of([Segment { from, to, duration }])
    }

    /// Each rate for the same time, one after another.
    pub fn steps(rates: impl IntoIterator<Item = f64>, each: Duration) -> Self {
        Self::of(rates.into_iter().map(|rate| Segment { from: rate, to: rate, duration: each }))
    }

    /// Any segments, one after another.
    pub fn of(segments: impl IntoIterator<Item = Segment>) -> Self {
        Self { segments: segments.into_iter().collect() }
    }

    /// This shape, then that one.
    pub fn then(mut self, next: Self) -> Self {
        self.segments.extend(next.segments);
        self
    }

    /// How long all segments last.
    pub fn duration(&self) -> Duration {
        self.segments.iter().map(|segment| segment.duration).sum()
    }

    /// How many requests are due in all, on the average.
    pub fn requests(&self) -> f64 {
        self.segments.iter().map(|s| (s.from + s.to) / 2.0 * s.duration.as_secs_f64()).sum()
    }

    /// The rate at a moment, requests a second; 0 after the end.
    pub fn rate(&self, mut at: Duration) -> f64 {
        for segment in &self.segments {
            if at < segment.duration {
                return segment.from + (segment.to - segment.from) * at.as_secs_f64() / segment.duration.as_secs_f64();
            }
            at -= segment.duration;
        }
        0.0
    }

    /// Refuses rates and durations that no schedule can be made of.
    pub fn check(&self) -> Result<(), LoadError> {
        let bad = |why: &str| Err(LoadError::Plan(why.into()));
        for segment in &self.segments {
            if ![segment.from, segment.to].iter().all(|rate| rate.is_finite() && (0.0..=1e7).contains(rate)) {
                return bad("a rate has to be between 0 and 10,000,000 requests a second");
            }
        }
        if self.duration() > Duration::from_secs(7 * 24 * 3600) {
            return bad("a run may last a week at most");
        }
        if self.duration().is_zero() {
            return bad("a run needs a duration above 0");
        }
        Ok(())
    }

    /// The moments at which requests are due, from the beginning.
    pub fn schedule(&self, arrivals: Arrivals) -> Schedule {
        let random = match arrivals {
            Arrivals::Even => None,
            Arrivals::Poisson { seed } => Some(fastrand::Rng::with_seed(seed)),
        };
        let mut schedule =
            Schedule { segments: self.segments.clone(), at: 0, before: 0.0, begun: Duration::ZERO, due: 0.0, random };
        // The first even request is due at once.
        if schedule.random.is_some() {
            schedule.due = schedule.step();
        }
        schedule
    }
}

/// Moments in order, see [`Shape::schedule`].
///
/// With Λ(t) the number of requests due by t, request n is due at Λ⁻¹(n). With n replaced by a sum of n exponential
/// random numbers of mean 1 this is a Poisson process of that rate, whatever the rate does (time change of a unit process).
#[derive(Clone, Debug)]
pub struct Schedule {
    segments: Vec<Segment>,
    /// The current segment.
    at: usize,
    /// Λ at its beginning.
    before: f64,
    /// When it begins.
    begun: Duration,
    /// Λ of the next request.
    due: f64,
    random: Option<fastrand::Rng>,
}

impl Schedule {
    fn step(&mut self) -> f64 {
        match &mut self.random {
            None => 1.0,
            // 1 - x is above 0, as `f64` gives [0, 1).
            Some(random) => -(1.0 - random.f64()).ln(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        loop {
            let segment = *self.segments.get(self.at)?;
            let length = segment.duration.as_secs_f64();
            let holds = (segment.from + segment.to) / 2.0 * length;
            let within = self.due - self.before;
            if within < holds {
                let at = solve(segment.from, (segment.to - segment.from) / length, within).min(length);
                self.due += self.step();
                return Some(self.begun + Duration::from_secs_f64(at));
            }
            self.before += holds;
            self.begun += segment.duration;
            self.at += 1;
        }
    }
}

/// The t with `rate * t + slope * t² / 2 = count`, in the form that neither cancels nor divides by a slope of 0.
fn solve(rate: f64, slope: f64, count: f64) -> f64 {
    let root = (rate * rate + 2.0 * slope * count).max(0.0).sqrt();
    if rate + root == 0.0 { 0.0 } else { 2.0 * count / (rate + root) }
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn counts(shape: &Shape, arrivals: Arrivals) -> Vec<usize> {
        let mut counts = vec![0; shape.duration().as_secs() as usize];
        let mut last = Duration::ZERO;
        for at in shape.schedule(arrivals) {
            assert!(at >= last, "moments come in order");
            last = at;
            counts[at.as_secs() as usize] += 1;
        }
        counts
    }

    #[test]
    fn even_requests_are_evenly_spaced() {
        let moments: Vec<Duration> = Shape::constant(4.0, SECOND).schedule(Arrivals::Even).collect();
        assert_eq!(moments, [0, 250, 500, 750].map(Duration::from_millis));
    }

    #[test]
    fn a_ramp_offers_the_area_under_it() {
        let up = Shape::ramp(0.0, 100.0, 10 * SECOND);
        assert_eq!(counts(&up, Arrivals::Even).iter().sum::<usize>(), 500);
        assert!((counts(&up, Arrivals::Even)[9] as i64 - 95).abs() <= 1);
        let down = Shape::ramp(100.0, 0.0, 10 * SECOND);
        assert!((counts(&down, Arrivals::Even)[0] as i64 - 95).abs() <= 1);
        assert_eq!(up.requests(), 500.0);
    }

    #[test]
    fn steps_and_pauses_follow_each_other() {
        let shape = Shape::steps([10.0, 0.0, 1000.0], SECOND).then(Shape::constant(1.0, SECOND));
        assert_eq!(counts(&shape, Arrivals::Even), [10, 0, 1000, 1]);
        assert_eq!(shape.rate(Duration::from_millis(2500)), 1000.0);
        assert_eq!(shape.rate(10 * SECOND), 0.0);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_and_are_repeatable() {
        let shape = Shape::constant(1000.0, 20 * SECOND);
        let counts = counts(&shape, Arrivals::Poisson { seed: 1 });
        let total: usize = counts.iter().sum();
        // Five standard deviations of a Poisson count around 20,000.
        assert!((total as f64 - 20_000.0).abs() < 5.0 * 20_000f64.sqrt(), "{total}");
        let mean = total as f64 / 20.0;
        let variance = counts.iter().map(|&n| (n as f64 - mean).powi(2)).sum::<f64>() / 19.0;
        assert!((0.3..3.0).contains(&(variance / mean)), "as many as a Poisson process varies: {variance} of {mean}");
        let moments = |seed| shape.schedule(Arrivals::Poisson { seed }).take(100).collect::<Vec<_>>();
        assert_eq!(moments(1), moments(1));
        assert_ne!(moments(1), moments(2));
    }

    #[test]
    fn nonsense_is_refused() {
        for shape in [
            Shape::constant(f64::NAN, SECOND),
            Shape::constant(-1.0, SECOND),
            Shape::constant(1e9, SECOND),
            Shape::constant(1.0, Duration::ZERO),
            Shape::of([]),
        ] {
            assert!(shape.check().is_err(), "{shape:?}");
        }
    }
}
