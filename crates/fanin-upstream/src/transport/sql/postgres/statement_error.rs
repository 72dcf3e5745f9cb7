//! Why a statement has no rows.

use super::message_stream::MessageStream;
use super::server_error::ServerError;
use crate::error::Failure;
use crate::transport::attempt::Received;

/// Why a statement has no rows.
pub(super) enum StatementError {
    /// An error of the server.
    Server(ServerError),
    /// A mistake in the call. Nothing was sent, or nothing of it counts.
    BadRequest(Received),
    Failed(Failure),
}

impl From<Failure> for StatementError {
    fn from(failure: Failure) -> StatementError {
        StatementError::Failed(failure)
    }
}

impl StatementError {
    /// An error of the server. Reads the pending replies, unless the server closes the connection.
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
