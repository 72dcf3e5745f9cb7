//! Batches shared by several requests of a worker. A batch is open until its linger ends or it is full.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use fanin_upstream::shared::{Member, Members, RequestKey, SharedResult};
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Work;
use super::batch::{BatchContext, send_batch};
use super::requested_keys::RequestedKeys;

/// Identifies a batch: the operation of the current configuration (its address) and the key of the base request.
type BatchKey = (usize, RequestKey);
/// The work of each member, once the batch is closed.
type MemberWork = Rc<RefCell<Vec<Option<Work>>>>;
type ClosingFuture = Pin<Box<dyn Future<Output = MemberWork>>>;

/// An open batch. The weak reference ends with its last member.
type OpenEntry = (Rc<OpenBatch>, WeakShared<ClosingFuture>);

/// A worker's open batches.
#[derive(Default)]
pub(crate) struct OpenBatches(RefCell<HashMap<BatchKey, OpenEntry>>);

struct OpenBatch {
    calls: RefCell<Vec<Rc<RequestedKeys>>>,
    /// If its first call is recorded.
    members: Option<Arc<Members>>,
    keys: Cell<usize>,
    max_keys: usize,
    /// The earliest end of a member's linger.
    until: Cell<Instant>,
    closed: Cell<bool>,
    /// Notified when the batch is full or `until` has become earlier.
    changed: Notify,
}

impl OpenBatch {
    fn is_full(&self) -> bool {
        self.keys.get() >= self.max_keys
    }
}

impl OpenBatches {
    /// Joins the open batch with this key, or opens one with the context that `make` returns. It closes at `until` at the latest. `call`: who
    /// joins. Also gives who has joined.
    pub(crate) fn join(
        self: &Rc<Self>,
        key: BatchKey,
        requested: Rc<RequestedKeys>,
        until: Instant,
        max_keys: usize,
        call: Option<Member>,
        make: impl FnOnce() -> BatchContext,
    ) -> (Work, Option<Arc<Members>>) {
        let mut all = self.0.borrow_mut();
        let entry = all.get(&key).filter(|(open, _)| !open.closed.get());
        let (open, closing) = match entry.and_then(|(open, closing)| Some((open.clone(), closing.upgrade()?))) {
            Some(entry) => {
                if let (Some(members), Some(call)) = (&entry.0.members, call) {
                    members.add(call);
                }
                entry
            }
            None => {
                // Batches whose members have all left are still in the table.
                all.retain(|_, (open, closing)| !open.closed.get() && closing.upgrade().is_some());
                let open = Rc::new(OpenBatch {
                    calls: RefCell::default(),
                    members: call.map(Members::new),
                    keys: Cell::new(0),
                    max_keys,
                    until: Cell::new(until),
                    closed: Cell::new(false),
                    changed: Notify::new(),
                });
                let closing: ClosingFuture = Box::pin(close(self.clone(), key.clone(), open.clone(), make()));
                let closing = closing.shared();
                if let Some(weak) = closing.downgrade() {
                    all.insert(key, (open.clone(), weak));
                }
                (open, closing)
            }
        };
        let number = open.calls.borrow().len();
        open.keys.set(open.keys.get() + requested.keys.len());
        open.calls.borrow_mut().push(requested);
        if open.is_full() || until < open.until.get() {
            open.until.set(open.until.get().min(until));
            open.changed.notify_one();
        }
        let members = open.members.clone();
        (Box::pin(member(closing, number)), members)
    }
}

async fn close(all: Rc<OpenBatches>, key: BatchKey, open: Rc<OpenBatch>, context: BatchContext) -> MemberWork {
    // Wait until the batch is full or its time has ended.
    while !open.is_full() && timeout_at(open.until.get(), open.changed.notified()).await.is_ok() {}
    open.closed.set(true);
    let mut table = all.0.borrow_mut();
    if table.get(&key).is_some_and(|(other, _)| Rc::ptr_eq(other, &open)) {
        table.remove(&key);
    }
    drop(table);
    let calls = open.calls.take();
    Rc::new(RefCell::new(send_batch(context, calls).into_iter().map(Some).collect()))
}

async fn member(closing: Shared<ClosingFuture>, number: usize) -> SharedResult {
    let closed = closing.await;
    let work = closed.borrow_mut().get_mut(number).and_then(Option::take);
    match work {
        Some(work) => work.await,
        // Each member takes its own work, once.
        None => Err(fanin_upstream::CallError::cancelled(&"batch".into())),
    }
}
