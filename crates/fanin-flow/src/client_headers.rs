//! The headers of a request, as a flow keeps them.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The request's headers, values of one name together. A list, because it takes less memory than a header map and nothing looks up
/// a single name.
pub(crate) struct ClientHeaders(Box<[(HeaderName, HeaderValue)]>);

impl ClientHeaders {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl From<HeaderMap> for ClientHeaders {
    fn from(headers: HeaderMap) -> ClientHeaders {
        let mut kept: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            // `HeaderMap` yields further values of a name without the name.
            if let Some(name) = name.or_else(|| kept.last().map(|(name, _)| name.clone())) {
                kept.push((name, value));
            }
        }
        ClientHeaders(kept.into_boxed_slice())
    }
}
