//! Bodies of requests that the server does not read at present, and the time without any.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// Those of one connection. They may take the room of others on an HTTP/2 connection, so its client is judged by a clock that stands still
/// while there are any.
#[derive(Debug)]
pub(crate) struct HeldBackBodies {
    count: Cell<usize>,
    /// Since when there are any.
    since: Cell<Instant>,
    /// How long there were any before.
    total: Cell<Duration>,
}

impl HeldBackBodies {
    pub(super) fn new(now: Instant) -> HeldBackBodies {
        HeldBackBodies { count: Cell::new(0), since: Cell::new(now), total: Cell::default() }
    }

    /// What the clock shows. Only differences mean something.
    pub(super) fn clock(&self, now: Instant) -> Instant {
        let running = if self.count.get() > 0 { self.since.get() } else { now };
        // The total is shorter than the connection's age.
        running - self.total.get()
    }
}

/// A connection.
pub(crate) trait HoldsBack {
    /// Its bodies.
    fn bodies(&self) -> &HeldBackBodies;
}

/// A body that the server does not read at present, until dropped.
#[derive(Debug)]
pub(crate) struct HeldBack<C: HoldsBack>(Rc<C>);

impl<C: HoldsBack> HeldBack<C> {
    pub(crate) fn new(connection: &Rc<C>) -> HeldBack<C> {
        let all = connection.bodies();
        if all.count.get() == 0 {
            all.since.set(Instant::now());
        }
        all.count.set(all.count.get() + 1);
        HeldBack(connection.clone())
    }
}

impl<C: HoldsBack> Drop for HeldBack<C> {
    fn drop(&mut self) {
        let all = self.0.bodies();
        all.count.set(all.count.get() - 1);
        if all.count.get() == 0 {
            all.total.set(all.total.get() + all.since.get().elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Connection(HeldBackBodies);

    impl HoldsBack for Connection {
        fn bodies(&self) -> &HeldBackBodies {
            &self.0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_stands_still_while_a_body_is_held_back() {
        let conn = Rc::new(Connection(HeldBackBodies::new(Instant::now())));
        let start = conn.0.clock(Instant::now());
        let shown = || conn.0.clock(Instant::now()) - start;
        tokio::time::advance(SECOND).await;
        assert_eq!(shown(), SECOND);
        let (one, other) = (HeldBack::new(&conn), HeldBack::new(&conn));
        tokio::time::advance(SECOND).await;
        drop(one);
        tokio::time::advance(SECOND).await;
        assert_eq!(shown(), SECOND);
        drop(other);
        tokio::time::advance(SECOND).await;
        assert_eq!(shown(), 2 * SECOND);
        // One that is held back for a moment takes nothing of what was waited for before.
        drop(HeldBack::new(&conn));
        assert_eq!(shown(), 2 * SECOND);
    }
}
