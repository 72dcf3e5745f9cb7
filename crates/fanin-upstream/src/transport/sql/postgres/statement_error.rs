//! Why a statement has no rows.

use super::message_stream::MessageStream;
use super::server_error::ServerError;
use crate::error::Failure;
use crate::transport::attempt::Received;

/// Why a statement has no rows.
pub(super) enum StatementError {
    /// The server says so.
    Server(ServerError),
    /// Asked wrongly; nothing was sent, or nothing of it counts.
    BadRequest(Received),
    Failed(Failure),
}

impl From<Failure> for StatementError {
    fn from(failure: Failure) -> StatementError {
        StatementError::Failed(failure)
    }
}

impl StatementError {
    /// The server says no. What it still owes is read, unless it ends the connection.
    #[cold]
    pub async fn server(stream: &mut MessageStream, error: ServerError) -> StatementError {
        if error.is_fatal() {
            stream.broken = true;
            return StatementError::Server(error);
        }
        match stream.drain().await {
            Ok(_) => StatementError::Server(error),
            Err(failure) => StatementError::Failed(failure),
        }
    }
}
