//! The calls of one worker that wait for a connection to one endpoint, the oldest request first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use crate::error::Failure;

/// The waiting calls. `T` is what they wait for.
#[derive(Debug)]
pub(crate) struct ConnectionQueue<T> {
    waiting: VecDeque<Rc<Waiter<T>>>,
    next: u64,
}

/// One call in the queue, shared by the queue and the call.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    age: Instant,
    number: u64,
    state: RefCell<State<T>>,
}

#[derive(Debug)]
enum State<T> {
    Waiting(Option<Waker>),
    Settled(Result<T, Failure>),
    Left,
}

impl<T> Waiter<T> {
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let mut state = self.state.borrow_mut();
        match &mut *state {
            State::Waiting(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            _ => match std::mem::replace(&mut *state, State::Left) {
                State::Settled(result) => Poll::Ready(result),
                // Polled again after its end, which no executor does.
                State::Waiting(_) | State::Left => Poll::Pending,
            },
        }
    }

    /// The call is dropped. Returns what it was given and has not taken.
    pub fn leave(&self) -> Option<T> {
        match self.state.replace(State::Left) {
            State::Settled(Ok(given)) => Some(given),
            State::Settled(Err(_)) | State::Waiting(_) | State::Left => None,
        }
    }

    fn settle(&self, result: Result<T, Failure>) {
        let before = self.state.replace(State::Settled(result));
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Default for ConnectionQueue<T> {
    fn default() -> Self {
        ConnectionQueue { waiting: VecDeque::new(), next: 0 }
    }
}

impl<T> ConnectionQueue<T> {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the request of the oldest waiting call started.
    pub fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|waiter| waiter.age)
    }

    /// The number of the next waiter. Waiters with smaller numbers joined before.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    pub fn join(&mut self, age: Instant) -> Rc<Waiter<T>> {
        let waiter = Rc::new(Waiter { age, number: self.next, state: RefCell::new(State::Waiting(None)) });
        self.next += 1;
        // Newcomers are mostly of young requests, so the search from the back is short.
        let behind = self.waiting.iter().rev().take_while(|other| other.age > age).count();
        self.waiting.insert(self.waiting.len() - behind, waiter.clone());
        waiter
    }

    pub fn remove(&mut self, waiter: &Rc<Waiter<T>>) {
        if let Some(at) = self.waiting.iter().position(|other| Rc::ptr_eq(other, waiter)) {
            self.waiting.remove(at);
        }
    }

    /// Gives to the oldest waiter. Returns `what` if there is none.
    pub fn serve(&mut self, what: T) -> Result<(), T> {
        match self.waiting.pop_front() {
            Some(waiter) => {
                waiter.settle(Ok(what));
                Ok(())
            }
            None => Err(what),
        }
    }

    /// Fails the oldest waiter; with `all_before` also all with a smaller number.
    pub fn fail(&mut self, failure: &Failure, all_before: Option<u64>) {
        if let Some(oldest) = self.waiting.pop_front() {
            oldest.settle(Err(failure.clone()));
        }
        if let Some(mark) = all_before {
            self.waiting.retain(|waiter| {
                let stays = waiter.number >= mark;
                if !stays {
                    waiter.settle(Err(failure.clone()));
                }
                stays
            });
        }
    }
}
