//! Batches that calls of several requests of a worker join: open for their linger, or until they are full.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use fanin_upstream::shared::{RequestKey, SharedResult};
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Work;
use super::batch::{Launch, launch};
use super::requested_keys::Asked;

/// What a batch is for: the operation as it is configured now, and all that its calls must have in common.
type Of = (usize, RequestKey);
/// Each call's work, once the batch is closed.
type Closed = Rc<RefCell<Vec<Option<Work>>>>;
type Closing = Pin<Box<dyn Future<Output = Closed>>>;

/// Known as long as somebody waits for its closing.
type Known = (Rc<Open>, WeakShared<Closing>);

/// A worker's open batches.
#[derive(Default)]
pub(crate) struct OpenBatches(RefCell<HashMap<Of, Known>>);

struct Open {
    calls: RefCell<Vec<Rc<Asked>>>,
    keys: Cell<usize>,
    max_keys: usize,
    /// When the first of its calls can wait no longer, which need not be the one that opened it.
    until: Cell<Instant>,
    closed: Cell<bool>,
    /// It is full, or has to be sent sooner.
    changed: Notify,
}

impl Open {
    fn is_full(&self) -> bool {
        self.keys.get() >= self.max_keys
    }
}

impl OpenBatches {
    /// Joins the open batch of these calls, or opens one with what `make` gives. It is open until `until` at most, whoever joins.
    pub(crate) fn join(
        self: &Rc<Self>,
        of: Of,
        asked: Rc<Asked>,
        until: Instant,
        max_keys: usize,
        make: impl FnOnce() -> Launch,
    ) -> Work {
        let mut all = self.0.borrow_mut();
        let known = all.get(&of).filter(|(open, _)| !open.closed.get());
        let (open, closing) = match known.and_then(|(open, closing)| Some((open.clone(), closing.upgrade()?))) {
            Some(known) => known,
            None => {
                // Those that everybody has left are still on the table.
                all.retain(|_, (open, closing)| !open.closed.get() && closing.upgrade().is_some());
                let open = Rc::new(Open {
                    calls: RefCell::default(),
                    keys: Cell::new(0),
                    max_keys,
                    until: Cell::new(until),
                    closed: Cell::new(false),
                    changed: Notify::new(),
                });
                let closing: Closing = Box::pin(close(self.clone(), of.clone(), open.clone(), make()));
                let closing = closing.shared();
                if let Some(weak) = closing.downgrade() {
                    all.insert(of, (open.clone(), weak));
                }
                (open, closing)
            }
        };
        let number = open.calls.borrow().len();
        open.keys.set(open.keys.get() + asked.keys.len());
        open.calls.borrow_mut().push(asked);
        if open.is_full() || until < open.until.get() {
            open.until.set(open.until.get().min(until));
            open.changed.notify_one();
        }
        Box::pin(member(closing, number))
    }
}

async fn close(all: Rc<OpenBatches>, of: Of, open: Rc<Open>, with: Launch) -> Closed {
    // The time being over is as good a reason to close as being full.
    while !open.is_full() && timeout_at(open.until.get(), open.changed.notified()).await.is_ok() {}
    open.closed.set(true);
    let mut table = all.0.borrow_mut();
    if table.get(&of).is_some_and(|(other, _)| Rc::ptr_eq(other, &open)) {
        table.remove(&of);
    }
    drop(table);
    let calls = open.calls.take();
    Rc::new(RefCell::new(launch(with, calls).into_iter().map(Some).collect()))
}

async fn member(closing: Shared<Closing>, number: usize) -> SharedResult {
    let closed = closing.await;
    let work = closed.borrow_mut().get_mut(number).and_then(Option::take);
    match work {
        Some(work) => work.await,
        // Each call takes its own, once.
        None => Err(fanin_upstream::CallError::cancelled(&"batch".into())),
    }
}
