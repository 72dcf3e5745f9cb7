//! Errors of PostgreSQL, and the answers that they become.

use http::StatusCode;

use super::messages::Body;
use crate::transport::attempt::Received;
use crate::transport::sql::answer::error_answer;

/// An error of the server: fields by their letter.
#[derive(Debug)]
pub(super) struct ServerError(Vec<(u8, String)>);

impl ServerError {
    #[cold]
    pub fn read(mut body: Body<'_>) -> ServerError {
        let mut fields = Vec::new();
        while let Some((&letter, rest)) = body.0.split_first() {
            body.0 = rest;
            let Some(end) = memchr::memchr(0, rest) else { break };
            // Before the encoding is set, texts may have another one.
            fields.push((letter, String::from_utf8_lossy(&rest[..end]).into_owned()));
            body.0 = &rest[end + 1..];
        }
        ServerError(fields)
    }

    pub fn field(&self, letter: u8) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == letter).map(|(_, text)| text.as_str())
    }

    /// The SQLSTATE.
    pub fn code(&self) -> &str {
        self.field(b'C').unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.field(b'M').unwrap_or_default()
    }

    /// Whether the server closes the connection with this error. `V` is the severity in English, which old servers do
    /// not send.
    pub fn is_fatal(&self) -> bool {
        matches!(self.field(b'V').or(self.field(b'S')), Some("FATAL" | "PANIC"))
    }
}

/// Whether the server does not know the prepared statement, or knows it from before a change of its tables.
pub(super) fn is_outdated(error: &ServerError) -> bool {
    const INVALID_STATEMENT_NAME: &str = "26000";
    const NOT_SUPPORTED: &str = "0A000";
    error.code() == INVALID_STATEMENT_NAME || error.code() == NOT_SUPPORTED && error.message().contains("cached plan")
}

/// Whether the statement was cancelled, or its timeout passed.
pub(super) fn is_cancelled(error: &ServerError) -> bool {
    error.code() == "57014"
}

/// The first two characters of a code are its class (PostgreSQL manual, appendix A).
#[cold]
pub(super) fn error_status(error: &ServerError) -> Received {
    let code = error.code();
    let status = match (code.get(..2).unwrap_or_default(), code) {
        (_, "42501") => StatusCode::FORBIDDEN,
        ("23", _) => StatusCode::CONFLICT,
        // Cannot succeed, now or later.
        ("0A" | "20" | "21" | "22" | "25" | "42" | "44" | "54" | "P0", _) => StatusCode::BAD_REQUEST,
        // Conflicts, lack of resources, a server that starts or stops: may succeed a little later.
        ("08" | "40" | "53" | "55" | "57", _) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let message = match code {
        "25006" => format!("{} (a statement that writes needs writes = true, or execute() in a flow)", error.message()),
        _ => error.message().to_owned(),
    };
    let more = [("constraint", error.field(b'n')), ("table", error.field(b't')), ("column", error.field(b'c'))];
    error_answer(status, code, &message, &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_have_fields() {
        let error = ServerError::read(Body(b"SFEHLER\0VERROR\0C23505\0Mdoppelt\0nt_pkey\0\0"));
        assert_eq!((error.code(), error.message(), error.field(b'n')), ("23505", "doppelt", Some("t_pkey")));
        assert!(!error.is_fatal() && error.field(b't').is_none());
        assert!(ServerError::read(Body(b"SFATAL\0Mbye\0\0")).is_fatal());
        assert_eq!(ServerError::read(Body(b"Mno end")).message(), "");
    }
}
