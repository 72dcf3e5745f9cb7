//! Suggestions for misspelt names: "did you mean ...?"

/// The name nearest to a misspelt one, if any is near.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let most = wanted.chars().count().div_ceil(3).min(3);
    names
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .filter(|(distance, name)| *distance > 0 && *distance <= most && *distance < name.chars().count())
        .min()
        .map(|(_, name)| name.to_owned())
}
