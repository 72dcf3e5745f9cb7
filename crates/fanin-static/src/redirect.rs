//! Redirects that the configuration describes.

use fanin_config::Redirect as Config;
use http::{HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What a segment of a path cannot have as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for several segments.
const SEGMENTS: &AsciiSet = &SEGMENT.remove(b'/');

/// Where clients find what they ask for.
#[derive(Debug)]
pub struct Redirect {
    config: Config,
}

impl Redirect {
    pub(crate) fn new(config: &Config) -> Redirect {
        Redirect { config: config.clone() }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.config.status
    }

    /// The target. Values are percent-encoded, so that they can neither end the header nor reach the host; a slash at the front of a value
    /// is encoded, too, because `//` begins a host.
    pub(crate) fn location<'p>(
        &self,
        params: impl Iterator<Item = (&'p str, &'p str)>,
        query: Option<&str>,
    ) -> HeaderValue {
        let mut to = self.config.to.clone();
        for (name, value) in params {
            let place = format!("{{{name}}}");
            if !to.contains(&place) {
                continue;
            }
            let slashes = value.len() - value.trim_start_matches('/').len();
            let rest = utf8_percent_encode(&value[slashes..], SEGMENTS);
            to = to.replace(&place, &format!("{}{rest}", "%2F".repeat(slashes)));
        }
        if let Some(query) = query.filter(|query| self.config.keep_query && !query.is_empty()) {
            let (before, fragment) = match to.split_once('#') {
                Some((before, fragment)) => (before.to_owned(), format!("#{fragment}")),
                None => (to, String::new()),
            };
            let joint = if before.contains('?') { '&' } else { '?' };
            to = format!("{before}{joint}{query}{fragment}");
        }
        // A request's query has no characters that a header cannot have, and all else is ASCII.
        HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(to: &str, params: &[(&str, &str)], query: Option<&str>) -> String {
        let redirect = Redirect::new(&Config::new(to));
        redirect.location(params.iter().copied(), query).to_str().expect("ASCII").to_owned()
    }

    #[test]
    fn values_cannot_leave_their_place() {
        for (to, value, expected) in [
            ("/new/{p}", "a/b", "/new/a/b"),
            ("/{p}", "/evil.example", "/%2Fevil.example"),
            ("/{p}", "//evil.example", "/%2F%2Fevil.example"),
            ("/{p}", "\\evil.example", "/%5Cevil.example"),
            ("https://a.example/{p}", "x\r\nset-cookie: a=b", "https://a.example/x%0D%0Aset-cookie%3A%20a%3Db"),
            ("https://a.example/{p}", "ü?#@", "https://a.example/%C3%BC%3F%23%40"),
            ("/x?y={p}&z=1", "a&b", "/x?y=a%26b&z=1"),
        ] {
            assert_eq!(location(to, &[("other", "/"), ("p", value)], None), expected);
        }
    }

    #[test]
    fn the_query_is_kept() {
        assert_eq!(location("/a", &[], Some("x=1&y=%20")), "/a?x=1&y=%20");
        assert_eq!(location("/a?b=1#c", &[], Some("x=1")), "/a?b=1&x=1#c");
        assert_eq!(location("/a", &[], Some("")), "/a");
        let dropped = Config { keep_query: false, ..Config::new("/a") };
        assert_eq!(Redirect::new(&dropped).location(std::iter::empty(), Some("x=1")), "/a");
    }
}
