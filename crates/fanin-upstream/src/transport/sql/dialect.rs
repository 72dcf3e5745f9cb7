//! What a database's protocol provides to the pool, and the statement that it runs.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fanin_config::{Rows, SessionReset};
use fanin_json::Node;
use http::StatusCode;

use super::access::Access;
use super::answer::error_answer;
use crate::endpoint::Endpoint;
use crate::error::Failure;
use crate::transport::attempt::{Phase, Received};

/// The protocol of one kind of database.
pub(crate) trait Dialect: fmt::Debug + Sized + Send + Sync + 'static {
    /// A connection that is signed on.
    type Connection: Send + 'static;
    /// Whether a connection that the server has closed is noticed before a statement is sent on it. If not, one closed
    /// connection is taken as a sign that all unused ones are closed: most often the server has gone.
    const DETECTS_CLOSE: bool;

    /// Connects and signs on.
    fn connect(endpoint: &Arc<Endpoint>, access: &Access) -> impl Future<Output = Result<Self::Connection, Failure>>;
    /// Whether the connection is known to be unusable.
    fn is_closed(connection: &mut Self::Connection) -> bool;
    /// The same right after a statement. It may ignore what has come since: that is checked when the connection is
    /// taken again.
    fn is_broken(connection: &mut Self::Connection) -> bool {
        Self::is_closed(connection)
    }
    /// Runs one statement. An error of the database itself is an answer with a status.
    fn run(connection: &mut Self::Connection, job: &Statement<'_>) -> impl Future<Output = Result<Received, Failure>>;
    /// Cancels what a dropped call may have left running, and undoes what a statement may have changed in the session.
    /// Whether the connection can be used again.
    fn clean(
        connection: &mut Self::Connection,
        endpoint: &Arc<Endpoint>,
        access: &Access,
    ) -> impl Future<Output = bool>;
}

/// One statement to run.
pub(crate) struct Statement<'a> {
    /// The name of its upstream.
    pub upstream: &'a str,
    /// Its name in messages: the statement's, or `query`.
    pub name: &'a str,
    pub sql: &'a str,
    /// Names of the parameters, if they have any.
    pub names: &'a [String],
    pub params: Vec<Node<'a>>,
    pub writes: bool,
    pub rows: Rows,
    /// When the session is reset before another call uses it.
    pub reset: SessionReset,
    /// The remaining time of the call.
    pub left: Duration,
    pub max_answer: usize,
    pub phase: &'a Cell<Phase>,
    /// Whether the connection needs cleaning when the call has ended: the database may still run the statement, or the
    /// session is not as it was.
    pub unclean: Cell<bool>,
}

impl Statement<'_> {
    /// The answer of a statement after which a transaction is open. Its connection is closed, so nothing of it counts.
    #[cold]
    pub fn left_open(&self) -> Received {
        let message = format!(
            "{} left a transaction open, which was rolled back: a procedure must end the transaction that it starts",
            self.name
        );
        tracing::warn!(upstream = self.upstream, statement = self.name, "a statement left a transaction open");
        // Invalid transaction state.
        error_answer(StatusCode::BAD_REQUEST, "25000", &message, &[])
    }

    /// The name of a parameter in messages. `index` starts at 0.
    pub fn param(&self, index: usize) -> String {
        match self.names.get(index) {
            Some(name) => format!("parameter {} ({name}) of {}", index + 1, self.name),
            None => format!("parameter {} of {}", index + 1, self.name),
        }
    }
}
