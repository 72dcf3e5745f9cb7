//! How much memory an answer's headers take.

use crate::request::Answer;

/// Bytes on the heap that an answer's headers take.
pub(super) fn headers_size(answer: &Answer) -> usize {
    answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum()
}
