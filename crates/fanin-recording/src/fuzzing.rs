//! Entry points for fuzzing.

use bytes::Bytes;

use crate::{Recording, Request, Rules, Scrubber};

/// Reads a file. Whether it is a recording.
#[must_use]
pub fn file(bytes: &[u8]) -> bool {
    Recording::read(&Bytes::copy_from_slice(bytes)).is_ok()
}

/// Removes secrets from a request whose body and answer are these bytes. A header's value must not be left.
#[must_use]
pub fn scrub(bytes: &[u8]) -> bool {
    let secret = "s3cr3t-of-a-test";
    let text = String::from_utf8_lossy(bytes);
    let pair = |name: &str, value: String| crate::Pair { name: name.into(), value: value.into() };
    let mut request = Request {
        target: format!("/x?q={secret}"),
        headers: vec![pair("authorization", format!("Bearer {secret}")), pair("x-copy", format!("{text}{secret}"))],
        body: Bytes::copy_from_slice(bytes),
        ..Request::default()
    };
    Scrubber::new(Rules::default()).scrub(&mut request);
    let left = |bytes: &[u8]| memchr::memmem::find(bytes, secret.as_bytes()).is_some();
    let headers_left = request.headers.iter().any(|pair| left(&pair.value));
    assert!(!left(request.target.as_bytes()) && !headers_left, "{request:?}");
    true
}
