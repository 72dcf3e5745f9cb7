//! What PostgreSQL says against a statement, as an answer with a status.

use http::StatusCode;

use super::messages::Said;
use crate::transport::Received;
use crate::transport::sql::refusal;

/// Whether the server knows the statement no more, or knows it from before a change of its tables.
pub(super) fn is_outdated(said: &Said) -> bool {
    const INVALID_STATEMENT_NAME: &str = "26000";
    const NOT_SUPPORTED: &str = "0A000";
    said.code() == INVALID_STATEMENT_NAME || said.code() == NOT_SUPPORTED && said.message().contains("cached plan")
}

/// Whether somebody, or the statement's own time, has ended it.
pub(super) fn is_cancelled(said: &Said) -> bool {
    said.code() == "57014"
}

/// Classes of errors are the first two signs of their codes (PostgreSQL's manual, appendix A).
#[cold]
pub(super) fn said_no(said: &Said) -> Received {
    let code = said.code();
    let status = match (code.get(..2).unwrap_or_default(), code) {
        (_, "42501") => StatusCode::FORBIDDEN,
        ("23", _) => StatusCode::CONFLICT,
        // What was asked cannot be done, now or later.
        ("0A" | "20" | "21" | "22" | "25" | "42" | "44" | "54" | "P0", _) => StatusCode::BAD_REQUEST,
        // A conflict with others, a lack of resources, a server that goes or comes: a little later it may work.
        ("08" | "40" | "53" | "55" | "57", _) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let message = match code {
        "25006" => format!("{} (a statement that writes needs writes = true, or execute() in a flow)", said.message()),
        _ => said.message().to_owned(),
    };
    let more = [("constraint", said.field(b'n')), ("table", said.field(b't')), ("column", said.field(b'c'))];
    refusal(status, code, &message, &more)
}
