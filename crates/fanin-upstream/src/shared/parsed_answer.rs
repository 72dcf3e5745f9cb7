//! An answer that has been parsed once and is shared by many calls.

use std::sync::Arc;

use fanin_json::{Assembler, Doc};

use super::headers_size::headers_size;
use super::item::Item;
use crate::request::Answer;

/// The parsed body. Documents are shared, so a clone is cheap, and a part keeps the whole document alive.
#[derive(Clone, Debug)]
pub enum Body {
    /// No body.
    Empty,
    /// Text: the bytes of the answer.
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
    /// The requested key is not there.
    Absent,
    /// The items of each key of a request. They go from a single-flight request to its calls, each of which builds its
    /// own body. A flow never sees it.
    Items(Arc<[Item]>),
}

/// An answer with its parsed body.
#[derive(Clone, Debug)]
pub struct ParsedAnswer {
    /// Status and headers. Its bytes count only if [`Body`] is a text or a whole document.
    pub answer: Answer,
    /// The parsed body.
    pub body: Body,
}

impl ParsedAnswer {
    /// A copy to keep for long: parts are copied, so that a small one does not keep a large document alive.
    #[must_use]
    pub fn detached(&self) -> ParsedAnswer {
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
        // The copied part is an answer of its own.
        let answer = self.answer.detached(doc.bytes().clone());
        ParsedAnswer { answer, body: Body::Json(doc) }
    }

    /// Most bytes on the heap, including indexes that are built when the document is first read.
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
    /// The answer with other bytes, its headers copied out of the buffer that was read.
    pub(super) fn detached(&self, body: bytes::Bytes) -> Answer {
        let Answer { status, elapsed, unrequested_part, .. } = *self;
        Answer { status, headers: http::HeaderMap::clone(&self.headers).into(), body, elapsed, unrequested_part }
    }
}
