//! Which cases are worth another deviation: those whose run differs from that of the case without one of its deviations, and from
//! that of the case with another deviation of the same request.

use std::collections::{BTreeMap, HashMap};

use super::change::{Case, Slot};

/// The runs of all cases so far, by their signatures.
#[derive(Default)]
pub(crate) struct Alike {
    runs: HashMap<Case, u64>,
    /// For a case and a request that it does not vary: runs with a deviation of that request, and the first deviation that led to each.
    siblings: HashMap<(Case, Slot), BTreeMap<u64, Case>>,
}

impl Alike {
    /// Adds the run of a case. Of cases that are alike, the first one that is added stands for all.
    pub(crate) fn add(&mut self, case: &Case, signature: u64) {
        self.runs.insert(case.clone(), signature);
        for at in 0..case.len() {
            let key = without(case, at);
            self.siblings.entry(key).or_default().entry(signature).or_insert_with(|| case.clone());
        }
    }

    /// Whether a case is like no smaller one, and stands for those that vary the same requests.
    pub(crate) fn is_new(&self, case: &Case, signature: u64) -> bool {
        (0..case.len()).all(|at| {
            let key = without(case, at);
            let stands =
                self.siblings.get(&key).and_then(|runs| runs.get(&signature)).is_none_or(|first| first == case);
            stands && self.runs.get(&key.0).is_none_or(|before| *before != signature)
        })
    }
}

/// The case without one of its deviations, and the request that this was of.
fn without(case: &Case, at: usize) -> (Case, Slot) {
    let mut fewer = case.clone();
    let (slot, _) = fewer.remove(at);
    (fewer, slot)
}

#[cfg(test)]
mod tests {
    use super::super::change::Change;
    use super::*;

    fn slot(upstream: &str) -> Slot {
        Slot { upstream: upstream.to_owned(), method: None, path: String::new(), number: 1 }
    }

    #[test]
    fn cases_that_are_alike_are_combined_once() {
        let one = |change: Change| vec![(slot("a"), change)];
        let two = |change: Change| vec![(slot("a"), Change::Never), (slot("b"), change)];
        let mut alike = Alike::default();
        alike.add(&Case::new(), 0);
        alike.add(&one(Change::Never), 1);
        alike.add(&one(Change::Refused), 1);
        alike.add(&one(Change::Protocol), 0);
        alike.add(&two(Change::Never), 1);
        alike.add(&two(Change::Refused), 2);
        alike.add(&two(Change::Malformed), 2);
        assert!(alike.is_new(&one(Change::Never), 1));
        assert!(!alike.is_new(&one(Change::Refused), 1), "as the one before");
        assert!(!alike.is_new(&one(Change::Protocol), 0), "as without it");
        assert!(!alike.is_new(&two(Change::Never), 1), "the second changes nothing beside the first");
        assert!(alike.is_new(&two(Change::Refused), 2));
        assert!(!alike.is_new(&two(Change::Malformed), 2), "as the one before");
    }
}
