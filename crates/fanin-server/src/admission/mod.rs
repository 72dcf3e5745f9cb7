//! Who is let in: before any work, by the limits of the route and of the server.
//!
//! A request takes a place of its route first and then one of the server: who waits for a route holds nothing that other
//! routes need. The memory budget and the worker's own queue stand in front of both.

mod gate;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

pub(crate) use gate::Gate;
use gate::Ticket;

use crate::worker::Route;
use crate::{Priority, RouteSpec};

/// The gates of the process. They live as long as it does, so that limits hold across reloads.
#[derive(Debug)]
pub(crate) struct Gates {
    pub(crate) server: Arc<Gate>,
    routes: Mutex<HashMap<String, Arc<Gate>>>,
}

impl Gates {
    pub(crate) fn new() -> Gates {
        Gates { server: Arc::new(Gate::new(0, 0)), routes: Mutex::default() }
    }

    /// Sets all bounds and gives the gates of `routes`, in their order. Gates of routes that are gone are forgotten when
    /// their last request has left.
    pub(crate) fn apply(&self, server: &fanin_config::Server, routes: &[RouteSpec]) -> Vec<Arc<Gate>> {
        self.server.set(server.limit, server.max_waiting);
        let mut known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let gates = routes
            .iter()
            .map(|route| {
                let gate = known.entry(route.label()).or_insert_with(|| Arc::new(Gate::new(0, 0)));
                gate.set(route.limit, route.max_waiting);
                gate.clone()
            })
            .collect();
        known.retain(|_, gate| Arc::strong_count(gate) > 1);
        gates
    }
}

/// A request's place in flight, of its route and of the server. Both are given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    /// `None` only in tests.
    route: Option<Rc<Route>>,
}

impl Permit {
    /// A permit that counts nowhere, for tests.
    pub fn detached() -> Permit {
        Permit { route: None }
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if let Some(route) = &self.route {
            route.server_gate.leave();
            route.gate.leave();
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The route's limit is reached, and as many wait as may.
    Route,
    /// The server's is.
    Server,
    /// A more important request took its place in the queue.
    Evicted,
    /// The deadline passed in the queue.
    Deadline,
    /// The worker cannot keep up.
    Queueing,
    /// Memory runs short.
    Memory,
}

impl Refusal {
    pub(crate) const ALL: [Refusal; 6] =
        [Refusal::Route, Refusal::Server, Refusal::Evicted, Refusal::Deadline, Refusal::Queueing, Refusal::Memory];

    /// The member `reason` of the problem, and the label of the metric.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Refusal::Route => "route-limit",
            Refusal::Server => "server-limit",
            Refusal::Evicted => "priority",
            Refusal::Deadline => "deadline",
            Refusal::Queueing => "queueing",
            Refusal::Memory => "memory",
        }
    }

    pub(crate) fn detail(self) -> &'static str {
        match self {
            Refusal::Route => "as many requests of this route are in flight and waiting as its limits allow",
            Refusal::Server => "as many requests are in flight and waiting as the server's limits allow",
            Refusal::Evicted => "a more important request took the place in the queue",
            Refusal::Deadline => "the request's deadline passed while it waited for a place",
            Refusal::Queueing => "the server has more to do than it can; the request would have waited too long",
            Refusal::Memory => "the server's memory runs short",
        }
    }
}

/// What admission says at once.
#[derive(Debug)]
pub(crate) enum Admission {
    Admitted(Permit),
    Wait(Admitting),
    Refused(Refusal),
}

/// Asks for a place.
pub(crate) fn admit(route: &Rc<Route>, priority: Priority) -> Admission {
    if !route.gate.try_enter() {
        return match route.gate.enqueue(priority) {
            Some(ticket) => Admission::Wait(Admitting { route: route.clone(), priority, ticket, at: Level::Route }),
            None => Admission::Refused(Refusal::Route),
        };
    }
    if !route.server_gate.try_enter() {
        return match route.server_gate.enqueue(priority) {
            Some(ticket) => Admission::Wait(Admitting { route: route.clone(), priority, ticket, at: Level::Server }),
            None => {
                route.gate.leave();
                Admission::Refused(Refusal::Server)
            }
        };
    }
    Admission::Admitted(Permit { route: Some(route.clone()) })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Level {
    Route,
    /// The route's place is taken already.
    Server,
    Done,
}

/// A request that waits for a place. Dropping it gives up what it holds.
#[derive(Debug)]
pub(crate) struct Admitting {
    route: Rc<Route>,
    priority: Priority,
    ticket: Ticket,
    at: Level,
}

impl Admitting {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refusal>> {
        if self.at == Level::Route {
            if ready!(self.ticket.poll(cx)).is_err() {
                return Poll::Ready(Err(Refusal::Evicted));
            }
            self.at = Level::Server;
            if self.route.server_gate.try_enter() {
                self.at = Level::Done;
                return Poll::Ready(Ok(Permit { route: Some(self.route.clone()) }));
            }
            match self.route.server_gate.enqueue(self.priority) {
                Some(ticket) => self.ticket = ticket,
                None => return Poll::Ready(Err(Refusal::Server)),
            }
        }
        if ready!(self.ticket.poll(cx)).is_err() {
            return Poll::Ready(Err(Refusal::Evicted));
        }
        self.at = Level::Done;
        Poll::Ready(Ok(Permit { route: Some(self.route.clone()) }))
    }
}

impl Drop for Admitting {
    fn drop(&mut self) {
        if self.at == Level::Server {
            self.route.gate.leave();
        }
    }
}

const _: () = assert!(Priority::Background as usize + 1 == Priority::ALL.len());
