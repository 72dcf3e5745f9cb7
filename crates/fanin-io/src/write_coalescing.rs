//! Write coalescing: the small writes of one event loop iteration are collected and made together at its end.
//!
//! A worker computes for a while between two messages. A peer that waits for a message has fallen asleep by then, and the kernel must
//! wake it for each one, which costs the sender more than the write. Messages written one right after the other find most peers awake.
//!
//! A [`WriteBatch`] belongs to one thread. It copies the bytes; one task, its [`Writer`], hands them to their targets behind whatever
//! else is ready. The memory of a batch is reused by the next one.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::ptr::addr_eq;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Capacity beyond this is released after a batch, in bytes.
const MAX_KEPT: usize = 256 << 10;

/// Capacity up to this is kept, however small the batches are.
const MIN_KEPT: usize = 8 << 10;

/// What batched bytes are written to. `C` is what the target needs besides the bytes, such as the waker of whoever awaits the answer.
pub trait BatchTarget<C> {
    /// Takes the bytes at the end of the event loop iteration. Called by the [`Writer`], once for each [`WriteBatch::append`].
    fn write(&self, bytes: &[u8], context: &C);
}

/// The writes that one thread has collected.
pub struct WriteBatch<C> {
    pending: RefCell<Pending<C>>,
    /// Empty; keeps the capacity of the batch before.
    spare: Cell<Option<Pending<C>>>,
    writer: RefCell<WriterState>,
}

struct Pending<C> {
    entries: Vec<Entry<C>>,
    /// The bytes of all entries, in order.
    bytes: Vec<u8>,
    /// Bytes of the largest batch since the last [`WriteBatch::relax`].
    largest: usize,
}

impl<C> Pending<C> {
    /// Empties it after a batch.
    fn clear(&mut self) {
        self.largest = self.largest.max(self.bytes.len());
        self.bytes.clear();
        self.bytes.shrink_to(MAX_KEPT);
    }

    /// Releases a capacity that batches have not needed lately. Waiting bytes stay.
    fn relax(&mut self) {
        let needed = self.largest.max(MIN_KEPT);
        if self.bytes.capacity() > 2 * needed {
            self.bytes.shrink_to(needed);
            self.entries.shrink_to(0);
        }
        self.largest = 0;
    }
}

struct Entry<C> {
    target: Rc<dyn BatchTarget<C>>,
    bytes: Range<usize>,
    context: C,
}

enum WriterState {
    /// No [`Writer`] exists.
    Missing,
    /// It exists and will be polled.
    Scheduled,
    /// It waits for the first entry.
    Idle(Waker),
}

impl<C> Default for Pending<C> {
    fn default() -> Pending<C> {
        Pending { entries: Vec::new(), bytes: Vec::new(), largest: 0 }
    }
}

impl<C> Default for WriteBatch<C> {
    fn default() -> WriteBatch<C> {
        let writer = RefCell::new(WriterState::Missing);
        WriteBatch { pending: RefCell::default(), spare: Cell::default(), writer }
    }
}

impl<C> WriteBatch<C> {
    /// Appends what `fill` writes, for `target`, if `fill` returns `true`. Returns the number of bytes then.
    pub fn append(
        &self,
        target: Rc<dyn BatchTarget<C>>,
        context: C,
        fill: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Option<usize> {
        let (len, is_first) = {
            let pending = &mut *self.pending.borrow_mut();
            let begin = pending.bytes.len();
            if !fill(&mut pending.bytes) {
                pending.bytes.truncate(begin);
                return None;
            }
            let bytes = begin..pending.bytes.len();
            let len = bytes.len();
            pending.entries.push(Entry { target, bytes, context });
            (len, pending.entries.len() == 1)
        };
        if is_first && let WriterState::Idle(waker) = &*self.writer.borrow() {
            waker.wake_by_ref();
        }
        Some(len)
    }

    /// Changes the context of the latest write to `target` that is still pending.
    #[cold]
    pub fn update_context(&self, target: &Rc<dyn BatchTarget<C>>, update: impl FnOnce(&mut C)) {
        let mut pending = self.pending.borrow_mut();
        let mut entries = pending.entries.iter_mut().rev();
        if let Some(entry) = entries.find(|entry| addr_eq(Rc::as_ptr(&entry.target), Rc::as_ptr(target))) {
            update(&mut entry.context);
        }
    }

    /// Drops the pending writes to `target`.
    #[cold]
    pub fn withdraw(&self, target: &Rc<dyn BatchTarget<C>>) {
        let is_withdrawn = |entry: &mut Entry<C>| addr_eq(Rc::as_ptr(&entry.target), Rc::as_ptr(target));
        let withdrawn: Vec<_> = self.pending.borrow_mut().entries.extract_if(.., is_withdrawn).collect();
        // Dropped while nothing is borrowed: a connection that is closed by it may run other code.
        drop(withdrawn);
    }

    /// Whether a [`Writer`] exists.
    pub fn has_writer(&self) -> bool {
        !matches!(*self.writer.borrow(), WriterState::Missing)
    }

    /// The task that writes. It never ends, and must run on this thread. There may be one at a time.
    pub fn writer(self: &Rc<Self>) -> Writer<C> {
        self.writer.replace(WriterState::Scheduled);
        Writer(self.clone())
    }

    /// Releases memory of a burst. To be called now and then: what batches have needed since the last time stays.
    pub fn relax(&self) {
        self.pending.borrow_mut().relax();
        if let Some(mut spare) = self.spare.take() {
            spare.relax();
            self.spare.set(Some(spare));
        }
    }

    fn write_pending(&self) {
        let spare = self.spare.take().unwrap_or_default();
        let mut pending = self.pending.replace(spare);
        for Entry { target, bytes, context } in pending.entries.drain(..) {
            target.write(&pending.bytes[bytes], &context);
        }
        pending.clear();
        self.spare.set(Some(pending));
    }
}

/// Writes a [`WriteBatch`], each time behind whatever else is ready. Dropping it drops the pending writes.
#[must_use = "it must run as a task"]
pub struct Writer<C>(Rc<WriteBatch<C>>);

impl<C> Future for Writer<C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let state = &mut *self.0.writer.borrow_mut();
            if !matches!(state, WriterState::Idle(waker) if waker.will_wake(cx.waker())) {
                *state = WriterState::Idle(cx.waker().clone());
            }
        }
        self.0.write_pending();
        Poll::Pending
    }
}

impl<C> Drop for Writer<C> {
    fn drop(&mut self) {
        self.0.writer.replace(WriterState::Missing);
        // Dropped while nothing is borrowed, as in `withdraw`.
        let pending = self.0.pending.take();
        drop(pending);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::task::{spawn_local, yield_now};

    use super::*;

    /// Records what is written, and wakes.
    #[derive(Default)]
    struct Socket(RefCell<Vec<Vec<u8>>>);

    impl BatchTarget<Waker> for Socket {
        fn write(&self, bytes: &[u8], waker: &Waker) {
            self.0.borrow_mut().push(bytes.to_vec());
            waker.wake_by_ref();
        }
    }

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn append(batch: &Rc<WriteBatch<Waker>>, target: &Rc<dyn BatchTarget<Waker>>, bytes: &[u8], waker: &Waker) {
        let appended = batch.append(target.clone(), waker.clone(), |to| {
            to.extend_from_slice(bytes);
            true
        });
        assert_eq!(appended, Some(bytes.len()));
        if !batch.has_writer() {
            spawn_local(batch.writer());
        }
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build_local(Default::default()).unwrap().block_on(test);
    }

    fn socket() -> (Rc<Socket>, Rc<dyn BatchTarget<Waker>>) {
        let socket = Rc::new(Socket::default());
        (socket.clone(), socket)
    }

    async fn event_loop_iteration() {
        yield_now().await;
        yield_now().await;
    }

    #[test]
    fn writes_are_made_together_behind_what_is_ready() {
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(count.clone());
        let batch = Rc::<WriteBatch<Waker>>::default();
        let ((one, first), (two, second)) = (socket(), socket());
        // Twice, each in a runtime of its own: the second gets a writer too.
        for times in 1..3 {
            run(async {
                append(&batch, &first, b"abc", &waker);
                assert_eq!(one.0.borrow().len(), times * 2 - 2, "nothing is written at once");
                append(&batch, &second, b"de", &waker);
                event_loop_iteration().await;
                assert_eq!(one.0.borrow().last().unwrap(), b"abc");
                assert_eq!(two.0.borrow().last().unwrap(), b"de");
                append(&batch, &first, b"f", &waker);
                event_loop_iteration().await;
                assert_eq!(one.0.borrow().last().unwrap(), b"f");
            });
        }
        assert_eq!((one.0.borrow().len(), two.0.borrow().len()), (4, 2));
        assert_eq!(count.0.load(SeqCst), 6, "each with its own context");
    }

    #[test]
    fn a_write_that_is_given_up_appends_nothing() {
        let batch = Rc::<WriteBatch<Waker>>::default();
        let (one, target) = socket();
        run(async {
            let fill = |to: &mut Vec<u8>| {
                to.extend_from_slice(b"half");
                false
            };
            assert_eq!(batch.append(target.clone(), Waker::noop().clone(), fill), None);
            append(&batch, &target, b"abc", Waker::noop());
            event_loop_iteration().await;
            assert_eq!(*one.0.borrow(), [b"abc"]);
        });
    }

    #[test]
    fn the_memory_of_a_burst_is_released_and_that_of_usual_batches_is_kept() {
        let batch = Rc::<WriteBatch<Waker>>::default();
        let (socket, target) = socket();
        let capacity = || {
            let mut pending = batch.spare.take().expect("a batch has been written");
            let capacity = pending.bytes.capacity();
            let other = batch.pending.borrow().bytes.capacity();
            pending.entries.clear();
            batch.spare.set(Some(pending));
            capacity.max(other)
        };
        run(async {
            for size in [100_000, 100_000, 20_000] {
                append(&batch, &target, &vec![b'a'; size], Waker::noop());
                event_loop_iteration().await;
            }
            assert!(capacity() >= 100_000);
            batch.relax();
            assert!(capacity() >= 100_000, "the batches since the last time were large");
            for _ in 0..2 {
                append(&batch, &target, &[b'a'; 20_000], Waker::noop());
                event_loop_iteration().await;
            }
            append(&batch, &target, b"it stays", Waker::noop());
            batch.relax();
            assert!((20_000..=40_000).contains(&capacity()), "{}", capacity());
            event_loop_iteration().await;
            assert_eq!(socket.0.borrow().last().unwrap(), b"it stays");
        });
    }

    #[test]
    fn withdrawn_writes_are_not_made() {
        let batch = Rc::<WriteBatch<Waker>>::default();
        let ((one, first), (two, second)) = (socket(), socket());
        run(async {
            append(&batch, &first, b"abc", Waker::noop());
            append(&batch, &second, b"de", Waker::noop());
            batch.withdraw(&first);
            event_loop_iteration().await;
            assert_eq!((one.0.borrow().len(), two.0.borrow().len()), (0, 1));
            append(&batch, &first, b"f", Waker::noop());
            event_loop_iteration().await;
            assert_eq!(*one.0.borrow(), [b"f"]);
        });
        assert_eq!(Rc::strong_count(&first), 2, "nothing is kept");
    }

    #[test]
    fn the_context_of_a_pending_write_may_change() {
        let batch = Rc::<WriteBatch<Waker>>::default();
        let [before, after] = [(); 2].map(|()| Arc::new(Count(0.into())));
        let (_, target) = socket();
        run(async {
            append(&batch, &target, b"abc", &Waker::from(before.clone()));
            batch.update_context(&target, |waker| *waker = Waker::from(after.clone()));
            event_loop_iteration().await;
        });
        assert_eq!([before, after].map(|count| count.0.load(SeqCst)), [0, 1]);
    }

    #[test]
    fn a_runtime_that_ends_leaves_no_pending_writes() {
        let batch = Rc::<WriteBatch<Waker>>::default();
        let (socket, target) = socket();
        run(async { append(&batch, &target, b"abc", Waker::noop()) });
        assert_eq!(Rc::strong_count(&target), 2);
        assert!(!batch.has_writer());
        run(async {
            append(&batch, &target, b"de", Waker::noop());
            event_loop_iteration().await;
        });
        assert_eq!(*socket.0.borrow(), [b"de"]);
    }
}
