//! Files of a folder: content types, conditions, ranges, precompressed files.
//!
//! - `lookup`: from the rest of a path to an open file, on a thread. `conditions`: what the client has already (RFC 9110, section 13).
//! - `ranges`: the parts it asks for. `parts`: a body that is read while it is sent. `threads`: where files are read.

mod conditions;
mod lookup;
mod parts;
pub mod ranges;
mod threads;

use std::any::Any;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fanin_server::{Body, Problem, Response};
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION,
    RANGE, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::Requested;
use conditions::{Outcome, evaluate};
use lookup::{Found, Opened};
use parts::{Part, Parts};
use ranges::Ranges;

/// The largest file that a test of flows reads.
const MOST_BLOCKING: u64 = 64 << 20;

/// A folder whose files are served.
#[derive(Debug)]
pub struct Folder {
    config: Arc<fanin_config::Folder>,
}

impl Folder {
    pub(crate) fn new(config: &fanin_config::Folder) -> Folder {
        Folder { config: Arc::new(config.clone()) }
    }

    /// The response for the rest of a path.
    pub(crate) async fn respond(&self, requested: Requested<'_>, file: &str, keep: Box<dyn Any>) -> Response {
        let (config, file, accepted) = (self.config.clone(), file.to_owned(), accepted(requested.headers));
        let found = threads::run(move || lookup::find(&config, &file, &accepted)).await;
        match found {
            Some(found) => answer(requested, found, &self.config.path, Some(keep)),
            None => problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server has an internal error"),
        }
    }

    /// The same on this thread, the body read as a whole.
    pub(crate) fn respond_blocking(&self, requested: Requested<'_>, file: &str) -> Response {
        let mut found = lookup::find(&self.config, file, &accepted(requested.headers));
        if let Found::File(opened) = &mut found
            && opened.whole.is_none()
        {
            let size = opened.size.min(MOST_BLOCKING);
            opened.whole = parts::read(&opened.file, 0..size).ok();
        }
        answer(requested, found, &self.config.path, None)
    }
}

/// The header by which an encoding is chosen, to be sent to another thread.
fn accepted(headers: &HeaderMap) -> HeaderMap {
    headers.get_all(ACCEPT_ENCODING).iter().map(|value| (ACCEPT_ENCODING, value.clone())).collect()
}

fn problem(status: StatusCode, kind: &'static str, title: &'static str) -> Response {
    Problem::new(status, kind, title).into()
}

fn answer(requested: Requested<'_>, found: Found, folder: &Path, keep: Option<Box<dyn Any>>) -> Response {
    match found {
        Found::File(opened) => file(requested, *opened, keep),
        Found::Folder => {
            // The path was checked: it does not begin with two slashes, which would name a host.
            let query = requested.query.map_or(String::new(), |query| format!("?{query}"));
            let mut response = Response::new(StatusCode::MOVED_PERMANENTLY, Body::empty());
            let to = HeaderValue::try_from(format!("{}/{query}", requested.path));
            response.headers.extend(to.ok().map(|to| (LOCATION, to)));
            response
        }
        Found::Nothing => problem(StatusCode::NOT_FOUND, "no-file", "There is no such file"),
        Found::Failed(error) => {
            tracing::error!(folder = %folder.display(), path = requested.path, %error, "a file could not be read");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "file", "The file could not be read")
        }
    }
}

/// The response with an open file.
fn file(requested: Requested<'_>, opened: Opened, keep: Option<Box<dyn Any>>) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(ETAG, opened.tag.clone());
    headers.insert(LAST_MODIFIED, opened.modified_header());
    if opened.has_variants {
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    let respond = |status, headers, body| Response { status, headers, body, ..Response::default() };
    let use_ranges = match evaluate(requested.headers, &opened.tag, opened.modified) {
        Outcome::NotModified => return respond(StatusCode::NOT_MODIFIED, headers, Body::empty()),
        Outcome::Failed => {
            let failed =
                problem(StatusCode::PRECONDITION_FAILED, "precondition", "The file is not the one that was named");
            return failed;
        }
        Outcome::Send { ranges } => ranges,
    };
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_TYPE, opened.kind.clone());
    headers.extend(opened.coding.map(|coding| (CONTENT_ENCODING, HeaderValue::from_static(coding))));
    // A range is of GET only (RFC 9110, section 14.2).
    let range = requested.headers.get(RANGE).filter(|_| use_ranges && *requested.method == Method::GET);
    match range.map_or(Ranges::Whole, |range| ranges::parse(range.as_bytes(), opened.size)) {
        Ranges::Whole => respond(StatusCode::OK, headers, body(&opened, vec![Part::File(0..opened.size)], keep)),
        Ranges::Unsatisfiable => {
            let mut response =
                problem(StatusCode::RANGE_NOT_SATISFIABLE, "range", "The file has no such range of bytes");
            let size = HeaderValue::try_from(format!("bytes */{}", opened.size));
            response.headers.extend(size.ok().map(|size| (CONTENT_RANGE, size)));
            response
        }
        Ranges::Parts(mut parts) if parts.len() == 1 => {
            let part = parts.remove(0);
            headers.extend(content_range(&part, opened.size).map(|range| (CONTENT_RANGE, range)));
            respond(StatusCode::PARTIAL_CONTENT, headers, body(&opened, vec![Part::File(part)], keep))
        }
        Ranges::Parts(parts) => {
            let boundary = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
            let kind = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
            headers.insert(CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("application/octet-stream")));
            let parts = multipart(&opened, parts, &boundary);
            respond(StatusCode::PARTIAL_CONTENT, headers, body(&opened, parts, keep))
        }
    }
}

fn content_range(part: &Range<u64>, size: u64) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("bytes {}-{}/{size}", part.start, part.end - 1)).ok()
}

/// Several ranges as one body (RFC 9110, section 14.6).
fn multipart(opened: &Opened, ranges: Vec<Range<u64>>, boundary: &str) -> Vec<Part> {
    let kind = opened.kind.to_str().unwrap_or("application/octet-stream");
    let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
    for range in ranges {
        let (first, last) = (range.start, range.end - 1);
        let head = format!(
            "\r\n--{boundary}\r\ncontent-type: {kind}\r\ncontent-range: bytes {first}-{last}/{}\r\n\r\n",
            opened.size
        );
        parts.push(Part::Text(head.into()));
        parts.push(Part::File(range));
    }
    parts.push(Part::Text(format!("\r\n--{boundary}--\r\n").into()));
    parts
}

/// The bytes of a small file, or a stream.
fn body(opened: &Opened, parts: Vec<Part>, keep: Option<Box<dyn Any>>) -> Body {
    let Some(whole) = &opened.whole else { return Body::stream(Parts::new(opened.file.clone(), parts, keep)) };
    let mut bytes = BytesMut::new();
    for part in &parts {
        match part {
            Part::Text(text) => bytes.extend_from_slice(text),
            // The file was smaller when it was read than when it was opened.
            Part::File(range) if range.end > whole.len() as u64 => return Body::from(whole.clone()),
            Part::File(range) if parts.len() == 1 => {
                return Body::from(whole.slice(range.start as usize..range.end as usize));
            }
            Part::File(range) => bytes.extend_from_slice(&whole[range.start as usize..range.end as usize]),
        }
    }
    Body::from(Bytes::from(bytes))
}
