//! Parses the head of an answer: where the answer ends, and whether its connection can be used again (RFC 9112, 6 and
//! 9.3).
//!
//! Ambiguous heads are refused, because a cache or proxy in between may read them differently: `content-length` beside
//! `transfer-encoding`, different lengths, a transfer coding other than `chunked`, folded header lines.

use std::mem::MaybeUninit;

use http::StatusCode;

use crate::answer_headers::MAX_HEADERS;

/// Most bytes of a head, and of trailers.
pub(super) const MAX_HEAD: usize = 64 << 10;

/// How long the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub status: StatusCode,
    /// Bytes of the head.
    pub len: usize,
    pub framing: Framing,
    /// The connection can be used for another request.
    pub keep_alive: bool,
    /// Start and end of the value of `content-type`; both 0 if there is none.
    pub content_type: (u32, u32),
    /// There is a `content-encoding`.
    pub encoded: bool,
}

/// Parses a head at the start of `bytes`; `None` if it is not complete. `bodiless` for an answer to HEAD.
pub(super) fn parse(bytes: &[u8], bodiless: bool) -> Result<Option<Head>, &'static str> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let len = match parser.parse_response_with_uninit_headers(&mut response, bytes, &mut lines) {
        Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD => len,
        Ok(httparse::Status::Complete(_)) => return Err("a head that is too long"),
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) => return Err("a head that is too long"),
        Err(error) => return Err(describe(error)),
    };
    let (Some(code), Some(version)) = (response.code, response.version) else { return Err("no status") };
    let status = StatusCode::from_u16(code).map_err(|_| "an invalid status")?;
    let mut length = None;
    let mut chunked = None;
    let mut content_type = (0, 0);
    let mut encoded = false;
    let (mut close, mut keep) = (false, false);
    for line in response.headers.iter() {
        // Only names of these lengths are compared byte by byte.
        match line.name.len() {
            14 if line.name.eq_ignore_ascii_case("content-length") => {
                for part in line.value.split(|byte| *byte == b',') {
                    let this = decimal(part.trim_ascii()).ok_or("an invalid content-length")?;
                    if *length.get_or_insert(this) != this {
                        return Err("two lengths that differ");
                    }
                }
            }
            17 if line.name.eq_ignore_ascii_case("transfer-encoding") => {
                if chunked.is_some() || !line.value.eq_ignore_ascii_case(b"chunked") {
                    return Err("a transfer coding other than chunked");
                }
                chunked = Some(());
            }
            10 if line.name.eq_ignore_ascii_case("connection") => {
                for option in line.value.split(|byte| *byte == b',') {
                    close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                    keep |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                }
            }
            12 if content_type.1 == 0 && line.name.eq_ignore_ascii_case("content-type") => {
                content_type = range(bytes, line.value);
            }
            16 if line.name.eq_ignore_ascii_case("content-encoding") => encoded = true,
            _ => {}
        }
    }
    if chunked.is_some() && (length.is_some() || version == 0) {
        return Err(if version == 0 {
            "HTTP/1.0 with a transfer coding"
        } else {
            "both a length and a transfer coding"
        });
    }
    let framing = match (chunked, length) {
        _ if bodiless || matches!(code, 100..200 | 204 | 304) => Framing::Length(0),
        (Some(()), _) => Framing::Chunked,
        (None, Some(length)) => Framing::Length(length),
        (None, None) => Framing::UntilClose,
    };
    let keep_alive = !close && (version == 1 || keep) && framing != Framing::UntilClose;
    Ok(Some(Head { status, len, framing, keep_alive, content_type, encoded }))
}

/// Position of `part` in `whole`. A head is short enough for 32 bits. An empty value counts as none.
fn range(whole: &[u8], part: &[u8]) -> (u32, u32) {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    if part.is_empty() { (0, 0) } else { (start as u32, (start + part.len()) as u32) }
}

/// Digits only: no sign, no spaces, at least one.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cold]
fn describe(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "an invalid header name",
        httparse::Error::HeaderValue => "an invalid header value",
        httparse::Error::NewLine => "an invalid line end",
        httparse::Error::Status => "an invalid status",
        httparse::Error::TooManyHeaders => "too many headers",
        httparse::Error::Version => "no HTTP/1 status line",
        httparse::Error::Token => "no HTTP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, &'static str> {
        parse(format!("HTTP/1.1 {text}\r\n\r\n").as_bytes(), false).map(|head| head.expect("it is complete"))
    }

    #[test]
    fn the_framing_of_an_answer() {
        for (text, framing) in [
            ("200 OK\r\ncontent-length: 5", Framing::Length(5)),
            ("200 OK\r\nContent-Length: 5\r\ncontent-length: 5 ,5", Framing::Length(5)),
            ("200 OK\r\ntransfer-encoding: Chunked", Framing::Chunked),
            ("200 OK", Framing::UntilClose),
            ("204 No Content", Framing::Length(0)),
            ("204 No Content\r\ncontent-length: 5", Framing::Length(0)),
            ("304 Not Modified\r\ncontent-length: 5", Framing::Length(0)),
            ("103 Early Hints\r\nlink: x", Framing::Length(0)),
        ] {
            assert_eq!(head(text).map(|head| head.framing), Ok(framing), "{text}");
        }
        let answer_to_head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(parse(answer_to_head, true).unwrap().unwrap().framing, Framing::Length(0));
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        for text in [
            "200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked",
            "200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
            "200 OK\r\ncontent-length: 5, 6",
            "200 OK\r\ncontent-length: +5",
            "200 OK\r\ncontent-length: ",
            "200 OK\r\ncontent-length: 99999999999999999999",
            "200 OK\r\ntransfer-encoding: gzip, chunked",
            "200 OK\r\ntransfer-encoding: identity",
            "200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "200 OK\r\nx: a\r\n b",
            "200 OK\r\nx : a",
            "20 OK",
        ] {
            assert!(head(text).is_err(), "{text}");
        }
        assert!(parse(b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", false).is_err());
        assert!(parse(b"HTTP/2 200 OK\r\n\r\n", false).is_err());
    }

    #[test]
    fn connections_are_kept_alive_by_the_rules() {
        for (text, kept) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 0", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: x, Close", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\nconnection: keep-alive", false),
            ("HTTP/1.1 200 OK", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 0", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive", true),
        ] {
            let head = parse(format!("{text}\r\n\r\n").as_bytes(), false).unwrap().unwrap();
            assert_eq!(head.keep_alive, kept, "{text}");
        }
    }

    #[test]
    fn a_head_is_found_however_long_it_is_up_to_the_bound() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Type: text/x\r\ncontent-length: 5\r\n\r\nhello";
        for cut in 0..text.len() - 5 {
            assert_eq!(parse(&text[..cut], false), Ok(None));
        }
        let head = parse(text, false).unwrap().unwrap();
        assert_eq!(&text[head.len..], b"hello");
        assert_eq!(&text[head.content_type.0 as usize..head.content_type.1 as usize], b"text/x");
        let mut endless = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
        endless.resize(MAX_HEAD, b'x');
        assert!(parse(&endless, false).is_err());
        let many = format!("200 OK{}", "\r\nx: y".repeat(MAX_HEADERS + 1));
        assert_eq!(self::head(&many), Err("too many headers"));
    }
}
