//! Numbers: what their text means.

/// A JSON number as a language with integers of any size sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number<'a> {
    /// Written without fraction and exponent, and fits 64 bits. `-0` is 0.
    Int(i64),
    /// Written without fraction and exponent, but larger: its digits, with `-` before them if it is
    /// negative.
    Large(&'a str),
    /// Written with fraction or exponent: the nearest float; infinite if it is too large for one.
    Float(f64),
}

/// `text` must be a number in JSON's grammar.
pub(crate) fn read(text: &str) -> Number<'_> {
    if text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()) {
        return text.parse().map_or(Number::Large(text), Number::Int);
    }
    // The grammar of JSON's numbers is within that of Rust's floats.
    Number::Float(text.parse().unwrap_or(f64::NAN))
}
