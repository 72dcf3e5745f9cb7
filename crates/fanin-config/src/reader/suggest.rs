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
}
