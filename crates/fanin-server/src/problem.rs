//! Problem documents: errors to clients as `application/problem+json`, RFC 9457.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use crate::RequestId;
use crate::json_text::escape;

/// An error as a client sees it. It never holds a trace, which belongs in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: Option<String>,
    request: Option<RequestId>,
    retry_after: Option<Duration>,
    members: Vec<(Cow<'static, str>, Value)>,
}

impl Problem {
    /// `kind` is one of the documented words, such as `upstream-timeout`. It becomes the `type`, `urn:fanin:problem:upstream-timeout`.
    /// `title` says the same in words, and is the same for every problem of the kind.
    pub fn new(status: StatusCode, kind: &'static str, title: &'static str) -> Problem {
        Problem { status, kind, title, detail: None, request: None, retry_after: None, members: Vec::new() }
    }

    /// What is specific to this occurrence.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Problem {
        self.detail = Some(detail.into());
        self
    }

    /// The request that failed: `instance` is `urn:fanin:request:` and the id that the access log has.
    #[must_use]
    pub fn request(mut self, id: RequestId) -> Problem {
        self.request = Some(id);
        self
    }

    /// Adds an extension member, such as `upstream` or `reason`. Names of standard members are ignored. A known name gets the new
    /// value.
    #[must_use]
    pub fn member(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Problem {
        let (name, value) = (name.into(), value.into());
        if matches!(&*name, "type" | "title" | "status" | "detail" | "instance") {
            return self;
        }
        match self.members.iter_mut().find(|(present, _)| *present == name) {
            Some((_, present)) => *present = value,
            None => self.members.push((name, value)),
        }
        self
    }

    /// When a retry may succeed: sent as `Retry-After`, rounded up to seconds.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Problem {
        self.retry_after = Some(after);
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The kind, as given to [`new`](Self::new).
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Seconds of `Retry-After`.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0))
    }

    /// The document. Written without an intermediate value, because an overloaded server writes many.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(256);
        json.extend_from_slice(b"{\"type\":\"urn:fanin:problem:");
        escape(self.kind, &mut json);
        json.extend_from_slice(b"\",\"title\":\"");
        escape(self.title, &mut json);
        json.extend_from_slice(b"\",\"status\":");
        json.extend_from_slice(self.status.as_str().as_bytes());
        if let Some(detail) = &self.detail {
            json.extend_from_slice(b",\"detail\":\"");
            escape(detail, &mut json);
            json.push(b'"');
        }
        if let Some(request) = self.request {
            json.extend_from_slice(b",\"instance\":\"urn:fanin:request:");
            json.extend_from_slice(&request.hex());
            json.push(b'"');
        }
        for (name, value) in &self.members {
            json.extend_from_slice(b",\"");
            escape(name, &mut json);
            json.extend_from_slice(b"\":");
            match value {
                Value::String(text) => {
                    json.push(b'"');
                    escape(text, &mut json);
                    json.push(b'"');
                }
                value => json.extend_from_slice(value.to_string().as_bytes()),
            }
        }
        json.push(b'}');
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_the_standard_members_and_ours() {
        let problem =
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "upstream-timeout", "An upstream did not answer in time")
                .detail("catalog: 60 ms \"passed\"")
                .request(RequestId::new(0xab))
                .member("upstream", "overwritten")
                .member("upstream", "catalog")
                .member("list", vec![1, 2])
                .member("title", "never overwrites a standard member");
        let json: Value = serde_json::from_slice(&problem.to_json()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "urn:fanin:problem:upstream-timeout",
                "title": "An upstream did not answer in time",
                "status": 504,
                "detail": "catalog: 60 ms \"passed\"",
                "instance": "urn:fanin:request:00000000000000ab",
                "upstream": "catalog",
                "list": [1, 2],
            })
        );
    }

    #[test]
    fn retry_after_is_rounded_up() {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "x");
        assert_eq!(problem.retry_after_seconds(), None);
        assert_eq!(problem.clone().retry_after(Duration::from_millis(1)).retry_after_seconds(), Some(1));
        assert_eq!(problem.retry_after(Duration::from_secs(2)).retry_after_seconds(), Some(2));
    }
}
