//! Why an operation did not finish.

use super::failure::{Failure, Kind};
use crate::pending::PendingValue;

/// Why an operation did not finish. An operation that stops has changed nothing and is run again
/// once the reason is gone, unless it failed.
#[derive(Debug)]
pub enum Stop {
    /// It needs this value, which is pending.
    Wait(PendingValue),
    /// It would change a container that a waiting fiber can still see.
    Borrowed,
    /// It must come after everything that was started above it.
    Barrier,
    /// Its time slice is over. It has done a part of its work and continues later.
    Yield,
    /// It failed.
    Fail(Box<Failure>),
}

impl Stop {
    /// A failure that the machine will place.
    #[cold]
    pub fn fail(kind: Kind, message: impl Into<String>) -> Self {
        Self::Fail(Box::new(Failure::new(kind, message)))
    }
}

impl From<Failure> for Stop {
    #[cold]
    fn from(failure: Failure) -> Self {
        Self::Fail(Box::new(failure))
    }
}

impl From<Box<Failure>> for Stop {
    #[cold]
    fn from(failure: Box<Failure>) -> Self {
        Self::Fail(failure)
    }
}
