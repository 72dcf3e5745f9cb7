//! What an answer contains for one key.

use std::sync::Arc;

use fanin_json::{Assembler, Doc, Node};
use smallvec::SmallVec;

use super::headers_size::headers_size;
use crate::request::Answer;

/// The values of one key of a batched operation. Documents are shared, so a clone is cheap.
#[derive(Clone, Debug)]
pub struct Item {
    /// Status and headers of its answer, without the body.
    pub answer: Arc<Answer>,
    /// The values, each as a document and a position. None if the answer has nothing for the key, several if it has
    /// several. In answers that are objects, the key stands right before the value.
    pub values: SmallVec<[(Doc, u32); 1]>,
}

impl Item {
    /// Whether the answer has nothing for the key.
    pub fn is_absent(&self) -> bool {
        self.values.is_empty()
    }

    /// Its values.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.values.iter().map(|(doc, at)| doc.node(*at))
    }

    /// A copy that does not keep a large document alive. `keyed`: keys stand before values. `answer` is the copied head
    /// that all items of one answer share.
    pub(super) fn detached(&self, keyed: bool, answer: &Arc<Answer>) -> Item {
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
            // It has exactly the entry that was just added.
            let at = at.unwrap_or_else(|| copy.root().at());
            (copy, at)
        };
        Item { answer: answer.clone(), values: self.values.iter().map(copy).collect() }
    }

    /// Most bytes on the heap, including indexes that are built when the document is first read, and the headers as if
    /// no other item shared them.
    pub(super) fn memory(&self) -> usize {
        let values: usize = self.values.iter().map(|(doc, _)| doc.memory_at_most() + size_of::<Doc>()).sum();
        values + headers_size(&self.answer) + size_of::<Answer>()
    }
}
