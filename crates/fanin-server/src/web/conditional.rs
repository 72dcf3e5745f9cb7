//! Conditional requests (RFC 9110, 13): a client that has the response already gets 304 and no body.

use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, StatusCode};

use super::entity_tag;
use crate::{Body, Response};

/// Headers that describe a body, which a 304 has not.
const OF_THE_BODY: [HeaderName; 7] = [
    ACCEPT_RANGES,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
];

/// Takes the body of a response, and what describes it.
pub(super) fn not_modified(response: &mut Response) {
    response.status = StatusCode::NOT_MODIFIED;
    response.body = Body::empty();
    for name in OF_THE_BODY {
        response.headers.remove(name);
    }
}

/// Gives a response its tag, unless it has one.
pub(super) fn tag(response: &mut Response) {
    if !response.headers.contains_key(ETAG)
        && let Some(tag) = entity_tag::of(&response.body)
    {
        response.headers.insert(ETAG, tag);
    }
}

/// What a client says that it has.
#[derive(Debug, Default)]
pub(super) struct Condition {
    tags: Vec<HeaderValue>,
    since: Option<HeaderValue>,
}

impl Condition {
    pub(super) fn of(headers: &HeaderMap) -> Condition {
        Condition {
            tags: headers.get_all(IF_NONE_MATCH).iter().cloned().collect(),
            since: headers.get(IF_MODIFIED_SINCE).cloned(),
        }
    }

    /// Gives a response its tag. Whether the client has its body.
    pub(super) fn is_met_by(&self, response: &mut Response) -> bool {
        if response.status != StatusCode::OK {
            return false;
        }
        tag(response);
        self.is_met(&response.headers)
    }

    /// Whether the client has the response. A tag counts more than a time.
    fn is_met(&self, headers: &HeaderMap) -> bool {
        if !self.tags.is_empty() {
            let lists = self.tags.iter().map(HeaderValue::as_bytes);
            return headers.get(ETAG).is_some_and(|tag| entity_tag::is_in(lists, tag.as_bytes()));
        }
        let time = |value: &HeaderValue| httpdate::parse_http_date(value.to_str().ok()?).ok();
        let (since, modified) = (self.since.as_ref().and_then(time), headers.get(LAST_MODIFIED).and_then(time));
        since.zip(modified).is_some_and(|(since, modified)| modified <= since)
    }
}
