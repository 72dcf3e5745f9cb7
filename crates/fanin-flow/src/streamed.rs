//! The body of a streamed answer as the response's body, and the headers that go with it.

use std::task::{Context, Poll};

use bytes::Bytes;
use fanin_config::AnswerHeaders;
use fanin_upstream::{Answer, ErrorKind, StreamedBody};
use http::HeaderMap;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED, VARY,
};

use crate::reply::{Incomplete, ReplyStream};

/// The headers of an answer that describe its body. Others, such as cookies, are between the upstream and the flow.
const PASSED: [HeaderName; 11] = [
    ACCEPT_RANGES,
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_RANGE,
    CONTENT_TYPE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    VARY,
];

/// Passes on what describes the body, and what the upstream's rules say. What the flow sets takes precedence.
pub(crate) fn pass_headers(answer: &HeaderMap, rules: Option<&AnswerHeaders>, headers: &mut HeaderMap) {
    let removed = rules.map_or(&[][..], |rules| &rules.remove);
    for name in PASSED.iter().filter(|name| !removed.contains(name)) {
        pass(name, answer, headers);
    }
    if let Some(rules) = rules {
        apply_rules(answer, rules, headers);
    }
}

/// What an upstream's rules say of the headers of its answers, for one that is passed on. What the flow sets takes precedence.
pub(crate) fn apply_rules(answer: &HeaderMap, rules: &AnswerHeaders, headers: &mut HeaderMap) {
    for (name, value) in &rules.set {
        headers.entry(name).or_insert_with(|| value.clone());
    }
    for name in &rules.pass {
        pass(name, answer, headers);
    }
}

fn pass(name: &HeaderName, answer: &HeaderMap, headers: &mut HeaderMap) {
    if !headers.contains_key(name) {
        for value in answer.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// The body of a streamed answer on its way to the client.
pub(crate) struct StreamReply {
    body: Box<StreamedBody>,
    len: Option<u64>,
}

impl StreamReply {
    /// `to_head`: the client sent HEAD, so it gets the length without the body.
    pub(crate) fn new(body: Box<StreamedBody>, answer: &Answer, to_head: bool) -> StreamReply {
        let announced = || answer.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        let len = if to_head { announced() } else { body.announced() };
        StreamReply { body, len }
    }
}

impl ReplyStream for StreamReply {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Incomplete>>> {
        self.body.poll_part(context).map_err(|kind| {
            Incomplete(match kind {
                ErrorKind::Timeout => "the upstream of its stream was silent for too long",
                ErrorKind::TooLarge => "the stream is larger than max_stream",
                _ => "the upstream of its stream broke off",
            })
        })
    }

    fn exact_len(&self) -> Option<u64> {
        self.len
    }
}
