//! Removes secrets from a recorded request: first where the rules find them, then wherever else the same value appears. So a token that a
//! flow passes on under another name is removed too.
//!
//! In its place stands a text that follows from the value and from a key that is forgotten with the recording. The same value gets the
//! same text, so that a flow which compares or passes it on behaves as before.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::json_values;
use crate::message::{Pair, Request};
use crate::rules::Rules;

/// Shorter values are removed only where the rules find them: as parts of other texts they would be found by chance.
const SHORTEST: usize = 6;
/// What a URL keeps as it is.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How many values were removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed(pub u64);

/// Removes secrets from the requests of one recording.
#[derive(Debug)]
pub struct Scrubber {
    rules: Rules,
    key: RandomState,
}

/// Texts to replace and what stands for them.
type Secrets = HashMap<Vec<u8>, Vec<u8>>;

impl Scrubber {
    /// With a new key.
    #[must_use]
    pub fn new(rules: Rules) -> Scrubber {
        Scrubber { rules, key: RandomState::new() }
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Removes the secrets of a request.
    pub fn scrub(&self, request: &mut Request) -> Removed {
        let mut found = Secrets::new();
        let mut count = 0;
        let is_form = is_form(&request.headers);
        for body in bodies(request) {
            count += self.json(body, &mut found);
        }
        if is_form && let Ok(text) = std::str::from_utf8(&request.body) {
            let (changed, more) = self.pairs(text, &mut found);
            count += more;
            request.body = Bytes::from(changed);
        }
        for target in targets(request) {
            if let Some((path, query)) = target.split_once('?') {
                let (query, more) = self.pairs(query, &mut found);
                count += more;
                *target = format!("{path}?{query}");
            }
        }
        for pair in headers(request) {
            if self.rules.removes_header(&pair.name) {
                pair.value = self.header(&pair.name, &pair.value, &mut found).into();
                count += 1;
            }
        }
        // The longest first: one may be a part of another.
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = found.into_iter().collect();
        all.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        for (secret, stand_in) in &all {
            count += everywhere(request, secret, stand_in);
        }
        Removed(count)
    }

    /// What stands for a value. The value is looked for elsewhere, too.
    fn stand_in(&self, value: &str, is_number: bool, found: &mut Secrets) -> String {
        let hash = self.key.hash_one(value);
        let stand_in = match is_number {
            true => format!("{}", hash % 900_000_000 + 100_000_000),
            false => format!("removed-{hash:016x}"),
        };
        if value.len() >= SHORTEST {
            let mut forms = vec![value.as_bytes().to_vec()];
            let mut json = Vec::new();
            fanin_json::write_str(&mut json, value);
            forms.push(json[1..json.len() - 1].to_vec());
            let encoded = utf8_percent_encode(value, COMPONENT).to_string();
            forms.extend([encoded.to_ascii_lowercase().into_bytes(), encoded.replace("%20", "+").into_bytes()]);
            forms.push(encoded.into_bytes());
            for form in forms {
                found.insert(form, stand_in.clone().into_bytes());
            }
        }
        stand_in
    }

    fn header(&self, name: &str, value: &[u8], found: &mut Secrets) -> String {
        let text = String::from_utf8_lossy(value);
        match name {
            "authorization" | "proxy-authorization" => match text.trim().split_once(' ') {
                Some((scheme, credentials)) => {
                    format!("{scheme} {}", self.stand_in(credentials.trim(), false, found))
                }
                None => self.stand_in(text.trim(), false, found),
            },
            "cookie" => {
                let each = text.split(';').map(|one| match one.trim().split_once('=') {
                    Some((name, value)) => format!("{name}={}", self.stand_in(value.trim_matches('"'), false, found)),
                    None => self.stand_in(one.trim(), false, found),
                });
                each.collect::<Vec<_>>().join("; ")
            }
            "set-cookie" => {
                let (cookie, attributes) = text.split_once(';').unwrap_or((&text, ""));
                let cookie = match cookie.split_once('=') {
                    Some((name, value)) => {
                        format!("{name}={}", self.stand_in(value.trim().trim_matches('"'), false, found))
                    }
                    None => self.stand_in(cookie, false, found),
                };
                if attributes.is_empty() { cookie } else { format!("{cookie};{attributes}") }
            }
            _ => self.stand_in(text.trim(), false, found),
        }
    }

    /// A query or a form.
    fn pairs(&self, text: &str, found: &mut Secrets) -> (String, u64) {
        let mut count = 0;
        let each = text.split('&').map(|pair| {
            let Some((name, value)) = pair.split_once('=') else { return pair.to_owned() };
            let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
            if value.is_empty() || !self.rules.removes_query(&decoded(name)) {
                return pair.to_owned();
            }
            count += 1;
            format!("{name}={}", self.stand_in(&decoded(value), false, found))
        });
        (each.collect::<Vec<_>>().join("&"), count)
    }

    fn json(&self, body: &mut Bytes, found: &mut Secrets) -> u64 {
        let values = json_values::find(body, &self.rules);
        if values.is_empty() {
            return 0;
        }
        let mut changed = Vec::with_capacity(body.len());
        let mut done = 0;
        for one in &values {
            changed.extend_from_slice(&body[done..one.at.start]);
            let stand_in = self.stand_in(&one.value, one.is_number, found);
            match one.is_number {
                true => changed.extend_from_slice(stand_in.as_bytes()),
                false => fanin_json::write_str(&mut changed, &stand_in),
            }
            done = one.at.end;
        }
        changed.extend_from_slice(&body[done..]);
        *body = changed.into();
        values.len() as u64
    }
}

fn is_form(headers: &[Pair]) -> bool {
    let kind = headers.iter().find(|pair| pair.name == "content-type");
    kind.is_some_and(|pair| pair.value.starts_with(b"application/x-www-form-urlencoded"))
}

/// All places for JSON.
fn bodies(request: &mut Request) -> impl Iterator<Item = &mut Bytes> {
    let Request { body, claims, response, calls, exchanges, .. } = request;
    let exchanges = exchanges
        .iter_mut()
        .flat_map(|one| std::iter::once(&mut one.body).chain(one.answer.as_mut().map(|answer| &mut answer.body)));
    std::iter::once(body)
        .chain(claims)
        .chain(response.as_mut().map(|response| &mut response.body))
        .chain(calls.iter_mut().map(|call| &mut call.body))
        .chain(exchanges)
}

/// All places for a query.
fn targets(request: &mut Request) -> impl Iterator<Item = &mut String> {
    let Request { target, calls, exchanges, .. } = request;
    std::iter::once(target)
        .chain(calls.iter_mut().map(|call| &mut call.path))
        .chain(exchanges.iter_mut().map(|exchange| &mut exchange.path))
}

fn headers(request: &mut Request) -> impl Iterator<Item = &mut Pair> {
    let Request { headers, response, exchanges, .. } = request;
    let exchanges = exchanges
        .iter_mut()
        .flat_map(|one| one.headers.iter_mut().chain(one.answer.iter_mut().flat_map(|answer| &mut answer.headers)));
    headers.iter_mut().chain(response.iter_mut().flat_map(|response| &mut response.headers)).chain(exchanges)
}

/// Replaces a value in every text of the request.
fn everywhere(request: &mut Request, secret: &[u8], stand_in: &[u8]) -> u64 {
    let mut count = 0;
    for body in bodies(request) {
        count += in_bytes(body, secret, stand_in);
    }
    for pair in headers(request) {
        count += in_bytes(&mut pair.value, secret, stand_in);
    }
    for target in targets(request) {
        count += in_text(target, secret, stand_in);
    }
    if let Some(principal) = &mut request.principal {
        count += in_text(principal, secret, stand_in);
    }
    for exchange in &mut request.exchanges {
        let texts = exchange.keys.iter_mut().chain(&mut exchange.detail);
        count += texts.map(|text| in_text(text, secret, stand_in)).sum::<u64>();
    }
    for call in &mut request.calls {
        count += call.keys.iter_mut().map(|text| in_text(text, secret, stand_in)).sum::<u64>();
    }
    count
}

fn in_bytes(bytes: &mut Bytes, secret: &[u8], stand_in: &[u8]) -> u64 {
    match replaced(bytes, secret, stand_in) {
        Some((changed, count)) => {
            *bytes = changed.into();
            count
        }
        None => 0,
    }
}

fn in_text(text: &mut String, secret: &[u8], stand_in: &[u8]) -> u64 {
    match replaced(text.as_bytes(), secret, stand_in) {
        Some((changed, count)) => {
            *text = String::from_utf8_lossy(&changed).into_owned();
            count
        }
        None => 0,
    }
}

fn replaced(bytes: &[u8], secret: &[u8], stand_in: &[u8]) -> Option<(Vec<u8>, u64)> {
    let mut places = memchr::memmem::find_iter(bytes, secret).peekable();
    places.peek()?;
    let (mut changed, mut done, mut count) = (Vec::with_capacity(bytes.len()), 0, 0);
    for at in places {
        changed.extend_from_slice(&bytes[done..at]);
        changed.extend_from_slice(stand_in);
        done = at + secret.len();
        count += 1;
    }
    changed.extend_from_slice(&bytes[done..]);
    Some((changed, count))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::message::{Answer, Call, Exchange, Response};

    fn pair(name: &str, value: &str) -> Pair {
        Pair { name: name.into(), value: Bytes::copy_from_slice(value.as_bytes()) }
    }

    #[test]
    fn a_secret_is_nowhere_and_the_same_everywhere() {
        let answer = Answer {
            status: 200,
            headers: vec![pair("set-cookie", "sid=cookie-secret; Path=/")],
            body: r#"{"token": "answer-secret", "n": 1.50}"#.into(),
        };
        let mut request = Request {
            method: "GET".into(),
            target: "/a?token=query%2Dsecret&b=1".into(),
            headers: vec![pair("authorization", "Bearer bearer-secret"), pair("x-other", "bearer-secret!")],
            body: r#"{"user": {"password": "body secret"}}"#.into(),
            calls: vec![Call {
                path: "/x?t=bearer-secret".into(),
                keys: vec!["cookie-secret".into()],
                ..Call::default()
            }],
            exchanges: vec![Exchange {
                path: "/x?key=query-secret&p=body%20secret".into(),
                headers: vec![pair("x-forwarded", "answer-secret")],
                answer: Some(answer),
                ..Exchange::default()
            }],
            response: Some(Response { body: r#"{"n": 1.50, "echo": "answer-secret"}"#.into(), ..Response::default() }),
            ..Request::default()
        };
        let removed = Scrubber::new(Rules::default()).scrub(&mut request);
        let bytes = request.encode_to_vec();
        for secret in
            ["bearer-secret", "query-secret", "query%2Dsecret", "body secret", "body%20secret", "answer-secret"]
        {
            assert!(memchr::memmem::find(&bytes, secret.as_bytes()).is_none(), "{secret}: {request:#?}");
        }
        assert!(removed.0 >= 10, "{removed:?}");
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        // A scheme, names and attributes stay, and the same value gets the same text.
        let bearer = text(&request.headers[0].value);
        let stand_in = bearer.strip_prefix("Bearer ").unwrap();
        assert_eq!(text(&request.headers[1].value), format!("{stand_in}!"));
        assert_eq!(request.calls[0].path, format!("/x?t={stand_in}"));
        let answer = request.exchanges[0].answer.as_ref().unwrap();
        assert!(
            text(&answer.headers[0].value).starts_with("sid=removed-")
                && text(&answer.headers[0].value).ends_with("; Path=/")
        );
        assert!(text(&answer.body).contains("\"n\": 1.50"), "numbers keep their digits");
        assert!(request.target.starts_with("/a?token=removed-") && request.target.ends_with("&b=1"));
    }

    #[test]
    fn another_recording_has_other_texts() {
        let scrubbed = || {
            let mut request = Request { headers: vec![pair("x-api-key", "the-same-key")], ..Request::default() };
            Scrubber::new(Rules::default()).scrub(&mut request);
            request.headers[0].value.clone()
        };
        assert_ne!(scrubbed(), scrubbed());
    }

    #[test]
    fn short_values_are_removed_in_their_place_only() {
        let mut request = Request {
            target: "/1234?token=1234&n=1234".into(),
            body: r#"{"password": 12, "n": 12}"#.into(),
            ..Request::default()
        };
        Scrubber::new(Rules::default()).scrub(&mut request);
        assert!(request.target.starts_with("/1234?token=removed-") && request.target.ends_with("&n=1234"));
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("\"password\": 12,") && body.ends_with("\"n\": 12}"), "{body}");
    }
}
