//! Pending values: results of calls and fibers that may still come. Relatives: futures, promises.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::error::Failure;
use crate::value::{Key, Value};

/// What a pending value settles with.
pub type Outcome = Result<Value, Rc<Failure>>;

/// Longest path of parts that is kept unevaluated. JSON is never nested deeper than this, and a
/// longer path waits for its value instead.
pub const MAX_PATH: usize = 250;

/// The host's call whose answer a pending value is.
pub trait CallHandle {
    /// An attribute of the call itself (`answer.status`), asked once the call has settled. `None` if
    /// there is no such attribute.
    ///
    /// # Errors
    /// The failure to raise, for attributes that a failed call does not have.
    fn attribute(&self, name: &str, outcome: &Outcome) -> Result<Option<Value>, Failure>;

    /// The names that `attribute` knows, for hints and `dir`.
    fn attributes(&self) -> &'static [&'static str];

    /// The call in a few words, for messages about its answer: `answer of catalog`.
    fn describe(&self) -> String;
}

/// Receives a notification when a pending value settles. It is called while the machine or the host runs: it may only
/// store the token and must not touch pending values or instances.
pub trait Waiter {
    /// The pending value has settled for which `token` was registered.
    fn settled(&self, token: u64);
}

/// Waiters until the outcome is there, then the outcome.
enum State {
    Open,
    /// Most pending values have one waiter.
    Awaited(Rc<dyn Waiter>, u64),
    AwaitedBy(Vec<(Rc<dyn Waiter>, u64)>),
    Settled(Outcome),
}

impl State {
    fn outcome(&self) -> Option<&Outcome> {
        match self {
            State::Settled(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Leaves it open.
    fn take_outcome(&mut self) -> Option<Outcome> {
        match std::mem::replace(self, State::Open) {
            State::Settled(outcome) => Some(outcome),
            _ => None,
        }
    }
}

/// A reference to a pending value. Clones are the same pending value.
#[derive(Clone)]
pub struct PendingValue(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) kind: PendingKind,
    state: RefCell<State>,
}

pub(crate) enum PendingKind {
    /// A call of the host.
    Call(Rc<dyn CallHandle>),
    /// A part of an answer: soft, evaluated when it is decided on. Most parts are one step away.
    Part { of: PendingValue, key: Key },
    /// One that is further away.
    Far(Box<PathTo>),
    /// The result of a fiber.
    #[allow(clippy::box_collection, reason = "thin, so that all slots are small")]
    Fiber(RefCell<Option<Box<Vec<Derived>>>>),
    /// A value derived from a fiber's result the moment that comes.
    Derived(Box<PathTo>),
    /// Settled from its start.
    Given,
}

/// A part of a pending value, by its path.
pub(crate) struct PathTo {
    pub(crate) of: PendingValue,
    pub(crate) path: Box<[Key]>,
}

/// Something to do the moment a fiber's result is there, before anyone else can see it.
pub(crate) enum Derived {
    /// Take a part of it.
    Index(Later),
    /// Take a snapshot of a part, for a call that was made before the result was there.
    Capture(Later),
    /// Mark it as borrowed by the suspended fiber with this token.
    Borrow(u64),
}

/// A value to compute from a fiber's result.
pub(crate) struct Later {
    pub(crate) pending: PendingValue,
    pub(crate) path: Box<[Key]>,
    /// Where it is in the program.
    pub(crate) order: crate::program_order::ProgramOrder,
    pub(crate) place: crate::program_point::ProgramPoint,
}

impl PendingValue {
    fn with(kind: PendingKind) -> Self {
        Self(Rc::new(Inner { kind, state: RefCell::new(State::Open) }))
    }

    /// A pending value for a call of the host. The host settles it.
    #[must_use]
    pub fn call(source: Rc<dyn CallHandle>) -> Self {
        Self::with(PendingKind::Call(source))
    }

    pub(crate) fn fiber() -> Self {
        Self::with(PendingKind::Fiber(RefCell::new(None)))
    }

    pub(crate) fn derived(of: PendingValue, path: Box<[Key]>) -> Self {
        Self::with(PendingKind::Derived(Box::new(PathTo { of, path })))
    }

    /// A pending value that failed before anyone waited: a missing part of an answer.
    #[cold]
    pub(crate) fn failed(failure: Failure) -> Self {
        let pending = Self::with(PendingKind::Given);
        pending.settle(Err(failure));
        pending
    }

    /// The part at `key` of this pending, which must be a call or a part. `None` if the path would be
    /// too long.
    pub(crate) fn part(&self, key: Key) -> Option<Self> {
        let (of, path) = match &self.0.kind {
            PendingKind::Part { of, key } => (of, std::slice::from_ref(key)),
            PendingKind::Far(way) => (&way.of, &*way.path),
            _ => return Some(Self::with(PendingKind::Part { of: self.clone(), key })),
        };
        if path.len() >= MAX_PATH {
            return None;
        }
        let mut longer = Vec::with_capacity(path.len() + 1);
        longer.extend(path.iter().cloned());
        longer.push(key);
        Some(Self::with(PendingKind::Far(Box::new(PathTo { of: of.clone(), path: longer.into_boxed_slice() }))))
    }

    /// The call that this is, or is a part of.
    #[must_use]
    pub fn root(&self) -> &PendingValue {
        match &self.0.kind {
            PendingKind::Part { of, .. } => of,
            PendingKind::Far(way) => &way.of,
            _ => self,
        }
    }

    /// What is behind it, if it is a call of the host or a part of one's answer.
    #[must_use]
    pub fn source(&self) -> Option<&Rc<dyn CallHandle>> {
        match &self.root().0.kind {
            PendingKind::Call(source) => Some(source),
            _ => None,
        }
    }

    /// Whether this is a call of the host itself, not a part of its answer.
    #[must_use]
    pub fn is_call(&self) -> bool {
        matches!(self.0.kind, PendingKind::Call(_))
    }

    /// Whether indexing gives a lazy part.
    pub(crate) fn is_soft(&self) -> bool {
        matches!(self.0.kind, PendingKind::Call(_) | PendingKind::Part { .. } | PendingKind::Far(_))
    }

    /// Whether both are the same pending.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the outcome is there.
    #[must_use]
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.root().0.is_settled()
    }

    /// The outcome, `None` while it is pending. The value of a successful one may itself be
    /// pending (a function that returned a call's answer unlooked).
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        if let Some(outcome) = self.0.state.borrow().outcome() {
            return Some(outcome.clone());
        }
        let (of, path) = match &self.0.kind {
            PendingKind::Part { of, key } => (of, std::slice::from_ref(key)),
            PendingKind::Far(way) => (&way.of, &*way.path),
            _ => return None,
        };
        let outcome = match of.outcome()? {
            Ok(whole) => crate::value::part::walk(&whole, path),
            Err(failure) => Err(failure),
        };
        *self.0.state.borrow_mut() = State::Settled(outcome.clone());
        Some(outcome)
    }

    /// Calls `read` with the outcome, without cloning it.
    #[inline]
    pub(crate) fn with_outcome<R>(&self, read: impl FnOnce(&Outcome) -> R) -> Option<R> {
        if self.0.state.borrow().outcome().is_none() {
            let _ = self.outcome()?;
        }
        self.0.state.borrow().outcome().map(read)
    }

    /// Sets the outcome and notifies every waiter. Later outcomes are ignored.
    pub fn settle(&self, outcome: Result<Value, Failure>) {
        self.settle_shared(outcome.map_err(Rc::new));
    }

    /// The same with a failure that others share.
    pub fn settle_shared(&self, outcome: Outcome) {
        if self.0.is_settled() {
            return;
        }
        let outcome = match outcome {
            Ok(value @ Value::Pending(_)) => Ok(shorten(value)),
            other => other,
        };
        let before = std::mem::replace(&mut *self.0.state.borrow_mut(), State::Settled(outcome));
        match before {
            State::Open | State::Settled(_) => {}
            State::Awaited(waiter, token) => waiter.settled(token),
            State::AwaitedBy(waiters) => {
                for (waiter, token) in waiters {
                    waiter.settled(token);
                }
            }
        }
    }

    /// Notifies `waiter` when the value settles; at once if it has.
    pub fn on_settled(&self, waiter: Rc<dyn Waiter>, token: u64) {
        let root = self.root();
        if root.0.is_settled() {
            waiter.settled(token);
        } else {
            let mut state = root.0.state.borrow_mut();
            *state = match std::mem::replace(&mut *state, State::Open) {
                State::Awaited(first, at) => State::AwaitedBy(vec![(first, at), (waiter, token)]),
                State::AwaitedBy(mut waiters) => {
                    waiters.push((waiter, token));
                    State::AwaitedBy(waiters)
                }
                State::Open | State::Settled(_) => State::Awaited(waiter, token),
            };
        }
    }

    pub(crate) fn derive(&self, derived: Derived) {
        if let PendingKind::Fiber(list) = &self.0.kind {
            list.borrow_mut().get_or_insert_default().push(derived);
        }
    }

    pub(crate) fn take_derived(&self) -> Vec<Derived> {
        match &self.0.kind {
            PendingKind::Fiber(list) => list.borrow_mut().take().map_or_else(Vec::new, |list| *list),
            _ => Vec::new(),
        }
    }

    /// Bytes that a pending value takes on the heap, without its source and outcome.
    pub const SIZE: usize = size_of::<Inner>() + 2 * size_of::<usize>();
}

impl Inner {
    #[inline]
    fn is_settled(&self) -> bool {
        self.state.borrow().outcome().is_some()
    }
}

// Thousands of flows hold two of them while they wait, and an allocator has a size for 80 bytes.
const _: () = assert!(PendingValue::SIZE <= 80);

/// Skips pending values that only pass another's value on, so that chains stay short.
fn shorten(mut value: Value) -> Value {
    while let Value::Pending(pending) = &value {
        // A call keeps its link to the host.
        if pending.is_soft() {
            break;
        }
        match pending.outcome() {
            Some(Ok(inner)) => value = inner,
            _ => break,
        }
    }
    value
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A chain of pending values that pass each other's value on is taken apart in a loop: dropping it
        // link by link would recurse once for each.
        let mut next = self.state.get_mut().take_outcome();
        while let Some(Ok(Value::Pending(pending))) = next {
            match Rc::try_unwrap(pending.0) {
                Ok(mut inner) => next = inner.state.get_mut().take_outcome(),
                Err(_) => break,
            }
        }
    }
}

impl fmt::Debug for PendingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source() {
            Some(source) => write!(f, "PendingValue({})", source.describe()),
            None => f.write_str("PendingValue"),
        }
    }
}
