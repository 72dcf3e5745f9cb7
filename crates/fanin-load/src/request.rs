//! The request that is sent again and again.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, header};

use crate::error::LoadError;

/// A request, ready to be sent any number of times.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) uri: Uri,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The URL's scheme is `https`.
    pub(crate) secure: bool,
    /// Method.
    pub method: Method,
    /// Headers; `host` is the URL's unless given.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Request {
    /// A GET of an `http` or `https` URL.
    pub fn get(url: &str) -> Result<Self, LoadError> {
        Self::new(Method::GET, url)
    }

    /// A request without a body.
    pub fn new(method: Method, url: &str) -> Result<Self, LoadError> {
        let bad = |why: &str| LoadError::Url { url: url.into(), why: why.into() };
        let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(bad(&format!("`{other}` is not supported, only http and https"))),
            None => return Err(bad("a whole URL is needed, like http://127.0.0.1:8080/path")),
        };
        let authority = uri.authority().ok_or_else(|| bad("a host is needed"))?;
        if authority.as_str().contains('@') {
            return Err(bad("user and password in the URL are not sent; use an authorization header"));
        }
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let mut headers = HeaderMap::new();
        let value = HeaderValue::try_from(authority.as_str()).map_err(|error| bad(&error.to_string()))?;
        headers.insert(header::HOST, value);
        Ok(Self { host, port, secure, method, headers, body: Bytes::new(), uri })
    }

    /// The same with these headers added; each name given replaces the one there was.
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// The same with this body.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The URL.
    pub fn url(&self) -> String {
        self.uri.to_string()
    }
}

/// Reads a header file: `name: value` on each line, blank lines and lines that begin with `#` are skipped.
pub fn parse_headers(text: &str) -> Result<HeaderMap, LoadError> {
    let mut headers = HeaderMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |why: String| LoadError::Header { line: index + 1, why };
        let (name, value) = line.split_once(':').ok_or_else(|| bad(format!("`{line}` has no colon")))?;
        let name: HeaderName = name.trim().parse().map_err(|_| bad(format!("`{}` is no header name", name.trim())))?;
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| bad(format!("the value of {name} has a character that is not allowed")))?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_cannot_be_loaded_are_refused_with_the_reason() {
        for (url, why) in [
            ("ftp://x/", "`ftp` is not supported"),
            ("/path", "a whole URL"),
            ("http://", "empty"),
            ("http://u:p@x/", "authorization header"),
        ] {
            let error = Request::get(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
        let request = Request::get("http://[::1]:8080/a?b=c").unwrap();
        assert_eq!((request.host.as_str(), request.port), ("::1", 8080));
        assert_eq!(request.headers[header::HOST], "[::1]:8080");
    }

    #[test]
    fn header_files_name_the_bad_line() {
        let headers = parse_headers("# who\nAccept: a/b\n\nX-Many: 1\nx-many: 2\n").unwrap();
        assert_eq!(headers["accept"], "a/b");
        assert_eq!(headers.get_all("x-many").iter().count(), 2);
        assert_eq!(parse_headers("a: b\nnonsense").unwrap_err().to_string(), "header line 2: `nonsense` has no colon");
        assert!(parse_headers("bad name: x").is_err());
    }
}
