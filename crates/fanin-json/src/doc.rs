//! A validated body.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::error::JsonError;
use crate::scan::{self, Nothing};
use crate::tape::Tape;

/// A body that is JSON, as the very bytes that came.
///
/// A clone is one reference count. The index that looking inside needs is built by the first look
/// (by whichever thread is first) and never changes; a body that is only passed on never has one.
#[derive(Clone)]
pub struct Doc(Arc<Inner>);

struct Inner {
    /// The one value, whitespace around it cut off.
    bytes: Bytes,
    tape: OnceLock<Tape>,
}

impl Doc {
    /// Position of the outermost value in every document.
    pub const ROOT: u32 = 0;

    /// Validates `bytes`: the grammar of RFC 8259 to the last byte, UTF-8, and arrays and objects
    /// nested at most `max_depth` deep (0 allows only a scalar).
    ///
    /// # Errors
    /// What was expected and where, if `bytes` is not such a document; also if it is over 4 GiB.
    pub fn parse(bytes: Bytes, max_depth: usize) -> Result<Self, JsonError> {
        match scan::scan(&bytes, max_depth, &mut Nothing) {
            Ok(extent) => Ok(Self::valid(if extent.end - extent.start == bytes.len() {
                bytes
            } else {
                bytes.slice(extent.start..extent.end)
            })),
            Err(fault) => Err(fault.locate(&bytes)),
        }
    }

    /// The same for a body that will be read: its index is built by the pass that
    /// validates it, which saves a second one.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_indexed(bytes: Bytes, max_depth: usize) -> Result<Self, JsonError> {
        match Tape::validate(&bytes, max_depth) {
            Ok((extent, tape)) if extent.end - extent.start == bytes.len() => {
                Ok(Self(Arc::new(Inner { bytes, tape: OnceLock::from(tape) })))
            }
            // Without the whitespace around it, every position is another one.
            Ok((extent, _)) => Ok(Self::valid(bytes.slice(extent.start..extent.end))),
            Err(fault) => Err(fault.locate(&bytes)),
        }
    }

    /// The same, and the indexes of all large containers: no later look takes time in proportion to the body. For a thread that may
    /// compute for some milliseconds. `pause` is called each millisecond or so.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_for_reading(bytes: Bytes, max_depth: usize, pause: fn()) -> Result<Self, JsonError> {
        let doc = Self::parse_indexed(bytes, max_depth)?;
        pause();
        doc.tape().index_large(doc.bytes(), pause);
        Ok(doc)
    }

    /// `bytes` must be one valid value without whitespace around it.
    pub(crate) fn valid(bytes: Bytes) -> Self {
        Self(Arc::new(Inner { bytes, tape: OnceLock::new() }))
    }

    /// The value's bytes as they came, whitespace around it left out.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    /// Whether the index has been built.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        self.0.tape.get().is_some()
    }

    /// Bytes that this document holds on the heap now: the body (all of it, even if this is a part
    /// of a larger one that it keeps alive is not known here) and the index once built.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Inner>() + self.0.bytes.len() + self.0.tape.get().map_or(0, Tape::memory)
    }

    /// What [`memory`](Self::memory) and the indexes of large containers may come to at most, however the document is looked
    /// at from now on: a number that does not change, for those who bound what they keep.
    #[must_use]
    pub fn memory_at_most(&self) -> usize {
        // One of these is before every value and key but the outermost.
        let before = self.0.bytes.iter().filter(|byte| matches!(**byte, b',' | b':' | b'[' | b'{')).count();
        size_of::<Inner>() + self.0.bytes.len() + (before + 1) * Tape::PER_ENTRY
    }

    /// Whether both are the same document (not: equal ones).
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[inline]
    pub(crate) fn tape(&self) -> &Tape {
        self.0.tape.get_or_init(|| Tape::build(&self.0.bytes))
    }
}

impl std::fmt::Debug for Doc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 200;
        let shown = self.0.bytes.get(..SHOWN).unwrap_or(&self.0.bytes);
        write!(f, "Doc({} bytes: {})", self.0.bytes.len(), String::from_utf8_lossy(shown))
    }
}
