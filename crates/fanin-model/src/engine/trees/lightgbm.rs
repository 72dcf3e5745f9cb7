//! LightGBM's text format.
//!
//! A head of `key=value` lines up to the first empty part, then a part for each tree (`Tree=0`, `num_leaves=31`, and a list
//! a line), then `end of trees`. What follows that is for people. Lists have one value a split or one a leaf; in
//! `left_child` and `right_child` a number below zero is a leaf's, counted from -1 downwards. `decision_type` is a byte:
//! bit 0 categorical, bit 1 missing values go left, bits 2 and 3 what counts as missing (none, zero, NaN).

use std::str::FromStr;

use super::build::{Builder, Child, Split};
use super::node::{CATEGORICAL, DEFAULT_LEFT, NAN_IS_MISSING, ZERO_IS_MISSING};
use super::objective::Objective;
use super::{Arithmetic, Trees};
use crate::{LoadError, Signature};

/// Lines that the head or a tree may have; LightGBM writes about twenty. Each is compared with those before it.
const MAX_LINES: usize = 1000;

/// Lines of `key=value`, in the order of the file.
#[derive(Debug)]
struct Part<'a> {
    name: String,
    lines: Vec<(&'a str, &'a str)>,
}

impl<'a> Part<'a> {
    fn find(&self, key: &str) -> Option<&'a str> {
        self.lines.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    fn get(&self, key: &str) -> Result<&'a str, LoadError> {
        self.find(key).ok_or_else(|| self.broken(format!("`{key}` is missing; the file may be cut off")))
    }

    fn number<T: FromStr>(&self, key: &str) -> Result<T, LoadError> {
        let text = self.get(key)?;
        text.trim().parse().map_err(|_| self.broken(format!("{key}={} is not a number that it may be", cut(text))))
    }

    fn list<T: FromStr>(&self, key: &str, count: usize) -> Result<Vec<T>, LoadError> {
        let text = self.get(key)?;
        let mut all = Vec::with_capacity(count.min(text.len()));
        for word in text.split_ascii_whitespace() {
            let value = word.parse();
            all.push(value.map_err(|_| self.broken(format!("{key}: {} is not a number that it may be", cut(word))))?);
        }
        if all.len() != count {
            let what = format!("{key} has {} values, {count} are expected; the file may be cut off", all.len());
            return Err(self.broken(what));
        }
        Ok(all)
    }

    fn broken(&self, what: impl Into<String>) -> LoadError {
        LoadError::broken(&self.name, what)
    }

    fn unsupported(&self, what: impl Into<String>) -> LoadError {
        LoadError::unsupported(&self.name, what)
    }
}

fn cut(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    format!("`{short}`")
}

pub(super) fn read(bytes: &[u8], room: usize) -> Result<Trees, LoadError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        LoadError::broken("model", format!("is not text: byte {} is not UTF-8", error.valid_up_to()))
    })?;
    let mut lines = text.lines().map(|line| line.trim_end_matches('\r'));
    if lines.next() != Some("tree") {
        return Err(LoadError::broken("model", "does not begin with `tree`, as LightGBM's text format does"));
    }
    let mut head = Part { name: "head".into(), lines: Vec::new() };
    let mut trees: Vec<Part<'_>> = Vec::new();
    let mut ended = false;
    for line in lines {
        if line == "end of trees" {
            ended = true;
            break;
        }
        if line.is_empty() {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if key == "Tree" {
            if value.parse() != Ok(trees.len()) {
                return Err(LoadError::broken(format!("tree {}", trees.len()), format!("is numbered {}", cut(value))));
            }
            trees.push(Part { name: format!("tree {value}"), lines: Vec::new() });
            continue;
        }
        let part = trees.last_mut().unwrap_or(&mut head);
        if part.find(key).is_some() {
            return Err(part.broken(format!("{} is there twice", cut(key))));
        }
        if part.lines.len() == MAX_LINES {
            return Err(part.broken(format!("has more than {MAX_LINES} lines, as no part of a model does")));
        }
        part.lines.push((key, value));
    }
    if !ended {
        return Err(LoadError::broken("model", "has no line `end of trees`; the file is cut off"));
    }
    model(&head, &trees, room)
}

fn model(head: &Part<'_>, trees: &[Part<'_>], room: usize) -> Result<Trees, LoadError> {
    let version = head.get("version")?;
    if !matches!(version, "v2" | "v3" | "v4") {
        return Err(head.unsupported(format!("version {} of the format (v2, v3 and v4 are known)", cut(version))));
    }
    let features = head.number::<usize>("max_feature_idx")?.saturating_add(1);
    let classes: usize = head.number("num_class")?;
    let groups: usize = match head.find("num_tree_per_iteration") {
        Some(_) => head.number("num_tree_per_iteration")?,
        None => classes,
    };
    if groups == 0 || groups > usize::from(u16::MAX) || !trees.len().is_multiple_of(groups) {
        let what = format!("num_tree_per_iteration is {groups}, of {} trees", trees.len());
        return Err(head.broken(what));
    }
    if let Some(sizes) = head.find("tree_sizes") {
        let said = sizes.split_ascii_whitespace().count();
        if said != trees.len() {
            let what = format!("tree_sizes tells of {said} trees, {} are there; the file may be cut off", trees.len());
            return Err(head.broken(what));
        }
    }
    let objective = objective(head, groups)?;
    let mut builder = Builder::new(features, room)?;
    for tree in trees {
        add(&mut builder, tree)?;
    }
    let average = head.find("average_output").map(|_| (trees.len() / groups) as f64);
    let group_of = |tree: usize| (tree % groups) as u16;
    let trees = Trees {
        forest: builder.finish()?,
        groups: if groups == 1 { Vec::new() } else { (0..trees.len()).map(group_of).collect() },
        weights: Vec::new(),
        base: vec![0.0; groups],
        average,
        objective,
        arithmetic: Arithmetic::Double,
        features,
        signature: Signature::default(),
    };
    Ok(trees.with_signature(features))
}

/// `binary sigmoid:1`, `multiclass num_class:3`, `regression sqrt`; absent if the objective was the user's own.
fn objective(head: &Part<'_>, groups: usize) -> Result<Objective, LoadError> {
    let Some(text) = head.find("objective") else { return Ok(Objective::Identity) };
    let mut words = text.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let mut scale = 1.0;
    let mut sqrt = false;
    for word in words {
        match word.split_once(':') {
            Some(("sigmoid", value)) => {
                scale = value.parse().map_err(|_| head.broken(format!("objective: sigmoid is {}", cut(value))))?;
            }
            Some(("num_class", value)) if value.parse() == Ok(groups) => {}
            Some(("num_class", value)) => {
                return Err(head.broken(format!("objective has {value} classes, an iteration {groups} trees")));
            }
            // They tell how it was trained.
            Some(("alpha" | "c" | "tweedie_variance_power", _)) => {}
            None if word == "sqrt" => sqrt = true,
            _ => return Err(head.unsupported(format!("objective {} with {}", cut(name), cut(word)))),
        }
    }
    Ok(match name {
        "regression" if sqrt => Objective::SignedSquare,
        "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" | "lambdarank" | "rank_xendcg"
        | "custom" | "none" => Objective::Identity,
        "binary" | "multiclassova" => Objective::Sigmoid { scale },
        "cross_entropy" => Objective::Sigmoid { scale: 1.0 },
        "cross_entropy_lambda" => Objective::Log1pExp,
        "poisson" | "gamma" | "tweedie" => Objective::Exp,
        "multiclass" => Objective::Softmax,
        _ => return Err(head.unsupported(format!("objective {}", cut(name)))),
    })
}

fn add(builder: &mut Builder, part: &Part<'_>) -> Result<(), LoadError> {
    if part.find("is_linear").is_some_and(|value| value.trim() != "0") {
        return Err(part.unsupported("its leaves are linear models (linear_tree)"));
    }
    let leaves: usize = part.number("num_leaves")?;
    if leaves == 0 {
        return Err(part.broken("has no leaves"));
    }
    let values: Vec<f64> = part.list("leaf_value", leaves)?;
    let count = leaves - 1;
    if count == 0 {
        return builder.tree(&[], Child::Leaf(values[0]));
    }
    let features: Vec<usize> = part.list("split_feature", count)?;
    let thresholds: Vec<f64> = part.list("threshold", count)?;
    let lefts: Vec<i64> = part.list("left_child", count)?;
    let rights: Vec<i64> = part.list("right_child", count)?;
    let decisions: Vec<u8> = match part.find("decision_type") {
        Some(_) => part.list("decision_type", count)?,
        None => vec![0; count],
    };
    let sets = sets(builder, part)?;
    let child = |number: i64| match usize::try_from(number) {
        Ok(split) => Ok(Child::Split(split)),
        Err(_) => {
            let leaf = number.unsigned_abs() - 1;
            let value = usize::try_from(leaf).ok().and_then(|leaf| values.get(leaf));
            value
                .map(|value| Child::Leaf(*value))
                .ok_or_else(|| part.broken(format!("leads to leaf {leaf} of {leaves}")))
        }
    };
    let mut splits = Vec::with_capacity(count);
    for at in 0..count {
        let decision = decisions[at];
        if decision > 0b1111 || decision >> 2 == 3 {
            return Err(part.unsupported(format!("node {at} decides in way {decision}")));
        }
        let mut flags = 0;
        let mut threshold = thresholds[at];
        if decision & 1 != 0 {
            // A category that is missing goes right, whatever the rest says.
            flags |= CATEGORICAL;
            let set = threshold as usize;
            threshold = *sets
                .get(set)
                .filter(|_| threshold >= 0.0)
                .ok_or_else(|| part.broken(format!("node {at} asks set {threshold} of {}", sets.len())))?;
        } else {
            if threshold.is_nan() {
                return Err(part.broken(format!("node {at} has no threshold")));
            }
            flags |= if decision & 2 != 0 { DEFAULT_LEFT } else { 0 };
            flags |= [0, ZERO_IS_MISSING, NAN_IS_MISSING][usize::from(decision >> 2)];
        }
        let (left, right) = (child(lefts[at])?, child(rights[at])?);
        splits.push(Split { feature: features[at], threshold, flags, left, right });
    }
    builder.tree(&splits, Child::Split(0))
}

/// The tree's sets of categories.
fn sets(builder: &mut Builder, part: &Part<'_>) -> Result<Vec<f64>, LoadError> {
    let count: usize = part.number("num_cat")?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let bounds = count.checked_add(1).ok_or_else(|| part.broken(format!("num_cat is {count}")))?;
    let bounds: Vec<usize> = part.list("cat_boundaries", bounds)?;
    let words: Vec<u32> = part.list("cat_threshold", bounds.last().copied().unwrap_or(0))?;
    let mut sets = Vec::with_capacity(count);
    for pair in bounds.windows(2) {
        match words.get(pair[0]..pair[1]) {
            Some(bits) => sets.push(builder.set(bits)?),
            None => return Err(part.broken("cat_boundaries do not rise")),
        }
    }
    Ok(sets)
}
