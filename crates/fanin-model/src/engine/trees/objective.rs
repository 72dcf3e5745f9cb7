//! From raw scores to predictions, in the libraries' own arithmetic: the same operations in the same order, with the C
//! library's `exp` and `log`, which Rust's `f64` and `f32` call as well.

/// What a model's objective makes of raw scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Objective {
    /// Nothing.
    Identity,
    /// One over one plus e to the minus scale times x, for each output.
    Sigmoid {
        /// LightGBM's `sigmoid:`; 1 elsewhere.
        scale: f64,
    },
    Exp,
    /// log(1 + e^x).
    Log1pExp,
    /// The sign of x times its square.
    SignedSquare,
    Softmax,
    /// Number of the greatest score (XGBoost's multi:softmax).
    ArgMax,
    /// 1 if the score is above 0 (XGBoost's binary:hinge).
    Hinge,
}

impl Objective {
    /// Columns of the output for this many raw scores.
    pub fn columns(self, groups: usize) -> usize {
        if self == Objective::ArgMax { 1 } else { groups }
    }

    /// As LightGBM computes it.
    pub fn double(self, scores: &mut [f64]) {
        let each = |scores: &mut [f64], one: fn(f64) -> f64| scores.iter_mut().for_each(|score| *score = one(*score));
        match self {
            Objective::Identity => {}
            Objective::Sigmoid { scale } => {
                scores.iter_mut().for_each(|score| *score = 1.0 / (1.0 + (-scale * *score).exp()));
            }
            Objective::Exp => each(scores, f64::exp),
            Objective::Log1pExp => each(scores, |score| score.exp().ln_1p()),
            Objective::SignedSquare => each(scores, |score| {
                let sign = f64::from(i8::from(score > 0.0) - i8::from(score < 0.0));
                sign * score * score
            }),
            Objective::Softmax => {
                let greatest = scores.iter().copied().fold(scores[0], |a, b| if a < b { b } else { a });
                let mut sum = 0.0;
                for score in scores.iter_mut() {
                    *score = (*score - greatest).exp();
                    sum += *score;
                }
                scores.iter_mut().for_each(|score| *score /= sum);
            }
            Objective::ArgMax => scores[0] = arg_max(scores) as f64,
            Objective::Hinge => each(scores, |score| f64::from(u8::from(score > 0.0))),
        }
    }

    /// As XGBoost computes it; the scores are single-precision numbers and stay so.
    pub fn single(self, scores: &mut [f64]) {
        let each = |scores: &mut [f64], one: fn(f32) -> f32| {
            scores.iter_mut().for_each(|score| *score = one(*score as f32).into());
        };
        match self {
            Objective::Sigmoid { .. } => each(scores, |score| {
                let power = if 88.7 < -score { 88.7 } else { -score };
                1.0 / (power.exp() + 1.0 + 1e-16)
            }),
            Objective::Exp => each(scores, f32::exp),
            Objective::Softmax => {
                let greatest = scores.iter().map(|score| *score as f32).fold(scores[0] as f32, f32::max);
                let mut sum = 0.0_f64;
                for score in scores.iter_mut() {
                    let power = (*score as f32 - greatest).exp();
                    *score = power.into();
                    sum += f64::from(power);
                }
                scores.iter_mut().for_each(|score| *score = f64::from(*score as f32 / sum as f32));
            }
            // None of these loses anything in double precision.
            Objective::Identity | Objective::ArgMax | Objective::Hinge => self.double(scores),
            // No objective of XGBoost.
            Objective::Log1pExp | Objective::SignedSquare => {}
        }
    }
}

/// The first of the greatest.
fn arg_max(scores: &[f64]) -> usize {
    let mut best = 0;
    for (at, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = at;
        }
    }
    best
}
