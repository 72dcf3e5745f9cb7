//! What a flow says to clients that call a method, besides messages and headers: a status code, details, trailers.

use bytes::Bytes;
use fanin_upstream::grpc::{code_named, error_names, nearest};
use http::{HeaderMap, StatusCode};

/// How a call of a method ends. HTTP clients get the HTTP status of the code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpcStatus {
    /// The number of the code; 0 is success.
    pub code: u8,
    /// What happened, for people.
    pub message: String,
    /// What happened, for programs: messages as JSON, each with `@type`.
    pub details: Vec<Bytes>,
    /// Metadata that follows the messages.
    pub trailers: HeaderMap,
}

/// Number and HTTP status of the code of an error.
///
/// # Errors
/// What is wrong with the name, and a hint.
pub(crate) fn error_code(name: &str) -> Result<(u8, StatusCode), (String, String)> {
    match code_named(name) {
        Some((0, _)) => Err(("OK is no error".to_owned(), "return the message".to_owned())),
        Some(found) => Ok(found),
        None => {
            let hint = match nearest(name, error_names()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("the codes are {}", error_names().collect::<Vec<_>>().join(", ")),
            };
            Err((format!("{name:?} is no status code of gRPC"), hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(error_code("NOT_FOUND"), Ok((5, StatusCode::NOT_FOUND)));
        assert_eq!(error_code("UNAUTHENTICATED"), Ok((16, StatusCode::UNAUTHORIZED)));
        assert!(error_code("OK").is_err());
        assert_eq!(error_code("not_found").unwrap_err().1, "did you mean \"NOT_FOUND\"?");
    }
}
