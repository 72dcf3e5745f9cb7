//! Why there is no connection to a broker.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("it cannot be reached: {0}")]
    Connect(String),
    #[error("TLS (`broker_tls`): {0}")]
    Tls(String),
    #[error("it refuses the user or the password (`broker`, `broker_password`): {0}")]
    Refused(String),
    #[error("it answers with an error: {0}")]
    Broker(String),
    #[error("it does not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("it passes no messages back within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("it does not take events within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("it sent a message of more than {0} bytes")]
    TooLarge(usize),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("it sent what its client library fails on with a panic")]
    Panicked,
    #[error("it closed the connection")]
    Closed,
}
