//! What deserves a look at the last requests.

use std::time::Duration;

use fanin_config::Objective;

/// Something that the server has noticed.
#[derive(Clone, Debug, PartialEq)]
pub enum Incident {
    /// One piece of work holds a worker for longer than `[server] stall`.
    Stall {
        /// The worker's number.
        worker: usize,
        /// For how long so far.
        since: Duration,
        /// What it runs: see [`Activity::set`](crate::Activity::set).
        activity: u64,
    },
    /// A route has not kept its objective in the last minute.
    Objective {
        /// Method and path.
        route: String,
        /// The objective.
        objective: Objective,
        /// How fast the error budget was used. 1 is as fast as the objective allows.
        burn_rate: f64,
        /// Bad requests in that minute.
        bad: u64,
        /// Requests that counted.
        counted: u64,
    },
}
