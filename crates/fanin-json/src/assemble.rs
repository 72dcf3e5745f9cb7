//! Splicing: documents made of parts of others.

use bytes::Bytes;

use crate::doc::Doc;
use crate::node::{Kind, Node};

/// Puts values of documents together to a new list or object, as the very bytes. What it makes is valid because its parts are,
/// so nothing is validated again.
/// ```
/// # fn main() -> Result<(), fanin_json::JsonError> {
/// let doc = fanin_json::Doc::parse(r#"[{"id": 1, "n": 1.50}, {"id": 2}]"#.into(), 128)?;
/// let mut list = fanin_json::Assembler::list(64);
/// for item in doc.root().elements() {
///     list.picked(item, |key| key.as_str().is_some_and(|key| key == "n"));
/// }
/// assert_eq!(list.finish().bytes(), r#"[{"n":1.50},{}]"#);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Assembler {
    out: Vec<u8>,
    end: u8,
}

impl Assembler {
    /// A list, which will take about so many bytes.
    #[must_use]
    pub fn list(capacity: usize) -> Self {
        Self::new(capacity, b'[', b']')
    }

    /// An object, which will take about so many bytes.
    #[must_use]
    pub fn object(capacity: usize) -> Self {
        Self::new(capacity, b'{', b'}')
    }

    fn new(capacity: usize, begin: u8, end: u8) -> Self {
        let mut out = Vec::with_capacity(capacity.max(2));
        out.push(begin);
        Self { out, end }
    }

    /// Starts the next value; in an object under this key.
    ///
    /// # Panics
    /// If a list is given a key, or an object none, or one that is no string: either would not be JSON.
    fn next(&mut self, key: Option<Node<'_>>) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        assert_eq!(key.is_some(), self.end == b'}', "keys belong to objects");
        if let Some(key) = key {
            assert_eq!(key.kind(), Kind::String, "a key is a string");
            self.out.extend_from_slice(key.raw());
            self.out.push(b':');
        }
    }

    /// Adds a value to a list.
    pub fn item(&mut self, value: Node<'_>) {
        self.next(None);
        self.out.extend_from_slice(value.raw());
    }

    /// Adds a value to an object. The caller keeps keys apart.
    pub fn entry(&mut self, key: Node<'_>, value: Node<'_>) {
        self.next(Some(key));
        self.out.extend_from_slice(value.raw());
    }

    /// Adds to a list the members of an object whose keys are kept; anything that is no object whole.
    pub fn picked(&mut self, value: Node<'_>, keep: impl Fn(Node<'_>) -> bool) {
        self.next(None);
        pick(&mut self.out, value, keep);
    }

    /// The same under a key of an object.
    pub fn picked_entry(&mut self, key: Node<'_>, value: Node<'_>, keep: impl Fn(Node<'_>) -> bool) {
        self.next(Some(key));
        pick(&mut self.out, value, keep);
    }

    /// The document.
    #[must_use]
    pub fn finish(mut self) -> Doc {
        self.out.push(self.end);
        Doc::valid(Bytes::from(self.out))
    }
}

impl Node<'_> {
    /// A document of the members of this object whose keys are kept; of anything that is no object all.
    #[must_use]
    pub fn pick(self, keep: impl Fn(Node<'_>) -> bool) -> Doc {
        let mut out = Vec::with_capacity(self.raw().len());
        pick(&mut out, self, keep);
        Doc::valid(Bytes::from(out))
    }
}

fn pick(out: &mut Vec<u8>, value: Node<'_>, keep: impl Fn(Node<'_>) -> bool) {
    if value.kind() != Kind::Object {
        out.extend_from_slice(value.raw());
        return;
    }
    out.push(b'{');
    let mut first = true;
    for (key, value) in value.entries() {
        if keep(key) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.extend_from_slice(key.raw());
            out.push(b':');
            out.extend_from_slice(value.raw());
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(text: &'static str) -> Doc {
        Doc::parse(Bytes::from_static(text.as_bytes()), 16).unwrap()
    }

    fn is(made: &Doc, text: &str) {
        assert_eq!(made.bytes(), text);
        Doc::parse(made.bytes().clone(), 16).unwrap();
    }

    #[test]
    fn what_is_made_is_json() {
        let from = doc(r#"{"a": [1, 2.50], "b" : {"x": 1, "y": {"x": 2}, "x": 3}, "c": "\u00e9"}"#);
        let root = from.root();
        is(&Assembler::list(0).finish(), "[]");
        is(&Assembler::object(0).finish(), "{}");
        let mut list = Assembler::list(0);
        root.entries().for_each(|(_, value)| list.item(value));
        is(&list.finish(), r#"[[1, 2.50],{"x": 1, "y": {"x": 2}, "x": 3},"\u00e9"]"#);
        let mut object = Assembler::object(0);
        root.entries().for_each(|(key, value)| object.picked_entry(key, value, |key| key.as_str().unwrap() == "x"));
        is(&object.finish(), r#"{"a":[1, 2.50],"b":{"x":3},"c":"\u00e9"}"#);
        is(&root.get("b").unwrap().pick(|_| false), "{}");
        is(&root.get("a").unwrap().pick(|_| false), "[1, 2.50]");
    }

    #[test]
    #[should_panic(expected = "a key is a string")]
    fn a_number_is_no_key() {
        let from = doc("[1]");
        let one = from.root().index(0).unwrap();
        Assembler::object(0).entry(one, one);
    }
}
