//! Reads the text of metrics, line by line: OpenMetrics as Fanin writes it.

use std::borrow::Cow;

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    labels: &'a str,
    pub(crate) value: f64,
}

/// The values of a text. Comments and what cannot be read are left out.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(Line::read)
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Line<'a>> {
        if line.starts_with('#') {
            return None;
        }
        let name_end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(name_end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => {
                let end = end_of_labels(inside)?;
                (&inside[..end], &inside[end + 1..])
            }
            None => ("", rest),
        };
        // A time or an exemplar may follow the value.
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Line { name, labels, value })
    }

    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        loop {
            let (name, value) = rest.split_once("=\"")?;
            let end = end_of_text(value)?;
            if name == key {
                return Some(unescaped(&value[..end]));
            }
            rest = value[end + 1..].strip_prefix(',')?;
        }
    }

    /// The value of a label as text of its own; empty without it.
    pub(crate) fn text(&self, key: &str) -> String {
        self.label(key).unwrap_or_default().into_owned()
    }
}

/// Where the brace is that ends the labels.
fn end_of_labels(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        match text[at..].find(['"', '}'])? + at {
            end if text.as_bytes()[end] == b'}' => return Some(end),
            quote => at = quote + 1 + end_of_text(&text[quote + 1..])? + 1,
        }
    }
}

/// Where the quote is that ends a label's value.
fn end_of_text(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => {}
            },
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_labels_and_values() {
        let text = "# TYPE a counter\n\
                    a_total 7\n\
                    b{x=\"1\",y=\"}, \\\"2\\\"\"} 1.5\n\
                    c_bucket{le=\"+Inf\",x=\"\"} 3 # {trace_id=\"ab\"} 0.2 1700000000.1\n\
                    broken{x=\"1 3\n\
                    # EOF\n";
        let found: Vec<_> = lines(text).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!((found[0].name, found[0].value), ("a_total", 7.0));
        assert_eq!((found[1].name, found[1].value), ("b", 1.5));
        assert_eq!(found[1].text("y"), "}, \"2\"");
        assert_eq!(found[1].label("z"), None);
        assert_eq!((found[2].text("le").as_str(), found[2].text("x").as_str(), found[2].value), ("+Inf", "", 3.0));
    }
}
