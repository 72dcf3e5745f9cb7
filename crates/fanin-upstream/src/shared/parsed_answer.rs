//! An answer as it is shared: read once, looked at by many.

use std::sync::Arc;

use fanin_json::{Assembler, Doc};

use super::headers_size::headers_size;
use super::item::Item;
use crate::request::Answer;

/// What an answer says. Documents are shared, so a clone is cheap, and a part keeps the whole document alive.
#[derive(Clone, Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// Text: the answer's own bytes.
    Text,
    /// A document.
    Json(Doc),
    /// A value of a document.
    Part {
        /// The document.
        doc: Doc,
        /// Its position.
        at: u32,
    },
    /// A list of values of a document.
    List {
        /// The document.
        doc: Doc,
        /// Their positions.
        at: Arc<[u32]>,
    },
    /// Some entries of an object of a document.
    Entries {
        /// The document.
        doc: Doc,
        /// Positions of their keys and values.
        at: Arc<[(u32, u32)]>,
    },
    /// What was looked up is not there.
    Absent,
    /// What is under each of the keys of a request. It goes from a flight to the calls that wait for it, each of which makes
    /// what it wants of it; a flow never sees it.
    Items(Arc<[Item]>),
}

/// An answer whose body has been read.
#[derive(Clone, Debug)]
pub struct ParsedAnswer {
    /// Status and headers; its bytes belong to it only if [`Body`] is a text or a whole document.
    pub answer: Answer,
    /// What it says.
    pub body: Body,
}

impl ParsedAnswer {
    /// The same to keep for long: parts are copied out, so that a small one does not keep a large document.
    #[must_use]
    pub fn kept(&self) -> ParsedAnswer {
        let doc = match &self.body {
            Body::Part { doc, at } => doc.node(*at).to_doc(),
            Body::List { doc, at } => {
                let mut list = Assembler::list(64);
                at.iter().for_each(|at| list.item(doc.node(*at)));
                list.finish()
            }
            Body::Entries { doc, at } => {
                let mut object = Assembler::object(64);
                at.iter().for_each(|(key, value)| object.entry(doc.node(*key), doc.node(*value)));
                object.finish()
            }
            whole => {
                return ParsedAnswer { answer: self.answer.detached(self.answer.body.clone()), body: whole.clone() };
            }
        };
        // What was a part is now an answer of its own.
        let answer = self.answer.detached(doc.bytes().clone());
        ParsedAnswer { answer, body: Body::Json(doc) }
    }

    /// Bytes on the heap at most, with the indexes that are built when somebody looks. Small documents are all index.
    pub(super) fn memory(&self) -> usize {
        let doc = Doc::memory_at_most;
        let body = match &self.body {
            Body::Empty | Body::Absent => 0,
            Body::Text => self.answer.body.len(),
            Body::Json(whole) => doc(whole),
            Body::Part { doc: whole, .. } => doc(whole),
            Body::List { doc: whole, at } => doc(whole) + at.len() * 4,
            Body::Entries { doc: whole, at } => doc(whole) + at.len() * 8,
            Body::Items(items) => items.iter().map(Item::memory).sum(),
        };
        size_of::<ParsedAnswer>() + body + headers_size(&self.answer)
    }
}

impl Answer {
    /// The answer with other bytes, its headers copied out of the buffer that they came in.
    pub(super) fn detached(&self, body: bytes::Bytes) -> Answer {
        let Answer { status, elapsed, .. } = *self;
        Answer { status, headers: http::HeaderMap::clone(&self.headers).into(), body, elapsed }
    }
}
