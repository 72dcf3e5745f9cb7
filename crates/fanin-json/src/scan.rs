//! The scanner: the grammar of RFC 8259 in one pass over the bytes, which reports to a [`Sink`].
//!
//! Validation runs it with a sink that does nothing; the tape is built by the same code with a sink
//! that records. Nesting is kept in a stack of bits, so depth costs no recursion.

use crate::error::{Fault, JsonErrorKind};
use crate::swar::{self, Stop};

/// What the scanner reports. Offsets are bytes from the start of the body, ends exclusive.
pub(crate) trait Sink {
    /// The bytes passed before: UTF-8 is not checked again.
    const VALIDATED: bool;

    /// An array or object opens with the bracket at `start`.
    fn open(&mut self, start: usize);
    /// The innermost open array or object ends before `end`.
    fn close(&mut self, end: usize);
    /// A string (a key too), quotes included; `escaped` if it holds a backslash.
    fn string(&mut self, start: usize, end: usize, escaped: bool);
    /// A number, `true`, `false` or `null`.
    fn scalar(&mut self, start: usize, end: usize);
}

/// The sink of pure validation.
pub(crate) struct Nothing;

impl Sink for Nothing {
    const VALIDATED: bool = false;

    #[inline(always)]
    fn open(&mut self, _: usize) {}
    #[inline(always)]
    fn close(&mut self, _: usize) {}
    #[inline(always)]
    fn string(&mut self, _: usize, _: usize, _: bool) {}
    #[inline(always)]
    fn scalar(&mut self, _: usize, _: usize) {}
}

/// Where the one value of the body is, whitespace around it left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Which brackets are open: one bit each, set for an object.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    /// The innermost up to 64 brackets, innermost in the lowest bit.
    word: u64,
    /// Full words of the brackets further out; empty (and without an allocation) up to depth 64.
    outer: Vec<u64>,
    depth: usize,
}

impl Nesting {
    #[inline(always)]
    pub(crate) fn push(&mut self, object: bool) {
        if self.depth != 0 && self.depth.is_multiple_of(64) {
            self.spill();
        }
        self.word = self.word << 1 | u64::from(object);
        self.depth += 1;
    }

    #[cold]
    fn spill(&mut self) {
        self.outer.push(self.word);
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) {
        self.word >>= 1;
        self.depth -= 1;
        if self.depth != 0 && self.depth.is_multiple_of(64) {
            self.unspill();
        }
    }

    #[cold]
    fn unspill(&mut self) {
        self.word = self.outer.pop().unwrap_or_default();
    }

    #[inline(always)]
    pub(crate) fn in_object(&self) -> bool {
        self.word & 1 == 1
    }

    #[inline(always)]
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
}

/// The byte at `at`, or NUL at the end: NUL is no token, so both end in the same error path, which
/// tells them apart by the offset.
#[inline(always)]
pub(crate) fn peek(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

#[inline(always)]
pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    // Compact bodies never enter the loop.
    while matches!(peek(bytes, at), b' ' | b'\n' | b'\t' | b'\r') {
        at += 1;
    }
    at
}

/// Runs the grammar over `bytes`.
pub(crate) fn scan<S: Sink>(bytes: &[u8], max_depth: usize, sink: &mut S) -> Result<Extent, Fault> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(Fault { kind: JsonErrorKind::TooLarge, at: 0 });
    }
    let start = skip_space(bytes, 0);
    let mut at = start;
    // All bytes of strings, or-ed: the top bit says whether any is outside ASCII.
    let mut seen = 0_u64;
    let mut nesting = Nesting::default();
    'value: loop {
        // A value starts at `at` (whitespace skipped).
        match peek(bytes, at) {
            b'"' => at = string(bytes, at, &mut seen, sink)?,
            open @ (b'{' | b'[') => {
                if nesting.depth >= max_depth {
                    return Err(Fault { kind: JsonErrorKind::TooDeep { limit: max_depth }, at });
                }
                sink.open(at);
                nesting.push(open == b'{');
                at = skip_space(bytes, at + 1);
                // `[` + 2 is `]`, `{` + 2 is `}`.
                if peek(bytes, at) != open + 2 {
                    if open == b'{' {
                        at = key(bytes, at, "a string as key or `}`", &mut seen, sink)?;
                    } else if peek(bytes, at) == 0 {
                        return Err(Fault::expected(bytes, at, "a value or `]`"));
                    }
                    continue 'value;
                }
                // Empty: the bracket is consumed by the loop below.
            }
            b'-' | b'0'..=b'9' => {
                let end = number(bytes, at)?;
                sink.scalar(at, end);
                at = end;
            }
            b't' => at = literal(bytes, at, b"true", "`true`", sink)?,
            b'f' => at = literal(bytes, at, b"false", "`false`", sink)?,
            b'n' => at = literal(bytes, at, b"null", "`null`", sink)?,
            _ => return Err(Fault::expected(bytes, at, "a value")),
        }
        // A value (or the opening bracket of an empty container) has ended at `at`.
        loop {
            if nesting.depth == 0 {
                return finish::<S>(bytes, Extent { start, end: at }, seen);
            }
            at = skip_space(bytes, at);
            let object = nesting.in_object();
            match peek(bytes, at) {
                b',' => {
                    at = skip_space(bytes, at + 1);
                    if object {
                        at = key(bytes, at, "a string as key", &mut seen, sink)?;
                    }
                    continue 'value;
                }
                b'}' if object => {}
                b']' if !object => {}
                _ if object => return Err(Fault::expected(bytes, at, "`,` or `}`")),
                _ => return Err(Fault::expected(bytes, at, "`,` or `]`")),
            }
            at += 1;
            sink.close(at);
            nesting.pop();
        }
    }
}

fn finish<S: Sink>(bytes: &[u8], extent: Extent, seen: u64) -> Result<Extent, Fault> {
    let at = skip_space(bytes, extent.end);
    if at < bytes.len() {
        return Err(Fault::expected(bytes, at, "the end"));
    }
    // Outside of strings only ASCII got this far, so a body whose strings are ASCII needs no look
    // at UTF-8 at all.
    if !S::VALIDATED
        && seen & swar::HIGH != 0
        && simdutf8::basic::from_utf8(bytes).is_err()
        && let Err(error) = std::str::from_utf8(bytes)
    {
        return Err(Fault { kind: JsonErrorKind::Utf8, at: error.valid_up_to() });
    }
    Ok(extent)
}

/// A key and its colon; returns where the value starts.
#[inline(always)]
pub(crate) fn key<S: Sink>(
    bytes: &[u8],
    at: usize,
    expected: &'static str,
    seen: &mut u64,
    sink: &mut S,
) -> Result<usize, Fault> {
    if peek(bytes, at) != b'"' {
        return Err(Fault::expected(bytes, at, expected));
    }
    let at = string(bytes, at, seen, sink)?;
    let at = skip_space(bytes, at);
    if peek(bytes, at) != b':' {
        return Err(Fault::expected(bytes, at, "`:`"));
    }
    Ok(skip_space(bytes, at + 1))
}

/// A string whose opening quote is at `start`; returns its end.
#[inline(always)]
pub(crate) fn string<S: Sink>(bytes: &[u8], start: usize, seen: &mut u64, sink: &mut S) -> Result<usize, Fault> {
    let mut at = start + 1;
    let mut escaped = false;
    loop {
        let Stop { at: stop, byte } = swar::plain(bytes, at, seen);
        match byte {
            Some(b'"') => {
                sink.string(start, stop + 1, escaped);
                return Ok(stop + 1);
            }
            Some(b'\\') => {
                escaped = true;
                at = escape(bytes, stop)?;
            }
            Some(control) => {
                return Err(Fault { kind: JsonErrorKind::Control(control), at: stop });
            }
            None => return Err(Fault::expected(bytes, stop, "`\"` to end the string")),
        }
    }
}

/// An escape whose backslash is at `at`; returns its end. Lone surrogates are let through:
/// RFC 8259 (section 8.2) allows them, and the bytes are passed on as they came.
fn escape(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match peek(bytes, at + 1) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 2),
        b'u' => {
            for digit in at + 2..at + 6 {
                if !peek(bytes, digit).is_ascii_hexdigit() {
                    return Err(Fault::expected(bytes, digit, "a hexadecimal digit"));
                }
            }
            Ok(at + 6)
        }
        _ => Err(Fault::expected(bytes, at + 1, "one of `\"\\/bfnrtu` after `\\`")),
    }
}

#[inline(always)]
fn digits(bytes: &[u8], mut at: usize) -> usize {
    while peek(bytes, at).is_ascii_digit() {
        at += 1;
    }
    at
}

#[inline(always)]
pub(crate) fn number(bytes: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start + usize::from(peek(bytes, start) == b'-');
    match peek(bytes, at) {
        b'0' => at += 1,
        b'1'..=b'9' => at = digits(bytes, at + 1),
        _ => return Err(Fault::expected(bytes, at, "a digit")),
    }
    if peek(bytes, at) == b'.' {
        let end = digits(bytes, at + 1);
        if end == at + 1 {
            return Err(Fault::expected(bytes, end, "a digit"));
        }
        at = end;
    }
    if matches!(peek(bytes, at), b'e' | b'E') {
        let sign = usize::from(matches!(peek(bytes, at + 1), b'+' | b'-'));
        let first = at + 1 + sign;
        let end = digits(bytes, first);
        if end == first {
            return Err(Fault::expected(bytes, end, "a digit"));
        }
        at = end;
    }
    Ok(at)
}

#[inline(always)]
pub(crate) fn literal<S: Sink>(
    bytes: &[u8],
    at: usize,
    word: &'static [u8],
    expected: &'static str,
    sink: &mut S,
) -> Result<usize, Fault> {
    let end = at + word.len();
    if bytes.get(at..end) != Some(word) {
        return Err(Fault::expected(bytes, at, expected));
    }
    sink.scalar(at, end);
    Ok(end)
}
