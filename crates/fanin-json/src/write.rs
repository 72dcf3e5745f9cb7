//! Writing JSON.

use crate::node::Node;
use crate::swar;

/// A float that JSON has no notation for: an infinity or not-a-number.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("JSON has no notation for the float {0}")]
pub struct NotFinite(pub f64);

/// Appends JSON to a buffer, compactly, and puts the commas.
///
/// It trusts its caller to close what was opened and to give each key a value; it keeps no stack.
/// ```
/// let mut out = Vec::new();
/// let mut writer = fanin_json::Writer::new(&mut out);
/// writer.begin_object();
/// writer.key("ids");
/// writer.begin_array();
/// writer.int(1);
/// writer.int(2);
/// writer.end_array();
/// writer.end_object();
/// assert_eq!(out, br#"{"ids":[1,2]}"#);
/// ```
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// A value is before the place of the next one, in the same container.
    comma: bool,
}

impl<'a> Writer<'a> {
    /// Writes one value to the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, comma: false }
    }

    /// Goes on where an earlier writer of the same value stopped, between two calls. `out` begins with the value.
    pub fn continued(out: &'a mut Vec<u8>) -> Self {
        // A value ends with none of these.
        let comma = !matches!(out.last(), None | Some(b'[' | b'{' | b':'));
        Self { out, comma }
    }

    /// The buffer, all that is written so far at its end.
    #[must_use]
    pub fn buffer(&self) -> &[u8] {
        self.out
    }

    #[inline]
    fn before_value(&mut self) {
        if self.comma {
            self.out.push(b',');
        }
        self.comma = true;
    }

    /// Opens an array.
    pub fn begin_array(&mut self) {
        self.before_value();
        self.out.push(b'[');
        self.comma = false;
    }

    /// Closes an array.
    pub fn end_array(&mut self) {
        self.out.push(b']');
        self.comma = true;
    }

    /// Opens an object.
    pub fn begin_object(&mut self) {
        self.before_value();
        self.out.push(b'{');
        self.comma = false;
    }

    /// Closes an object.
    pub fn end_object(&mut self) {
        self.out.push(b'}');
        self.comma = true;
    }

    /// A key of an object; its value must follow.
    pub fn key(&mut self, key: &str) {
        self.before_value();
        write_str(self.out, key);
        self.out.push(b':');
        self.comma = false;
    }

    /// A key of an object that is a key of another document, as the very bytes.
    pub fn raw_key(&mut self, key: Node<'_>) {
        self.before_value();
        self.out.extend_from_slice(key.raw());
        self.out.push(b':');
        self.comma = false;
    }

    /// `null`
    pub fn null(&mut self) {
        self.before_value();
        self.out.extend_from_slice(b"null");
    }

    /// `true` or `false`
    pub fn bool(&mut self, value: bool) {
        self.before_value();
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A string.
    pub fn str(&mut self, value: &str) {
        self.before_value();
        write_str(self.out, value);
    }

    /// An integer.
    pub fn int(&mut self, value: i64) {
        self.before_value();
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    /// A float.
    ///
    /// # Errors
    /// If it is infinite or not a number; nothing is written then.
    pub fn float(&mut self, value: f64) -> Result<(), NotFinite> {
        if !value.is_finite() {
            return Err(NotFinite(value));
        }
        self.before_value();
        write_finite(self.out, value);
        Ok(())
    }

    /// A value of a document, as the very bytes.
    pub fn node(&mut self, value: Node<'_>) {
        self.before_value();
        self.out.extend_from_slice(value.raw());
    }

    /// A value that is JSON already: the caller's word for it.
    pub fn raw(&mut self, value: &[u8]) {
        self.before_value();
        self.out.extend_from_slice(value);
    }
}

/// Appends a float in the shortest notation that reads back as the same float: `1.0`, `0.1`,
/// `1e+100`.
///
/// # Errors
/// If it is infinite or not a number; nothing is written then.
pub fn write_float(out: &mut Vec<u8>, value: f64) -> Result<(), NotFinite> {
    if !value.is_finite() {
        return Err(NotFinite(value));
    }
    write_finite(out, value);
    Ok(())
}

fn write_finite(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
}

/// Appends an integer.
pub fn write_int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a string with its quotes. Only `"`, `\` and control characters are escaped; everything
/// else stays UTF-8.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut from = 0;
    loop {
        let stop = swar::plain(bytes, from, &mut 0);
        out.extend_from_slice(&bytes[from..stop.at]);
        match stop.byte {
            None => break,
            Some(b'"') => out.extend_from_slice(b"\\\""),
            Some(b'\\') => out.extend_from_slice(b"\\\\"),
            Some(b'\n') => out.extend_from_slice(b"\\n"),
            Some(b'\r') => out.extend_from_slice(b"\\r"),
            Some(b'\t') => out.extend_from_slice(b"\\t"),
            Some(0x08) => out.extend_from_slice(b"\\b"),
            Some(0x0C) => out.extend_from_slice(b"\\f"),
            Some(control) => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
        from = stop.at + 1;
    }
    out.push(b'"');
}
