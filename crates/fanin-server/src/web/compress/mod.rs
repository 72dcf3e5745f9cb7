//! Compressed responses: `Content-Encoding` by the client's preference (RFC 9110, 8.4 and 12.5.3).
//!
//! Short bodies are compressed at once. Long ones and streams are compressed in slices while they are sent, so that a slow client slows
//! the work, and no worker is held for long.
//!
//! - `accept`: what a client accepts.
//! - `encoder`: the encodings.
//! - `slices`: a body that is compressed while it is sent.

mod accept;
mod encoder;
mod slices;

use fanin_config::Compression;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderValue,
};
use http::{HeaderMap, StatusCode};

use super::{entity_tag, vary};
use crate::{Body, Response};
pub(super) use encoder::Coding;
use slices::Slices;

pub(super) use accept::fuzz;

/// Bodies up to this size are compressed at once, which takes a millisecond or two.
const AT_ONCE: usize = 32 << 10;

/// The rules of a route.
#[derive(Debug)]
pub(super) struct Compress {
    config: Compression,
    /// With their levels, in the server's order.
    codings: Vec<(Coding, u8)>,
}

/// Which of two encodings a client prefers to a body as it is: `br` or `gzip`, if they are there.
pub(super) fn preferred(headers: &HeaderMap, brotli: bool, gzip: bool) -> Option<&'static str> {
    let known = [(Coding::Brotli, brotli), (Coding::Gzip, gzip)].into_iter().filter(|(_, there)| *there);
    let sent = headers.get_all(ACCEPT_ENCODING).iter().map(HeaderValue::as_bytes);
    accept::choose(sent, known.map(|(coding, _)| coding)).map(Coding::name)
}

/// How one response is compressed.
#[derive(Debug)]
pub(super) struct Plan {
    coding: Coding,
    level: u8,
    most: usize,
}

impl Compress {
    pub(super) fn new(config: &Compression) -> Compress {
        let all = [(Coding::Zstd, config.zstd), (Coding::Brotli, config.brotli), (Coding::Gzip, config.gzip)];
        let codings =
            all.into_iter().filter(|(coding, _)| coding.is_built()).filter_map(|(c, level)| Some((c, level?)));
        Compress { config: config.clone(), codings: codings.collect() }
    }

    /// The encoding that a client wants, if it accepts one.
    pub(super) fn wanted(&self, headers: &HeaderMap) -> Option<Coding> {
        let known = self.codings.iter().map(|(coding, _)| *coding);
        accept::choose(headers.get_all(ACCEPT_ENCODING).iter().map(HeaderValue::as_bytes), known)
    }

    /// How a response is compressed, if it may be and its client accepts that. Notes that others may get other bytes.
    pub(super) fn plan(&self, wanted: Option<Coding>, response: &mut Response) -> Option<Plan> {
        if !self.is_compressible(response.status, &response.headers) {
            return None;
        }
        vary::add(&mut response.headers, &ACCEPT_ENCODING);
        let size = http_body::Body::size_hint(&response.body).exact();
        if size.is_some_and(|size| size == 0 || size < self.config.min_size as u64) {
            return None;
        }
        let (coding, level) = *self.codings.iter().find(|(coding, _)| Some(*coding) == wanted)?;
        Some(Plan { coding, level, most: self.config.max_streams })
    }

    fn is_compressible(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let is_partial = status == StatusCode::PARTIAL_CONTENT || headers.contains_key(CONTENT_RANGE);
        if status.is_informational()
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED
            || is_partial
        {
            return false;
        }
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        self.config.types.iter().any(|kind| kind.matches(content_type))
            && !headers.contains_key(CONTENT_ENCODING)
            && !has_directive(headers, "no-transform")
    }
}

impl Plan {
    /// Compresses the body, if that makes it smaller and not too many are being compressed.
    pub(super) fn apply(&self, Response { headers, body, .. }: &mut Response) {
        let Plan { coding, level, most } = *self;
        let compressed = match (body.is_stream(), body.len()) {
            (false, ..=AT_ONCE) => compress(coding, level, body),
            _ => Slices::begin(coding, level, body, most),
        };
        let Some(compressed) = compressed else { return };
        *body = compressed;
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        // Digests and ranges are of the bytes as they were.
        for name in ["content-md5", "content-digest", "repr-digest", "digest", ACCEPT_RANGES.as_str()] {
            headers.remove(name);
        }
        entity_tag::weaken(headers);
    }
}

/// Whether `Cache-Control` has a directive.
fn has_directive(headers: &HeaderMap, directive: &str) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    values.map(<[u8]>::trim_ascii).any(|known| known.eq_ignore_ascii_case(directive.as_bytes()))
}

/// A whole body, unless it becomes no smaller.
fn compress(coding: Coding, level: u8, body: &Body) -> Option<Body> {
    let bytes = body.to_bytes();
    let compressed = encoder::whole(coding, level, &bytes)?;
    (compressed.len() < bytes.len()).then(|| Body::from(compressed))
}
