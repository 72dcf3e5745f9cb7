//! When requests leave: those of one lap of the worker together.
//!
//! A request that is written as soon as it is made finds the other side asleep as a rule, since this side computes for a while
//! between any two: the kernel wakes it, which costs the sender more than the sending, and it falls asleep again before the next.
//! Written behind whatever else is ready, one after the other, most requests find it awake. Hand-written servers on hyper have this
//! by the way, because their requests pass through a queue to a connection's own task.
//!
//! Short requests over plain TCP wait as bytes ([`push`]) for one task of the worker, which writes them one after the other; the
//! calls that they are of need not be polled for that. Others wait as calls ([`together`]), for one more turn of their flow's task.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::mem;
use std::ops::Range;
use std::pin::Pin;
use std::ptr::addr_eq;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::limiter::wake_behind;

/// Waits until the worker has run what is ready now.
pub(in crate::transport) async fn together() {
    let mut waits = true;
    poll_fn(|cx| {
        if mem::take(&mut waits) {
            wake_behind(cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// What bytes leave on.
pub(in crate::transport) trait Departs {
    /// Writes as many as can be written at once. `waker` is woken when there is more to do: not all was written, or an answer comes.
    fn depart(&self, bytes: &[u8], waker: &Waker);
}

thread_local! {
    static DEPARTURES: Departures = const {
        Departures {
            waiting: RefCell::new(Waiting { entries: Vec::new(), bytes: Vec::new() }),
            writer: RefCell::new(Writer::None),
            spare: Cell::new(None),
        }
    };
}

/// Room for the bytes of a lap beyond this is given back after it.
const MAX_KEPT: usize = 256 << 10;

struct Departures {
    waiting: RefCell<Waiting>,
    writer: RefCell<Writer>,
    /// Empty, with the room of the lap before.
    spare: Cell<Option<Waiting>>,
}

struct Waiting {
    entries: Vec<Entry>,
    /// Of all entries, one behind the other.
    bytes: Vec<u8>,
}

struct Entry {
    on: Rc<dyn Departs>,
    bytes: Range<usize>,
    /// Of whoever waits for the answer.
    waker: Waker,
}

/// The task that writes. It ends with its runtime, and there may be another one on this thread afterwards.
enum Writer {
    None,
    Started,
    Sleeps(Waker),
}

/// Has `bytes` written on `on` once the worker has run what is ready now. To be called where `spawn_local` works.
pub(in crate::transport) fn push(on: Rc<dyn Departs>, bytes: &[u8], waker: &Waker) {
    DEPARTURES.with(|departures| {
        let is_first = {
            let waiting = &mut *departures.waiting.borrow_mut();
            let begin = waiting.bytes.len();
            waiting.bytes.extend_from_slice(bytes);
            waiting.entries.push(Entry { on, bytes: begin..waiting.bytes.len(), waker: waker.clone() });
            waiting.entries.len() == 1
        };
        if is_first {
            let writer = &mut *departures.writer.borrow_mut();
            match writer {
                Writer::None => {
                    *writer = Writer::Started;
                    tokio::task::spawn_local(Write);
                }
                Writer::Started => {}
                Writer::Sleeps(waker) => waker.wake_by_ref(),
            }
        }
    });
}

/// From now on `waker` is the one of what waits to be written on `on`.
#[cold]
pub(in crate::transport) fn set_waker(on: &Rc<dyn Departs>, waker: &Waker) {
    DEPARTURES.with(|departures| {
        let mut waiting = departures.waiting.borrow_mut();
        let entry = waiting.entries.iter_mut().rev().find(|entry| addr_eq(Rc::as_ptr(&entry.on), Rc::as_ptr(on)));
        if let Some(entry) = entry {
            entry.waker.clone_from(waker);
        }
    });
}

/// What waits to be written on `on` is not written.
#[cold]
pub(in crate::transport) fn withdraw(on: &Rc<dyn Departs>) {
    let withdrawn: Vec<Entry> = DEPARTURES.with(|departures| {
        let mut waiting = departures.waiting.borrow_mut();
        waiting.entries.extract_if(.., |entry| addr_eq(Rc::as_ptr(&entry.on), Rc::as_ptr(on))).collect()
    });
    // Outside: a connection that is closed here may wake somebody.
    drop(withdrawn);
}

struct Write;

impl Future for Write {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        DEPARTURES.with(|departures| {
            {
                let writer = &mut *departures.writer.borrow_mut();
                if !matches!(writer, Writer::Sleeps(waker) if waker.will_wake(cx.waker())) {
                    *writer = Writer::Sleeps(cx.waker().clone());
                }
            }
            let spare = departures.spare.take().unwrap_or(Waiting { entries: Vec::new(), bytes: Vec::new() });
            let mut waiting = departures.waiting.replace(spare);
            for Entry { on, bytes, waker } in waiting.entries.drain(..) {
                on.depart(&waiting.bytes[bytes], &waker);
            }
            waiting.bytes.clear();
            waiting.bytes.shrink_to(MAX_KEPT);
            departures.spare.set(Some(waiting));
        });
        Poll::Pending
    }
}

impl Drop for Write {
    /// The runtime ends, and with it all connections that could be written on. After the thread's own end there is nothing to do.
    fn drop(&mut self) {
        let _ = DEPARTURES.try_with(|departures| {
            *departures.writer.borrow_mut() = Writer::None;
            let waiting = departures.waiting.replace(Waiting { entries: Vec::new(), bytes: Vec::new() });
            drop(waiting);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::task::yield_now;

    use super::*;

    /// Takes what it is given.
    #[derive(Default)]
    struct Socket(RefCell<Vec<Vec<u8>>>);

    impl Departs for Socket {
        fn depart(&self, bytes: &[u8], waker: &Waker) {
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

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build_local(Default::default()).unwrap().block_on(test);
    }

    fn socket() -> (Rc<Socket>, Rc<dyn Departs>) {
        let socket = Rc::new(Socket::default());
        (socket.clone(), socket)
    }

    async fn lap() {
        yield_now().await;
        yield_now().await;
    }

    #[test]
    fn bytes_leave_together_behind_what_is_ready() {
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(count.clone());
        let ((one, first), (two, second)) = (socket(), socket());
        // Twice, each in a runtime of its own: the second has a writer too.
        for times in 1..3 {
            run(async {
                push(first.clone(), b"abc", &waker);
                assert_eq!(one.0.borrow().len(), times * 2 - 2, "nothing is written at once");
                push(second.clone(), b"de", &waker);
                lap().await;
                assert_eq!(one.0.borrow().last().unwrap(), b"abc");
                assert_eq!(two.0.borrow().last().unwrap(), b"de");
                push(first.clone(), b"f", &waker);
                lap().await;
                assert_eq!(one.0.borrow().last().unwrap(), b"f");
            });
        }
        assert_eq!((one.0.borrow().len(), two.0.borrow().len()), (4, 2));
        assert_eq!(count.0.load(SeqCst), 6, "each with the waker that it came with");
    }

    #[test]
    fn what_is_withdrawn_is_not_written() {
        let ((one, first), (two, second)) = (socket(), socket());
        run(async {
            push(first.clone(), b"abc", Waker::noop());
            push(second, b"de", Waker::noop());
            withdraw(&first);
            lap().await;
            assert_eq!((one.0.borrow().len(), two.0.borrow().len()), (0, 1));
            push(first.clone(), b"f", Waker::noop());
            lap().await;
            assert_eq!(*one.0.borrow(), [b"f"]);
        });
        assert_eq!(Rc::strong_count(&first), 2, "nothing is kept");
    }

    #[test]
    fn the_waker_of_what_waits_may_change() {
        let [before, after] = [(); 2].map(|()| Arc::new(Count(0.into())));
        let (_, on) = socket();
        run(async {
            push(on.clone(), b"abc", &Waker::from(before.clone()));
            set_waker(&on, &Waker::from(after.clone()));
            lap().await;
        });
        assert_eq!([before, after].map(|count| count.0.load(SeqCst)), [0, 1]);
    }

    #[test]
    fn a_runtime_that_ends_leaves_nothing_behind() {
        let (socket, on) = socket();
        run(async { push(on.clone(), b"abc", Waker::noop()) });
        assert_eq!(Rc::strong_count(&on), 2);
        run(async {
            push(on.clone(), b"de", Waker::noop());
            lap().await;
        });
        assert_eq!(*socket.0.borrow(), [b"de"]);
    }
}
