//! Flows that compute for long take turns, so that a worker's other requests do not wait for all of them.
//!
//! A flow that has used up its steps of one turn lets its worker go on. With many such flows in the worker's run queue, whatever else
//! happens there would wait for a turn of each, and at each of its steps anew: a request read, a flow started, an answer taken up, a
//! response written. So after its first few turns a flow queues here, and only who is first in this queue is in the
//! worker's. Between two turns the worker looks at its sockets and runs whatever else is ready.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// For so long a flow computes like any other task.
const FIRST: Duration = Duration::from_millis(1);

/// The flows of one worker that want another turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    queue: Rc<RefCell<VecDeque<Rc<Ticket>>>>,
}

#[derive(Debug, Default)]
struct Ticket {
    gone: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Turns {
    /// How many queue.
    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Ready when a flow that has computed for so long may have its next turn, which lasts until what it gets is dropped.
    pub(crate) async fn next(&self, had: Duration) -> Option<Turn> {
        let turn = (had >= FIRST).then(|| self.enter());
        if let Some(turn) = &turn {
            poll_fn(|cx| {
                if self.is_first(&turn.ticket) {
                    return Poll::Ready(());
                }
                *turn.ticket.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
        }
        // Comes back after the sockets have been looked at and whatever was ready has run.
        tokio::task::yield_now().await;
        turn
    }

    fn enter(&self) -> Turn {
        let ticket = Rc::new(Ticket::default());
        self.queue.borrow_mut().push_back(ticket.clone());
        Turn { turns: self.clone(), ticket }
    }

    fn is_first(&self, ticket: &Rc<Ticket>) -> bool {
        self.queue.borrow().front().is_some_and(|first| Rc::ptr_eq(first, ticket))
    }
}

/// A place in the queue, and once it is the first one, the turn. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    ticket: Rc<Ticket>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.ticket.gone.set(true);
        let mut queue = self.turns.queue.borrow_mut();
        let was_first = queue.front().is_some_and(|first| first.gone.get());
        // Who left from the middle is dropped when its turn comes.
        while queue.front().is_some_and(|first| first.gone.get()) {
            queue.pop_front();
        }
        let next = queue.front().filter(|_| was_first).and_then(|first| first.waker.take());
        drop(queue);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs flows of so many turns each on a worker; gives who ran, in order.
    async fn run(flows: &[u32]) -> Vec<usize> {
        let (turns, ran) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        for (name, wanted) in flows.iter().copied().enumerate() {
            let (turns, ran) = (turns.clone(), ran.clone());
            local.spawn_local(async move {
                for at in 0..wanted {
                    let turn = turns.next(FIRST * at / 4).await;
                    ran.borrow_mut().push(name);
                    drop(turn);
                }
            });
        }
        local.await;
        assert_eq!(turns.len(), 0);
        Rc::try_unwrap(ran).unwrap().into_inner()
    }

    #[tokio::test]
    async fn all_come_to_their_end_in_turn() {
        let ran = run(&[10, 10, 10]).await;
        assert_eq!(ran.len(), 30);
        assert!(ran.chunks(3).all(|round| {
            let mut round = round.to_vec();
            round.sort_unstable();
            round == [0, 1, 2]
        }));
    }

    #[tokio::test]
    async fn others_run_between_any_two_turns_of_those_that_compute_for_long() {
        let (turns, ran) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        for name in 0..10 {
            let (turns, ran) = (turns.clone(), ran.clone());
            local.spawn_local(async move {
                for _ in 0..20 {
                    let turn = turns.next(FIRST).await;
                    ran.borrow_mut().push(name);
                    drop(turn);
                }
            });
        }
        let (done, seen) = (ran.clone(), Rc::new(Cell::new(0)));
        let (longest, other) = (Rc::new(Cell::new(0)), seen.clone());
        let most = longest.clone();
        local.spawn_local(async move {
            while done.borrow().len() < 200 {
                let now = done.borrow().len();
                most.set(most.get().max(now - other.replace(now)));
                tokio::task::yield_now().await;
            }
        });
        local.await;
        assert!(longest.get() <= 2, "{} turns between two of another task", longest.get());
    }

    #[tokio::test]
    async fn who_leaves_holds_nobody_up() {
        let turns = Turns::default();
        let first = turns.next(FIRST).await;
        let second = turns.enter();
        let third = turns.enter();
        drop(second);
        assert!(!turns.is_first(&third.ticket));
        drop(first);
        assert!(turns.is_first(&third.ticket));
        drop(third);
        assert_eq!(turns.len(), 0);
    }
}
