//! XGBoost's JSON and UBJSON formats, which have the same content.
//!
//! Trees are lists side by side, one value a node; a node whose left child is -1 is a leaf, and its value stands among the
//! split conditions. A value below the condition goes left. Sums and objectives are in single precision.

use super::build::{Builder, Child, Split};
use super::document::{self, At};
use super::node::{CATEGORICAL, DEFAULT_LEFT, NAN_IS_MISSING, SET_GOES_RIGHT};
use super::objective::Objective;
use super::value::Value;
use super::{Arithmetic, Trees};
use crate::{LoadError, Signature};

/// Categories from here on are no categories to XGBoost.
const CATEGORIES: f64 = 16_777_216.0;

pub(super) fn read(bytes: &[u8], room: usize) -> Result<Trees, LoadError> {
    let value = document::read(bytes)?;
    let root = At::root(&value);
    let version = root.get("version")?;
    match version.numbers()? {
        [major, ..] if (1.0..4.0).contains(major) => {}
        other => return Err(version.unsupported(format!("version {other:?} (1 to 3 are known)"))),
    }
    let learner = root.get("learner")?;
    let parameters = learner.get("learner_model_param")?;
    let features = parameters.get("num_feature")?.count()?;
    let classes = parameters.get("num_class")?.count()?;
    let targets = match parameters.find("num_target") {
        Some(targets) => targets.count()?,
        None => 1,
    };
    let groups = classes.max(targets).max(1);
    if groups > usize::from(u16::MAX) {
        return Err(parameters.unsupported(format!("{groups} outputs")));
    }
    let objective = learner.get("objective")?.get("name")?;
    let (objective, to_margin) = objective_of(&objective)?;
    let base = base_score(&parameters.get("base_score")?, groups)?;
    let base: Vec<f64> = base.into_iter().map(|score| f64::from(to_margin(score))).collect();

    let booster = learner.get("gradient_booster")?;
    let (gbtree, weights) = match booster.get("name")?.text()? {
        "gbtree" => (booster.clone(), booster.find("weight_drop")),
        "dart" => (booster.get("gbtree")?, booster.find("weight_drop")),
        name => return Err(booster.unsupported(format!("booster `{name}`"))),
    };
    let model = gbtree.get("model")?;
    let weights = match weights.or_else(|| model.find("weight_drop")) {
        Some(weights) => weights.numbers()?.iter().map(|weight| *weight as f32).collect(),
        None => Vec::new(),
    };
    let trees = model.get("trees")?;
    let count = trees.list()?.len();
    let said = model.get("gbtree_model_param")?.get("num_trees")?.count()?;
    if count != said {
        return Err(trees.broken(format!("{count} trees are there, num_trees is {said}")));
    }
    if !weights.is_empty() && weights.len() != count {
        return Err(booster.broken(format!("{} weights for {count} trees", weights.len())));
    }
    let group_of = model.numbers_of("tree_info", count)?;
    let mut all_groups = Vec::with_capacity(count);
    for group in group_of {
        if *group < 0.0 || *group >= groups as f64 {
            return Err(model.broken(format!("tree_info has output {group} of {groups}")));
        }
        all_groups.push(*group as u16);
    }
    let mut builder = Builder::new(features, room)?;
    for (number, tree) in trees.list()?.enumerate() {
        if tree.find("id").is_some_and(|id| id.value != &Value::Number(number as f64)) {
            return Err(tree.broken("is not at the place that its id says"));
        }
        add(&mut builder, &tree)?;
    }
    let trees = Trees {
        forest: builder.finish()?,
        groups: if groups == 1 { Vec::new() } else { all_groups },
        weights,
        base,
        average: None,
        objective,
        arithmetic: Arithmetic::Single,
        features,
        signature: Signature::default(),
    };
    Ok(trees.with_signature(features))
}

/// `5E-1`, or since 3.1 `[5E-1,2E-1]`.
fn base_score(at: &At<'_>, groups: usize) -> Result<Vec<f32>, LoadError> {
    let text = at.text()?;
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let scores = inner.split(',').map(|score| score.trim().parse::<f32>().ok().filter(|score| score.is_finite()));
    let scores: Option<Vec<f32>> = scores.collect();
    match scores.ok_or_else(|| at.broken(format!("`{text}` is no score")))? {
        one if one.len() == 1 => Ok(vec![one[0]; groups]),
        all if all.len() == groups => Ok(all),
        all => Err(at.broken(format!("{} scores for {groups} outputs", all.len()))),
    }
}

type ToMargin = fn(f32) -> f32;

/// What the objective makes of a score, and how the base score, which is given as a prediction, becomes a score again.
fn objective_of(at: &At<'_>) -> Result<(Objective, ToMargin), LoadError> {
    let same: ToMargin = |score| score;
    let logit: ToMargin = |score| {
        let score = score.clamp(1e-6, 1.0 - 1e-6);
        -(1.0 / score - 1.0).ln()
    };
    let name = at.text()?;
    Ok(match name {
        "reg:squarederror"
        | "reg:linear"
        | "reg:squaredlogerror"
        | "reg:pseudohubererror"
        | "reg:absoluteerror"
        | "reg:quantileerror"
        | "binary:logitraw"
        | "rank:pairwise"
        | "rank:ndcg"
        | "rank:map" => (Objective::Identity, same),
        "reg:logistic" | "binary:logistic" => (Objective::Sigmoid { scale: 1.0 }, logit),
        "binary:hinge" => (Objective::Hinge, same),
        "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => (Objective::Exp, f32::ln),
        "multi:softprob" => (Objective::Softmax, same),
        "multi:softmax" => (Objective::ArgMax, same),
        _ => return Err(at.unsupported(format!("objective `{name}`"))),
    })
}

fn add(builder: &mut Builder, tree: &At<'_>) -> Result<(), LoadError> {
    let parameters = tree.get("tree_param")?;
    let count = parameters.get("num_nodes")?.count()?;
    if parameters.find("size_leaf_vector").map(|size| size.count()).transpose()?.is_some_and(|size| size > 1) {
        return Err(tree.unsupported("its leaves are vectors (multi_strategy = multi_output_tree)"));
    }
    let lefts = tree.numbers_of("left_children", count)?;
    let rights = tree.numbers_of("right_children", count)?;
    let features = tree.numbers_of("split_indices", count)?;
    let conditions = tree.numbers_of("split_conditions", count)?;
    let default_left = flags(&tree.get("default_left")?, count)?;
    let categorical = match tree.find("split_type") {
        Some(kinds) => flags(&kinds, count)?,
        None => vec![false; count],
    };
    let sets = sets(builder, tree, count, categorical.contains(&true))?;

    // Splits in the order in which they are met: deleted nodes are never met. No recursion, for a tree may be deep.
    let met = |at: f64| match at as usize {
        node if at >= 0.0 && node < count => Ok(node),
        _ => Err(tree.broken(format!("leads to node {at} of {count}"))),
    };
    let mut order = vec![met(0.0)?];
    order.retain(|root| lefts[*root] != -1.0);
    let mut number = vec![None; count];
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        if number[node].replace(next).is_some() {
            return Err(tree.broken(format!("node {node} is reached twice")));
        }
        next += 1;
        for child in [met(lefts[node])?, met(rights[node])?] {
            if lefts[child] != -1.0 {
                order.push(child);
            }
        }
    }
    let child = |node: usize| number[node].map_or(Child::Leaf(conditions[node]), Child::Split);
    let mut splits = Vec::with_capacity(order.len());
    for node in order {
        let mut flags = NAN_IS_MISSING | if default_left[node] { DEFAULT_LEFT } else { 0 };
        let threshold = if categorical[node] {
            flags |= CATEGORICAL | SET_GOES_RIGHT;
            sets[node].ok_or_else(|| tree.broken(format!("node {node} has no categories")))?
        } else if conditions[node].is_nan() {
            return Err(tree.broken(format!("node {node} has no threshold")));
        } else {
            at_most(conditions[node] as f32)
        };
        if features[node] < 0.0 {
            return Err(tree.broken(format!("node {node} asks feature {}", features[node])));
        }
        let (left, right) = (child(met(lefts[node])?), child(met(rights[node])?));
        splits.push(Split { feature: features[node] as usize, threshold, flags, left, right });
    }
    builder.tree(&splits, child(0))
}

/// The bound `b` for which `x <= b` says what `x < condition` says, for single-precision x.
fn at_most(condition: f32) -> f64 {
    if condition == f32::NEG_INFINITY {
        // Nothing is below it, and nothing is at most NaN.
        return f64::NAN;
    }
    condition.next_down().into()
}

/// Booleans, written as such, as numbers, or as a typed list.
fn flags(at: &At<'_>, count: usize) -> Result<Vec<bool>, LoadError> {
    let all: Option<Vec<bool>> = match at.value {
        Value::Numbers(all) => {
            all.iter().map(|one| if *one == 0.0 || *one == 1.0 { Some(*one == 1.0) } else { None }).collect()
        }
        Value::List(all) => all.iter().map(|one| if let Value::Bool(one) = one { Some(*one) } else { None }).collect(),
        _ => None,
    };
    match all {
        Some(all) if all.len() == count => Ok(all),
        Some(all) => Err(at.broken(format!("has {} values, {count} are expected", all.len()))),
        None => Err(at.broken("is not a list of zeros and ones")),
    }
}

/// The set of each categorical node.
fn sets(builder: &mut Builder, tree: &At<'_>, count: usize, any: bool) -> Result<Vec<Option<f64>>, LoadError> {
    let mut sets = vec![None; count];
    if !any {
        return Ok(sets);
    }
    let nodes = tree.get("categories_nodes")?.numbers()?;
    let starts = tree.numbers_of("categories_segments", nodes.len())?;
    let sizes = tree.numbers_of("categories_sizes", nodes.len())?;
    let categories = tree.get("categories")?.numbers()?;
    for ((node, start), size) in nodes.iter().zip(starts).zip(sizes) {
        let range = *start as usize..(*start as usize).saturating_add(*size as usize);
        let (Some(chosen), Some(place)) = (categories.get(range), sets.get_mut(*node as usize)) else {
            return Err(tree.broken(format!("categories of node {node} are not there")));
        };
        let mut bits = Vec::new();
        for category in chosen {
            if !(0.0..CATEGORIES).contains(category) {
                return Err(tree.broken(format!("category {category} of node {node}")));
            }
            let category = *category as usize;
            if bits.len() <= category / 32 {
                bits.resize(category / 32 + 1, 0_u32);
            }
            bits[category / 32] |= 1 << (category % 32);
        }
        *place = Some(builder.set(&bits)?);
    }
    Ok(sets)
}
