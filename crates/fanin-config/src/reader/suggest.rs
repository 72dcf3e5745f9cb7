//! Suggestions for misspelt keys.

/// The known key that is most similar to a misspelt one, if any is similar enough.
pub(crate) fn most_similar<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace('-', "_");
    let word = plain(word);
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().min(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
        .or_else(|| known.iter().copied().find(|candidate| same_stem(&word, candidate)))
}

/// Whether two keys begin alike: `retries` and `retry`.
fn same_stem(word: &str, candidate: &str) -> bool {
    let common = word.bytes().zip(candidate.bytes()).take_while(|(a, b)| a == b).count();
    common >= 4 && common * 5 >= candidate.len() * 4
}
