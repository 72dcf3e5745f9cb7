//! Nodes: reading values in place.

use std::borrow::Cow;

use bytes::Bytes;

use crate::doc::Doc;
use crate::number::{self, Number};
use crate::tape::Entry;
use crate::unescape;

/// The kinds of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number, of any size and precision.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// One value (or key) of a [`Doc`], not copied.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    doc: &'a Doc,
    at: u32,
}

impl Doc {
    /// The outermost value.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node::new(self, Self::ROOT)
    }

    /// The value or key at a position that [`Node::at`] or a [`Cursor`](crate::Cursor) of this
    /// document gave. A position of another document gives some other value or, when it is looked
    /// at, a panic.
    #[must_use]
    pub fn node(&self, at: u32) -> Node<'_> {
        Node::new(self, at)
    }
}

impl<'a> Node<'a> {
    pub(crate) fn new(doc: &'a Doc, at: u32) -> Self {
        Self { doc, at }
    }

    /// The document that this is a part of.
    #[must_use]
    pub fn doc(self) -> &'a Doc {
        self.doc
    }

    /// Position in the document; with it [`Doc::node`] gives this node again.
    #[must_use]
    pub fn at(self) -> u32 {
        self.at
    }

    #[inline]
    fn entry(self) -> Entry {
        self.doc.tape().entry(self.at)
    }

    /// The text of this value as it came.
    #[must_use]
    #[inline]
    pub fn raw(self) -> &'a [u8] {
        let bytes: &[u8] = self.doc.bytes();
        if self.at == Doc::ROOT {
            // The whole document needs no index.
            return bytes;
        }
        let entry = self.entry();
        &bytes[entry.start as usize..entry.end as usize]
    }

    /// The text of this value as it came, sharing the body's memory (and keeping all of it alive).
    #[must_use]
    pub fn raw_bytes(self) -> Bytes {
        let bytes = self.doc.bytes();
        if self.at == Doc::ROOT { bytes.clone() } else { bytes.slice_ref(self.raw()) }
    }

    /// This value as a document of its own: it shares memory with this one if it is most of it, and
    /// is copied out if it is a small part, so that a part kept for long does not keep a large body.
    #[must_use]
    pub fn to_doc(self) -> Doc {
        if self.at == Doc::ROOT {
            return self.doc.clone();
        }
        let raw = self.raw();
        if raw.len() >= self.doc.bytes().len() / 2 {
            Doc::valid(self.raw_bytes())
        } else {
            Doc::valid(Bytes::copy_from_slice(raw))
        }
    }

    /// What kind of value this is.
    #[must_use]
    #[inline]
    pub fn kind(self) -> Kind {
        // A value is never empty.
        match self.raw()[0] {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' | b'f' => Kind::Bool,
            b'n' => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.raw()[0] == b'n'
    }

    /// `true` and `false`.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        match self.raw()[0] {
            b't' => Some(true),
            b'f' => Some(false),
            _ => None,
        }
    }

    /// The text of a string; borrowed unless it holds escapes. A surrogate without its other half
    /// becomes U+FFFD.
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let inside = self.raw().strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        if memchr::memchr(b'\\', inside).is_some() {
            return Some(Cow::Owned(unescape::unescape(inside)));
        }
        Some(unescape::plain(inside))
    }

    /// A number's text, with all its digits.
    #[must_use]
    pub fn as_number_text(self) -> Option<&'a str> {
        let raw = self.raw();
        if self.kind() != Kind::Number {
            return None;
        }
        std::str::from_utf8(raw).ok()
    }

    /// A number as the language sees it.
    #[must_use]
    pub fn as_number(self) -> Option<Number<'a>> {
        self.as_number_text().map(number::read)
    }

    /// An integer (written without fraction and exponent) of 64 bits.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        match self.as_number()? {
            Number::Int(value) => Some(value),
            Number::Large(_) | Number::Float(_) => None,
        }
    }

    /// The nearest `f64` of any number; infinite if it is too large.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        self.as_number_text()?.parse().ok()
    }

    /// Number of elements of an array or of distinct keys of an object; `None` for other kinds.
    #[must_use]
    pub fn len(self) -> Option<usize> {
        match self.kind() {
            Kind::Array => Some(self.entry().written() as usize),
            Kind::Object => Some(self.doc.tape().members(self.doc.bytes(), self.at) as usize),
            _ => None,
        }
    }

    /// Whether this is an array or object without anything in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        // An empty container holds whitespace at most; the first other byte closes it.
        let raw = self.raw();
        matches!(raw[0], b'{' | b'[')
            && raw[1..].iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'}' | b']'))
    }

    /// The value of a key of an object, the last one if the key is written more than once. `None`
    /// if there is no such key, or this is no object.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        if self.kind() != Kind::Object {
            return None;
        }
        let (_, value) = self.doc.tape().member(self.doc.bytes(), self.at, key)?;
        Some(Node::new(self.doc, value))
    }

    /// Element of an array, counted from 0.
    #[must_use]
    pub fn index(self, index: usize) -> Option<Node<'a>> {
        if self.kind() != Kind::Array {
            return None;
        }
        let element = self.doc.tape().element(self.doc.bytes(), self.at, index)?;
        Some(Node::new(self.doc, element))
    }

    /// A place before the first child of an array or object, as plain data; at the end for scalars.
    #[must_use]
    pub fn cursor(self) -> Cursor {
        let (end, repeats) = match self.kind() {
            Kind::Array => (self.entry().next, false),
            Kind::Object => (self.entry().next, self.doc.tape().repeats(self.doc.bytes(), self.at)),
            _ => (self.at + 1, false),
        };
        Cursor { container: self.at, next: self.at + 1, end, repeats }
    }

    /// The elements of an array; nothing for other kinds.
    pub fn elements(self) -> impl Iterator<Item = Node<'a>> {
        let mut cursor = self.cursor();
        if self.kind() != Kind::Array {
            cursor.next = cursor.end;
        }
        let doc = self.doc;
        std::iter::from_fn(move || cursor.next_element(doc).map(|at| doc.node(at)))
    }

    /// The members of an object in the order of the text, as key and value; nothing for other kinds.
    /// A key written more than once comes once, where it is first, with its last value.
    pub fn entries(self) -> impl Iterator<Item = (Node<'a>, Node<'a>)> {
        let mut cursor = self.cursor();
        if self.kind() != Kind::Object {
            cursor.next = cursor.end;
        }
        let doc = self.doc;
        std::iter::from_fn(move || cursor.next_entry(doc).map(|(key, value)| (doc.node(key), doc.node(value))))
    }
}

/// A place in an array or object that borrows nothing, so that a suspended loop can keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    container: u32,
    next: u32,
    end: u32,
    repeats: bool,
}

impl Cursor {
    /// Position of the next element of an array. `doc` must be the cursor's document.
    pub fn next_element(&mut self, doc: &Doc) -> Option<u32> {
        if self.next >= self.end {
            return None;
        }
        let at = self.next;
        self.next = doc.tape().entry(at).next;
        Some(at)
    }

    /// Positions of the next key and value of an object, as [`Node::entries`] has them. `doc` must
    /// be the cursor's document.
    pub fn next_entry(&mut self, doc: &Doc) -> Option<(u32, u32)> {
        while self.next < self.end {
            let key = self.next;
            self.next = doc.tape().entry(key + 1).next;
            if !self.repeats {
                return Some((key, key + 1));
            }
            if let Some(value) = doc.tape().first_of_its_name(doc.bytes(), self.container, key) {
                return Some((key, value));
            }
        }
        None
    }
}
