//! What an answer holds for one key.

use std::sync::Arc;

use fanin_json::{Assembler, Doc, Node};
use smallvec::SmallVec;

use super::headers_size::headers_size;
use crate::request::Answer;

/// What is under one key of a keyed operation. Documents are shared, so a clone is cheap.
#[derive(Clone, Debug)]
pub struct Item {
    /// Status and headers of the answer that it came in, without the body.
    pub answer: Arc<Answer>,
    /// Its values, each as a document and a position in it: none if there is nothing under the key, several if the answer has
    /// several. In answers that are objects the key stands right before the value.
    pub values: SmallVec<[(Doc, u32); 1]>,
}

impl Item {
    /// Whether there is nothing under the key.
    pub fn is_absent(&self) -> bool {
        self.values.is_empty()
    }

    /// Its values.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.values.iter().map(|(doc, at)| doc.node(*at))
    }

    /// The same to keep for long: copied out, so that it does not keep a large document. `keyed` says that keys stand before values;
    /// `answer` is what all items of one answer keep of it.
    pub(super) fn kept(&self, keyed: bool, answer: &Arc<Answer>) -> Item {
        let copy = |(doc, at): &(Doc, u32)| {
            let value = doc.node(*at);
            if !keyed {
                let copy = value.to_doc();
                let at = copy.root().at();
                return (copy, at);
            }
            let mut object = Assembler::object(value.raw().len() + 32);
            object.entry(doc.node(at - 1), value);
            let copy = object.finish();
            let at = copy.root().entries().next().map(|(_, value)| value.at());
            // It has the one entry that has just been put in.
            let at = at.unwrap_or_else(|| copy.root().at());
            (copy, at)
        };
        Item { answer: answer.clone(), values: self.values.iter().map(copy).collect() }
    }

    /// Bytes on the heap at most, with the indexes that are built when somebody looks, and the headers as if no other item had them.
    pub(super) fn memory(&self) -> usize {
        let values: usize = self.values.iter().map(|(doc, _)| doc.memory_at_most() + size_of::<Doc>()).sum();
        values + headers_size(&self.answer) + size_of::<Answer>()
    }
}
