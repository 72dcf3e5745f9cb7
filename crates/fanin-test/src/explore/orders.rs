//! Orders in which the answers of requests in flight together arrive.

use std::collections::BTreeSet;
use std::time::Duration;

use super::change::{Case, Change};
use super::changes::Seen;
use crate::stub::End;

/// Groups of up to so many requests get all their orders.
const ALL_ORDERS: usize = 6;
/// Larger ones get so many, drawn at random.
const SOME_ORDERS: usize = 24;
/// How far answers are apart.
const STEP: Duration = Duration::from_millis(1);

/// The orders of a run, as cases; whether these are all.
pub(crate) fn cases(seen: &[Seen], random: &mut fastrand::Rng) -> (Vec<Case>, bool) {
    let mut found = BTreeSet::new();
    let mut is_complete = true;
    for group in groups(seen) {
        let mut orders = vec![Vec::new()];
        if group.len() <= ALL_ORDERS {
            permutations(&mut group.clone(), 0, &mut orders);
        } else {
            is_complete = false;
            for _ in 0..SOME_ORDERS {
                let mut order = group.clone();
                random.shuffle(&mut order);
                orders.push(order);
            }
        }
        let first = group.iter().map(|at| seen[*at].at).max().unwrap_or_default() + STEP;
        for order in orders.iter().filter(|order| !order.is_empty()) {
            let mut case = Case::new();
            for (place, at) in order.iter().enumerate() {
                let one = &seen[*at];
                let delay = first + STEP * u32::try_from(place).unwrap_or(u32::MAX) - one.at;
                if delay + STEP >= one.left {
                    break;
                }
                case.push((one.slot.clone(), Change::After(delay)));
            }
            if case.len() == order.len() {
                case.sort();
                found.insert(case);
            }
        }
    }
    (found.into_iter().collect(), is_complete)
}

/// Largest groups of requests that are in flight together, each of at least two.
fn groups(seen: &[Seen]) -> Vec<Vec<usize>> {
    let answered = |one: &&Seen| one.end != End::Never;
    let mut found: Vec<Vec<usize>> = Vec::new();
    for start in seen.iter().filter(answered).map(|one| one.at) {
        let in_flight = |one: &Seen| one.at <= start && start <= one.at + one.delay && one.end != End::Never;
        let group: Vec<usize> = (0..seen.len()).filter(|at| in_flight(&seen[*at])).collect();
        if group.len() > 1 && !found.contains(&group) {
            found.push(group);
        }
    }
    let all = found.clone();
    found.retain(|one| !all.iter().any(|other| other.len() > one.len() && one.iter().all(|at| other.contains(at))));
    found
}

fn permutations(items: &mut Vec<usize>, from: usize, found: &mut Vec<Vec<usize>>) {
    if from == items.len() {
        found.push(items.clone());
        return;
    }
    for at in from..items.len() {
        items.swap(from, at);
        permutations(items, from + 1, found);
        items.swap(from, at);
    }
}
