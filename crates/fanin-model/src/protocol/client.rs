//! A connection as its requests and its thread know it: how its client takes answers, and why it is to end.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};
use std::time::Duration;

use slab::Slab;

use super::{Service, Serving};

/// How often connections are looked at.
const EVERY: Duration = Duration::from_secs(5);
/// A connection that has been given nothing of its answers between so many looks is closed: after 30 to 35 seconds.
const LOOKS: u32 = 7;

/// Why a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its client takes nothing of an answer.
    Untaken,
    /// The server drains.
    Drain,
}

/// A connection. It counts as open as long as its [`Open`] is there.
pub(super) struct Client {
    pub service: Arc<Service>,
    pub serving: Rc<Serving>,
    state: State,
}

#[derive(Default)]
struct State {
    /// Answers that the connection has not been given the whole of.
    answers: Cell<usize>,
    /// Looks since it was given a piece of one.
    looks: Cell<u32>,
    end: Cell<Option<End>>,
    /// The connection's task.
    waker: Cell<Option<Waker>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("answers", &self.state.answers).field("end", &self.state.end).finish()
    }
}

impl Client {
    /// An answer goes out on the connection.
    pub fn answers(&self) {
        self.state.answers.set(self.state.answers.get() + 1);
        self.takes();
    }

    /// An answer has been taken, or given up.
    pub fn answered(&self) {
        self.state.answers.set(self.state.answers.get() - 1);
    }

    /// The client takes a piece of an answer.
    pub fn takes(&self) {
        self.state.looks.set(0);
    }

    /// Whether the connection is to end; its task is woken when it is.
    pub fn poll_end(&self, cx: &Context<'_>) -> Option<End> {
        self.state.poll_end(cx)
    }
}

impl State {
    fn poll_end(&self, cx: &Context<'_>) -> Option<End> {
        let end = self.end.get();
        if end.is_none() {
            let waker = self.waker.take().filter(|waker| waker.will_wake(cx.waker()));
            self.waker.set(Some(waker.unwrap_or_else(|| cx.waker().clone())));
        }
        end
    }

    fn end(&self, why: End) {
        self.end.set(Some(why));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn look(&self) {
        if self.answers.get() > 0 {
            self.looks.set(self.looks.get() + 1);
            if self.looks.get() >= LOOKS {
                self.end(End::Untaken);
            }
        }
    }
}

/// An open connection, counted.
#[derive(Debug)]
pub(super) struct Open {
    client: Rc<Client>,
    /// Its number among the connections of its thread.
    number: usize,
}

impl Open {
    pub fn new(service: Arc<Service>, serving: Rc<Serving>) -> Open {
        let client = Rc::new(Client { service, serving, state: State::default() });
        let serving = &client.serving;
        if serving.draining.get() {
            client.state.end(End::Drain);
        }
        let number = serving.clients.0.borrow_mut().insert(client.clone());
        Open { client, number }
    }

    pub fn client(&self) -> &Rc<Client> {
        &self.client
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.client.service.connections.fetch_sub(1, Relaxed);
        self.client.serving.clients.0.borrow_mut().remove(self.number);
    }
}

/// The connections of a thread.
#[derive(Debug, Default)]
pub(super) struct Clients(RefCell<Slab<Rc<Client>>>);

impl Clients {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// All of them are to end.
    pub fn drain(&self) {
        self.0.borrow().iter().for_each(|(_, client)| client.state.end(End::Drain));
    }

    /// Looks at all of them now and then. Ends with the thread's runtime.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.0.borrow().iter().for_each(|(_, client)| client.state.look());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_takes_nothing_is_told_from_one_that_takes_slowly() {
        let state = State::default();
        let looks = |count| (0..count).for_each(|_| state.look());
        let cx = Context::from_waker(Waker::noop());
        // Nothing to take.
        looks(2 * LOOKS);
        assert_eq!(state.poll_end(&cx), None);
        state.answers.set(1);
        for _ in 0..3 {
            looks(LOOKS - 1);
            assert_eq!(state.poll_end(&cx), None);
            state.looks.set(0);
        }
        // An answer that is taken or given up is nobody's burden.
        state.answers.set(0);
        looks(2 * LOOKS);
        assert_eq!(state.poll_end(&cx), None);
        state.answers.set(1);
        looks(LOOKS);
        assert_eq!(state.poll_end(&cx), Some(End::Untaken));
    }
}
