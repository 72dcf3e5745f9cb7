//! What a database's protocol has to provide, and the statement that it gets.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::Rows;
use fanin_json::Node;

use super::access::Access;
use crate::endpoint::Endpoint;
use crate::error::Failure;
use crate::transport::attempt::{Phase, Received};

/// What one database does otherwise than another.
pub(crate) trait Dialect: fmt::Debug + Sized + Send + Sync + 'static {
    /// A connection, signed on.
    type Connection: Send + 'static;
    /// Whether it is seen that the other end has closed a connection before a statement is sent on it. Where it is not, one that
    /// turns out to be closed speaks against all that are unused at that time: most often the server is gone.
    const DETECTS_CLOSE: bool;

    /// Connects and signs on.
    fn connect(endpoint: &Arc<Endpoint>, access: &Access) -> impl Future<Output = Result<Self::Connection, Failure>>;
    /// Whether the connection is known to be of no more use.
    fn is_closed(connection: &mut Self::Connection) -> bool;
    /// The same right after a statement on it has ended, when what came since need not be looked for: that is done when it is
    /// taken the next time.
    fn is_broken(connection: &mut Self::Connection) -> bool {
        Self::is_closed(connection)
    }
    /// Runs one statement. What the database itself says to it is an answer, with a status.
    fn run(connection: &mut Self::Connection, job: &Statement<'_>) -> impl Future<Output = Result<Received, Failure>>;
    /// Cancels what a call that has gone may have left running. Whether the connection is as good as new then.
    fn clean(
        connection: &mut Self::Connection,
        endpoint: &Arc<Endpoint>,
        access: &Access,
    ) -> impl Future<Output = bool>;
}

/// One statement to run.
pub(crate) struct Statement<'a> {
    /// What messages call it: its name, or `query`.
    pub name: &'a str,
    pub sql: &'a str,
    /// Names of the parameters, as far as they have any.
    pub names: &'a [String],
    pub params: Vec<Node<'a>>,
    pub writes: bool,
    pub rows: Rows,
    /// What is left of the call's time.
    pub left: Duration,
    pub max_answer: usize,
    pub phase: &'a Cell<Phase>,
    /// Set if the database may still be at work on it when the job has ended.
    pub running: Cell<bool>,
}

impl Statement<'_> {
    /// A parameter as messages call it, counted from 0.
    pub fn param(&self, index: usize) -> String {
        match self.names.get(index) {
            Some(name) => format!("parameter {} ({name}) of {}", index + 1, self.name),
            None => format!("parameter {} of {}", index + 1, self.name),
        }
    }
}
