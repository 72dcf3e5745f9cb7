//! Which paths a stub is for: `"/products/{id}"`, `"/files/{*rest}"`, or a whole path.

/// A pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    segments: Vec<Segment>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(String),
    /// One segment.
    One(String),
    /// All that is left.
    Rest(String),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let path = text.strip_prefix('/').ok_or_else(|| format!("the path {text:?} does not start with a slash"))?;
        if path.contains('?') {
            return Err(format!("the path {text:?} has a query: write it as query = {{...}}"));
        }
        let mut segments = Vec::new();
        for segment in path.split('/') {
            let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            segments.push(match name {
                Some(name) => match name.strip_prefix('*') {
                    Some(rest) => Segment::Rest(rest.to_owned()),
                    None => Segment::One(name.to_owned()),
                },
                None => Segment::Text(segment.to_owned()),
            });
        }
        let is_last = |at: usize| at + 1 == segments.len();
        if segments.iter().enumerate().any(|(at, one)| matches!(one, Segment::Rest(_)) && !is_last(at)) {
            return Err(format!("{{*...}} stands for the rest of the path, so it must be last in {text:?}"));
        }
        Ok(Pattern { segments, text: text.to_owned() })
    }

    /// The values of its parameters, decoded, if the path fits.
    pub(crate) fn find(&self, path: &str) -> Option<Vec<(String, String)>> {
        let mut rest = path.strip_prefix('/')?;
        let mut ended = false;
        let mut values = Vec::new();
        for segment in &self.segments {
            if let Segment::Rest(name) = segment {
                values.push((name.clone(), decoded(rest)));
                return Some(values);
            }
            if ended {
                return None;
            }
            let (one, after) = match rest.split_once('/') {
                Some((one, after)) => (one, after),
                None => {
                    ended = true;
                    (rest, "")
                }
            };
            rest = after;
            match segment {
                Segment::Text(text) if text == one || *text == decoded(one) => {}
                Segment::One(name) if !one.is_empty() => values.push((name.clone(), decoded(one))),
                _ => return None,
            }
        }
        ended.then_some(values)
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
        Pattern::parse(pattern).unwrap().find(path)
    }

    #[test]
    fn parameters_are_found() {
        let one = |name: &str, value: &str| Some(vec![(name.to_owned(), value.to_owned())]);
        assert_eq!(find("/products/{id}", "/products/7"), one("id", "7"));
        assert_eq!(find("/products/{id}", "/products/a%2Fb"), one("id", "a/b"));
        assert_eq!(find("/files/{*rest}", "/files/a/b"), one("rest", "a/b"));
        assert_eq!(find("/a b", "/a%20b"), Some(Vec::new()));
        for (pattern, path) in [("/a", "/a/b"), ("/a/{b}", "/a"), ("/a/{b}", "/a/"), ("/a/b", "/a"), ("/", "/a")] {
            assert_eq!(find(pattern, path), None, "{pattern} {path}");
        }
        assert_eq!(find("/", "/"), Some(Vec::new()));
    }

    #[test]
    fn mistakes_are_told() {
        for bad in ["products", "/a?b=1", "/{*a}/b"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }
}
