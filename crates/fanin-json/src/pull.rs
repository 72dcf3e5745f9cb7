//! A pull parser: reads a document event by event. It takes no memory in proportion to the document, and can stop and
//! continue between events.

use std::borrow::Cow;

use crate::error::{Fault, JsonError, JsonErrorKind};
use crate::number::{self, Number};
use crate::scan::{self, Nesting, Sink, peek, skip_space};
use crate::unescape;

/// What is next in a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'t> {
    /// An array opens: its elements follow, up to [`Event::Close`].
    Array,
    /// An object opens: [`Event::Key`] and value by turns follow, up to [`Event::Close`].
    Object,
    /// The innermost array or object that is open ends.
    Close,
    /// A key; its value follows. One that is written more than once comes each time.
    Key(Cow<'t, str>),
    /// A string. A surrogate without its other half becomes U+FFFD.
    String(Cow<'t, str>),
    /// A number: its text, with all its digits. [`Number::read`] says what it means.
    Number(&'t str),
    /// `true` or `false`
    Bool(bool),
    /// `null`
    Null,
}

/// A place in a document that is read step by step: plain data, which does not hold the text.
#[derive(Debug)]
pub struct PullParser {
    at: usize,
    next: Next,
    nesting: Nesting,
    max_depth: usize,
}

/// What the grammar has next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Value,
    /// The first of a container, or its end.
    First,
    /// What comes after a value.
    Rest,
    Nothing,
}

impl PullParser {
    /// Before the first step of a document whose arrays and objects are nested at most `max_depth` deep.
    #[must_use]
    pub fn new(max_depth: usize) -> Self {
        Self { at: 0, next: Next::Value, nesting: Nesting::default(), max_depth }
    }

    /// Bytes that have been read.
    #[must_use]
    pub fn read(&self) -> usize {
        self.at
    }

    /// The next step; `None` after the last one, when the text has ended. The text must be the same each time.
    ///
    /// # Errors
    /// As [`Doc::parse`](crate::Doc::parse), once what is wrong comes. There is no next step then.
    pub fn next<'t>(&mut self, text: &'t str) -> Result<Option<Event<'t>>, JsonError> {
        self.step(text).map_err(|fault| {
            self.next = Next::Nothing;
            fault.locate(text.as_bytes())
        })
    }

    fn step<'t>(&mut self, text: &'t str) -> Result<Option<Event<'t>>, Fault> {
        let bytes = text.as_bytes();
        if u32::try_from(bytes.len()).is_err() {
            return Err(Fault { kind: JsonErrorKind::TooLarge, at: 0 });
        }
        self.at = skip_space(bytes, self.at);
        let object = self.nesting.in_object();
        match self.next {
            Next::Nothing => Ok(None),
            Next::Value => self.value(text).map(Some),
            Next::First => match (peek(bytes, self.at), object) {
                (b'}', true) | (b']', false) => Ok(Some(self.close())),
                (_, true) => self.key(text, "a string as key or `}`").map(Some),
                (0, false) => Err(Fault::expected(bytes, self.at, "a value or `]`")),
                (_, false) => self.value(text).map(Some),
            },
            Next::Rest if self.nesting.depth() == 0 => {
                if self.at < bytes.len() {
                    return Err(Fault::expected(bytes, self.at, "the end"));
                }
                self.next = Next::Nothing;
                Ok(None)
            }
            Next::Rest => match (peek(bytes, self.at), object) {
                (b',', _) => {
                    self.at = skip_space(bytes, self.at + 1);
                    if object { self.key(text, "a string as key").map(Some) } else { self.value(text).map(Some) }
                }
                (b'}', true) | (b']', false) => Ok(Some(self.close())),
                (_, true) => Err(Fault::expected(bytes, self.at, "`,` or `}`")),
                (_, false) => Err(Fault::expected(bytes, self.at, "`,` or `]`")),
            },
        }
    }

    fn close<'t>(&mut self) -> Event<'t> {
        self.at += 1;
        self.nesting.pop();
        self.next = Next::Rest;
        Event::Close
    }

    fn key<'t>(&mut self, text: &'t str, expected: &'static str) -> Result<Event<'t>, Fault> {
        let bytes = text.as_bytes();
        let mut key = Seen(None);
        self.at = scan::key(bytes, self.at, expected, &mut 0, &mut key)?;
        self.next = Next::Value;
        Ok(Event::Key(key.text(text)))
    }

    fn value<'t>(&mut self, text: &'t str) -> Result<Event<'t>, Fault> {
        let (bytes, start) = (text.as_bytes(), self.at);
        self.next = Next::Rest;
        Ok(match peek(bytes, start) {
            b'"' => {
                let mut string = Seen(None);
                self.at = scan::string(bytes, start, &mut 0, &mut string)?;
                Event::String(string.text(text))
            }
            open @ (b'{' | b'[') => {
                if self.nesting.depth() >= self.max_depth {
                    return Err(Fault { kind: JsonErrorKind::TooDeep { limit: self.max_depth }, at: start });
                }
                self.nesting.push(open == b'{');
                self.at += 1;
                self.next = Next::First;
                if open == b'{' { Event::Object } else { Event::Array }
            }
            b'-' | b'0'..=b'9' => {
                self.at = scan::number(bytes, start)?;
                Event::Number(&text[start..self.at])
            }
            b't' => self.literal(bytes, b"true", "`true`", Event::Bool(true))?,
            b'f' => self.literal(bytes, b"false", "`false`", Event::Bool(false))?,
            b'n' => self.literal(bytes, b"null", "`null`", Event::Null)?,
            _ => return Err(Fault::expected(bytes, start, "a value")),
        })
    }

    fn literal<'t>(
        &mut self,
        bytes: &[u8],
        word: &'static [u8],
        expected: &'static str,
        step: Event<'t>,
    ) -> Result<Event<'t>, Fault> {
        self.at = scan::literal(bytes, self.at, word, expected, &mut Seen(None))?;
        Ok(step)
    }
}

impl<'a> Number<'a> {
    /// What the text of a [`Event::Number`] means.
    #[must_use]
    pub fn read(text: &'a str) -> Self {
        number::read(text)
    }
}

/// The string that the scanner saw: its start, its end and whether it is escaped.
struct Seen(Option<(usize, usize, bool)>);

impl Seen {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.0 {
            // Quotes are one byte each.
            Some((start, end, true)) => Cow::Owned(unescape::unescape(&text.as_bytes()[start + 1..end - 1])),
            Some((start, end, false)) => Cow::Borrowed(&text[start + 1..end - 1]),
            None => Cow::Borrowed(""),
        }
    }
}

impl Sink for Seen {
    const VALIDATED: bool = true;

    fn open(&mut self, _: usize) {}
    fn close(&mut self, _: usize) {}
    #[inline(always)]
    fn string(&mut self, start: usize, end: usize, escaped: bool) {
        self.0 = Some((start, end, escaped));
    }
    fn scalar(&mut self, _: usize, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Doc, Kind, Node};

    const DEEPEST: usize = 4;

    /// All steps of a text.
    fn steps(text: &str) -> Result<Vec<Event<'_>>, JsonError> {
        let (mut steps, mut all) = (PullParser::new(DEEPEST), Vec::new());
        while let Some(step) = steps.next(text)? {
            all.push(step);
        }
        assert_eq!((steps.read(), steps.next(text)), (text.len(), Ok(None)));
        Ok(all)
    }

    /// The steps of a document that has been read as a whole.
    fn of<'t>(node: Node<'t>, steps: &mut Vec<Event<'t>>) {
        match node.kind() {
            Kind::Null => steps.push(Event::Null),
            Kind::Bool => steps.push(Event::Bool(node.as_bool().unwrap())),
            Kind::Number => steps.push(Event::Number(node.as_number_text().unwrap())),
            Kind::String => steps.push(Event::String(node.as_str().unwrap())),
            Kind::Array => {
                steps.push(Event::Array);
                node.elements().for_each(|element| of(element, steps));
                steps.push(Event::Close);
            }
            Kind::Object => {
                steps.push(Event::Object);
                for (key, value) in node.entries() {
                    steps.push(Event::Key(key.as_str().unwrap()));
                    of(value, steps);
                }
                steps.push(Event::Close);
            }
        }
    }

    fn check(text: &str) {
        let doc = Doc::parse(text.to_owned().into(), DEEPEST);
        let wanted = doc.as_ref().map_err(Clone::clone).map(|doc| {
            let mut steps = Vec::new();
            of(doc.root(), &mut steps);
            steps
        });
        assert_eq!(steps(text), wanted, "{text:?}");
    }

    const SAMPLES: [&str; 4] = [
        r#" { "id" : 17, "tags" : [ "a", "\u00fc\ud83d\ude00\n", "" , [ ] ], "o":{"none":null,"some":[true,false,{}]}} "#,
        r#"[-0, 1.50, 1e5, -12.5E-3, 123456789012345678901234567890, "é", "\ud800", [[[]]]]"#,
        "\"plain\"",
        " 7\n",
    ];

    #[test]
    fn it_reads_what_a_document_holds() {
        SAMPLES.into_iter().for_each(check);
        assert_eq!(Number::read("12"), Number::Int(12));
    }

    #[test]
    fn it_finds_the_same_mistakes() {
        for sample in SAMPLES {
            for at in (0..sample.len()).filter(|at| sample.is_char_boundary(*at)) {
                check(&sample[..at]);
                for other in ["", "[", "]", "{", "}", ",", ":", "\"", "\\", "x", "0", ".", "-", " ", "\u{1}", "é"] {
                    let rest = sample[at..].chars().next().map_or(0, char::len_utf8);
                    check(&[&sample[..at], other, &sample[at + rest..]].concat());
                    check(&[&sample[..at], other, &sample[at..]].concat());
                }
            }
        }
        check("[[[[[]]]]]");
    }
}
