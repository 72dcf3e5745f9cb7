//! The common and combined forms of web servers with a latency after the bytes:
//! `10.0.0.1 - - [31/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8" 0.400`.
//!
//! The time may also be ISO 8601 (`$time_iso8601`) or seconds since 1970 with a fraction (`$msec`).
//!
//! The latency is the first bare number after the bytes, or the first of `request_time=`, `rt=`, `latency=`, `duration=`
//! wherever that stands. nginx writes seconds with decimals, Jetty and Apache whole numbers: which of the two tells the
//! forms apart.

use memchr::{memchr, memchr2};

use super::{Broken, Entry, Number, Unit, stamp};

const NAMES: [&[u8]; 4] = [b"request_time=", b"rt=", b"latency=", b"duration="];

/// `decimal`: latencies have a point, else none. `unit`: that of the latency.
pub(super) fn parse(line: &[u8], decimal: bool, unit: Unit) -> Result<Entry, Broken> {
    let (stamp, rest) = find_stamp(line)?;
    let quote = memchr(b'"', rest).ok_or(Broken::Shape)?;
    let rest = after_quoted(&rest[quote + 1..]).ok_or(Broken::Shape)?.trim_ascii_start();
    let (status, rest) = word(rest);
    let status = match status {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => return Err(Broken::Shape),
    };
    let (_bytes, rest) = word(rest);
    let latency = find_latency(rest)?;
    if latency.decimal != decimal {
        return Err(Broken::Latency);
    }
    Ok(Entry { stamp, length: latency.micros(unit), status: Some(status) })
}

/// The first brackets that hold a time: an address or a user's name may have brackets too.
fn find_stamp(line: &[u8]) -> Result<(stamp::Stamp, &[u8]), Broken> {
    let (mut rest, mut seen) = (line, Broken::Shape);
    while let Some(open) = memchr(b'[', rest) {
        rest = &rest[open + 1..];
        let close = memchr(b']', rest).ok_or(seen)?;
        let inside = &rest[..close];
        let iso = || stamp::iso(inside).and_then(|(stamp, rest)| rest.is_empty().then_some(stamp));
        if let Some(stamp) = stamp::ncsa(inside).or_else(iso).or_else(|| stamp::epoch(inside)) {
            return Ok((stamp, &rest[close + 1..]));
        }
        seen = Broken::Stamp;
    }
    Err(seen)
}

/// What follows the closing quote of a string whose opening quote is gone already.
fn after_quoted(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let at = memchr2(b'"', b'\\', text)?;
        if text[at] == b'"' {
            return Some(&text[at + 1..]);
        }
        text = text.get(at + 2..)?;
    }
}

/// The next word, and what follows the blanks after it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr(b' ', text).unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii_start())
}

fn find_latency(mut rest: &[u8]) -> Result<Number, Broken> {
    let mut bare = None;
    while let [first, more @ ..] = rest {
        if *first == b'"' {
            rest = after_quoted(more).ok_or(Broken::Shape)?.trim_ascii_start();
            continue;
        }
        let (token, more) = word(rest);
        if let Some(name) = NAMES.iter().find(|name| token.starts_with(name)) {
            let value = &token[name.len()..];
            let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
            return Number::all(value).ok_or(Broken::Latency);
        }
        if bare.is_none() {
            bare = Number::all(token);
        }
        rest = more;
    }
    bare.ok_or(Broken::NoLatency)
}
