//! Which calls share a request.

use std::sync::{Arc, Mutex, PoisonError};

use fanin_tracecontext::{SpanId, TraceId};

/// Members of a batch that are kept.
const MOST: usize = 64;

/// A call of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The request's number.
    pub request: u64,
    /// The call's index in it.
    pub call: u32,
    /// Its span, if its request takes part in a trace.
    pub span: Option<(TraceId, SpanId)>,
}

/// The calls of a batch, the first of which makes the request. They may be of several requests.
#[derive(Debug)]
pub struct Members(Mutex<Vec<Member>>);

impl Members {
    /// A batch that a call begins.
    pub fn new(first: Member) -> Arc<Members> {
        Arc::new(Members(Mutex::new(vec![first])))
    }

    /// Adds a call. Of a large batch, the later ones are left out.
    pub fn add(&self, member: Member) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST {
            all.push(member);
        }
    }

    /// Those so far.
    pub fn all(&self) -> Vec<Member> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
