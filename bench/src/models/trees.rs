//! A model of a given size in LightGBM's text format, the same at every run. What it says means nothing.

use std::fmt::Write;

/// A row of numbers that do not repeat (Knuth's MMIX generator).
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The same row for the same seed.
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// From -1 to 1.
    pub fn unit(&mut self) -> f64 {
        self.below(2_000_001) as f64 / 1e6 - 1.0
    }
}

/// Trees grown leaf by leaf at random places, as boosting grows them: of uneven depth.
pub fn model(trees: usize, leaves: usize, features: usize) -> String {
    with_leaves(trees, leaves, features, &|numbers| numbers.unit() / 100.0)
}

/// The same shape, but every leaf says `value`, so that the raw score is the number of trees times `value`, whatever is asked.
pub fn constant(trees: usize, leaves: usize, features: usize, value: f64) -> String {
    with_leaves(trees, leaves, features, &|_| value)
}

fn with_leaves(trees: usize, leaves: usize, features: usize, leaf: &dyn Fn(&mut Numbers) -> f64) -> String {
    let mut numbers = Numbers::new(7);
    let names: Vec<String> = (0..features).map(|feature| format!("f{feature}")).collect();
    let infos = vec!["[-1:1]"; features].join(" ");
    let mut text = format!(
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx={}\nobjective=binary \
         sigmoid:1\nfeature_names={}\nfeature_infos={infos}\n\n",
        features - 1,
        names.join(" ")
    );
    for tree in 0..trees {
        // A leaf is a negative number; who leads to it is known, so that a split can take its place.
        let (mut left, mut right): (Vec<i64>, Vec<i64>) = (vec![-1], vec![-2]);
        while left.len() + 1 < leaves {
            let split = left.len() as i64;
            let chosen = -1 - numbers.below(left.len() + 1) as i64;
            for child in left.iter_mut().chain(&mut right).filter(|child| **child == chosen) {
                *child = split;
            }
            left.push(chosen);
            right.push(-(split + 2));
        }
        let mut list = |count: usize, one: &mut dyn FnMut(&mut Numbers) -> String| -> String {
            (0..count).map(|_| one(&mut numbers)).collect::<Vec<_>>().join(" ")
        };
        let splits = leaves - 1;
        let joined = |all: &[i64]| all.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        let features = list(splits, &mut |numbers| numbers.below(features).to_string());
        let thresholds = list(splits, &mut |numbers| format!("{:?}", numbers.unit() / 2.0));
        let values = list(leaves, &mut |numbers| format!("{:?}", leaf(numbers)));
        let decisions = vec!["10"; splits].join(" ");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "Tree={tree}\nnum_leaves={leaves}\nnum_cat=0\nsplit_feature={features}\nthreshold={thresholds}\n\
             decision_type={decisions}\nleft_child={}\nright_child={}\nleaf_value={values}\nis_linear=0\nshrinkage=1\n\n",
            joined(&left),
            joined(&right)
        );
    }
    text.push_str("end of trees\n");
    text
}
