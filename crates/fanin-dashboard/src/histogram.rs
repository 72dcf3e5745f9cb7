//! Quantiles of histograms.

/// Counts by upper bound, each with those below it. All histograms of a metric have the same bounds, which are kept elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Histogram {
    pub(crate) cumulative: Vec<u64>,
    pub(crate) sum: f64,
}

impl Histogram {
    pub(crate) fn count(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or(0)
    }

    /// What was observed since an earlier reading.
    pub(crate) fn since(&self, before: Option<&Histogram>) -> Histogram {
        let Some(before) = before else { return self.clone() };
        // A route that a reload removed and another brought back counts from zero again.
        if before.count() > self.count() || before.cumulative.len() != self.cumulative.len() {
            return self.clone();
        }
        let counts = self.cumulative.iter().zip(&before.cumulative);
        Histogram {
            cumulative: counts.map(|(now, before)| now.saturating_sub(*before)).collect(),
            sum: (self.sum - before.sum).max(0.0),
        }
    }

    pub(crate) fn add(&mut self, other: &Histogram) {
        self.cumulative.resize(self.cumulative.len().max(other.cumulative.len()), 0);
        self.cumulative.iter_mut().zip(&other.cumulative).for_each(|(sum, more)| *sum += more);
        self.sum += other.sum;
    }

    /// Interpolated within its bucket, as Prometheus does. Above the last finite bound, that bound.
    pub(crate) fn quantile(&self, bounds: &[f64], quantile: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = quantile * count as f64;
        let at = self.cumulative.iter().position(|below| *below as f64 >= rank)?;
        let lower = if at == 0 { 0.0 } else { bounds[at - 1] };
        let upper = *bounds.get(at)?;
        if !upper.is_finite() {
            return Some(lower);
        }
        let below = if at == 0 { 0 } else { self.cumulative[at - 1] };
        let within = (self.cumulative[at] - below) as f64;
        Some(if within == 0.0 { upper } else { lower + (upper - lower) * (rank - below as f64) / within })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [f64; 4] = [0.1, 0.2, 0.4, f64::INFINITY];

    fn of(cumulative: [u64; 4]) -> Histogram {
        Histogram { cumulative: cumulative.to_vec(), sum: 1.0 }
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let quantile = |cumulative, quantile| of(cumulative).quantile(&BOUNDS, quantile).expect("observations");
        assert!((quantile([0, 100, 100, 100], 0.5) - 0.15).abs() < 1e-9);
        assert!((quantile([50, 100, 100, 100], 0.5) - 0.1).abs() < 1e-9);
        assert!((quantile([0, 0, 0, 10], 0.99) - 0.4).abs() < 1e-9);
        assert_eq!(Histogram::default().quantile(&BOUNDS, 0.5), None);
        assert_eq!(of([0; 4]).quantile(&BOUNDS, 0.5), None);
    }

    #[test]
    fn a_histogram_that_restarted_counts_from_zero() {
        let now = of([1, 2, 3, 4]);
        assert_eq!(now.since(Some(&of([0, 1, 1, 2]))).cumulative, [1, 1, 2, 2]);
        assert_eq!(now.since(Some(&of([9, 9, 9, 9]))), now);
        assert_eq!(now.since(None), now);
    }
}
