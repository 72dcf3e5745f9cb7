//! Pre-request errors: responses to bytes that did not become a request, HTTP/1.1 only. They are written in place of hyper's own.

use http::StatusCode;

use crate::Problem;

/// A whole response with a problem document. `date` is a header line to copy, or empty.
pub(super) fn response(status: StatusCode, date: &str) -> Vec<u8> {
    let problem = match status.as_u16() {
        408 => Problem::new(status, "head-timeout", "The request's head did not arrive in time"),
        414 => Problem::new(status, "uri-too-long", "The request's target is too long"),
        431 => Problem::new(status, "head-too-large", "The request's head is too large"),
        505 => Problem::new(status, "http-version", "This version of HTTP is not supported"),
        _ => Problem::new(status, "malformed-request", "The request is not valid HTTP"),
    };
    let body = problem.to_json();
    let mut response = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\nconnection: close\r\n\
         {date}content-length: {}\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or(""),
        body.len()
    )
    .into_bytes();
    response.extend_from_slice(&body);
    response
}

/// The status and the date line of an error response that hyper made, which has no body.
pub(super) fn status_of(head: &[u8]) -> Option<(StatusCode, &str)> {
    let head = std::str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ").or_else(|| head.strip_prefix("HTTP/1.0 "))?.get(..3)?;
    let status =
        status.parse::<StatusCode>().ok().filter(|status| status.is_client_error() || status.is_server_error())?;
    let date = head.split_inclusive("\r\n").find(|line| line.starts_with("date:")).unwrap_or("");
    Some((status, date))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_date_of_hypers_response_are_kept() {
        let hypers = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
            date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
        let (status, date) = status_of(hypers).unwrap();
        let ours = String::from_utf8(response(status, date)).unwrap();
        let (head, body) = ours.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), "{head}");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        assert!(body.contains("head-too-large"));
        assert_eq!(status_of(b"HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(status_of(b"HTTP/1.1 100 Continue\r\n\r\n"), None);
    }
}
