//! What came of a request.

/// The result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptResult {
    /// A complete answer.
    Answer {
        status: u16,
        /// Bytes of its body.
        bytes: u64,
    },
    /// No connection could be made.
    Connect,
    /// The connection broke, or the answer was not valid HTTP.
    Broken,
}
