//! Stricter than hyper about the head of an HTTP/1.1 request: a line that ends in LF without CR, and `Content-Length` beside
//! `Transfer-Encoding`. RFC 9112 (sections 2.2 and 6.3) lets a server accept both, and servers that read them in different ways
//! are what request smuggling needs.
//!
//! Heads are followed through pipelined requests, and through bodies of a known length within one read. Of a body that is longer or
//! comes in chunks the end is not known here. A head in the same read as that end is not examined: hyper reads it as it does
//! any head, so that a request after it begins where hyper says.

use memchr::memchr;

const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";
/// Of a line that comes in several reads, as many bytes are kept: enough for the names above.
const KEPT: usize = TRANSFER_ENCODING.len();

/// Where in the stream the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    /// In a body that hyper reads, until the next request begins.
    Unknown,
}

/// What is known of the head that is being read.
#[derive(Debug)]
pub(super) struct HeadScanner {
    place: Place,
    /// The beginning of a line of which no end has come.
    kept: [u8; KEPT],
    /// Bytes of that line, also those that are not kept.
    len: usize,
    /// The last byte was CR.
    cr: bool,
    /// A line that is not empty has come.
    begun: bool,
    /// `Content-Length`, if it was in one read: `Some(None)` if not.
    length: Option<Option<usize>>,
    chunked: bool,
}

impl HeadScanner {
    pub(super) fn new() -> HeadScanner {
        // The end of the request before may have been split between CR and LF.
        HeadScanner {
            place: Place::Head,
            kept: [0; KEPT],
            len: 0,
            cr: true,
            begun: false,
            length: None,
            chunked: false,
        }
    }

    /// Whether the next byte belongs to a head, though a request may still be in progress.
    #[inline]
    pub(super) fn expects_head(&self) -> bool {
        self.place == Place::Head
    }

    /// Takes the next bytes. If they make the head malformed, returns how many of them come before that.
    #[inline]
    pub(super) fn fault(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while self.place == Place::Head && at < bytes.len() {
            let rest = &bytes[at..];
            let Some(end) = memchr(b'\n', rest) else {
                self.keep(rest);
                return None;
            };
            let line = &rest[..end];
            if !line.last().map_or(self.cr, |last| *last == b'\r') {
                self.place = Place::Unknown;
                return Some(at + end);
            }
            let is_empty = self.len + line.len() <= 1;
            if self.len == 0 {
                self.name(line, true);
            } else {
                self.keep(line);
                let kept = self.kept;
                self.name(&kept[..self.len.min(KEPT)], false);
            }
            if self.chunked && self.length.is_some() {
                self.place = Place::Unknown;
                return Some(at + end);
            }
            at += end + 1;
            (self.len, self.cr) = (0, false);
            self.begun |= !is_empty;
            if is_empty && self.begun {
                at += self.end(bytes.len() - at);
            }
        }
        None
    }

    /// The head has ended; returns how many bytes of its body are among so many that follow.
    fn end(&mut self, follow: usize) -> usize {
        let (length, chunked) = (self.length, self.chunked);
        *self = HeadScanner { cr: false, ..HeadScanner::new() };
        match length {
            None if !chunked => 0,
            Some(Some(length)) if length <= follow => length,
            _ => {
                self.place = Place::Unknown;
                0
            }
        }
    }

    /// A part of a line, without its end.
    fn keep(&mut self, part: &[u8]) {
        let from = self.len.min(KEPT);
        let count = part.len().min(KEPT - from);
        self.kept[from..from + count].copy_from_slice(&part[..count]);
        self.len += part.len();
        self.cr = part.last().map_or(self.cr, |last| *last == b'\r');
    }

    #[inline]
    fn name(&mut self, line: &[u8], is_whole: bool) {
        let starts = |name: &[u8]| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        match line.first() {
            Some(b'c' | b'C') if starts(CONTENT_LENGTH) => {
                let value = line[CONTENT_LENGTH.len()..].trim_ascii();
                let value = std::str::from_utf8(value).ok().filter(|_| is_whole).and_then(|value| value.parse().ok());
                self.length = Some(value);
            }
            Some(b't' | b'T') if starts(TRANSFER_ENCODING) => self.chunked = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fault of all bytes, whichever way they are split in two reads.
    fn fault(bytes: &[u8]) -> Option<usize> {
        let whole = HeadScanner::new().fault(bytes);
        for split in 0..=bytes.len() {
            let mut scanner = HeadScanner::new();
            let (first, second) = bytes.split_at(split);
            let found = scanner.fault(first).or_else(|| Some(split + scanner.fault(second)?));
            // A body that comes in two reads is where the scan ends.
            if !bytes.windows(4).any(|window| window == b"body") || found.is_some() {
                assert_eq!(found, whole, "split at {split}");
            }
        }
        whole
    }

    #[test]
    fn a_line_that_ends_in_lf_alone_is_a_fault_at_the_lf() {
        assert_eq!(fault(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"), None);
        assert_eq!(fault(b"GET / HTTP/1.1\nhost: a\r\n\r\n"), Some(14));
        assert_eq!(fault(b"GET / HTTP/1.1\r\nhost: a\n\r\n"), Some(23));
        assert_eq!(fault(b"GET / HTTP/1.1\r\nhost: a\r\n\n"), Some(25));
        assert_eq!(fault(b"\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n"), None);
    }

    #[test]
    fn both_ways_to_frame_a_body_are_a_fault() {
        for head in [
            "POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked",
            "POST / HTTP/1.1\r\nTransfer-Encoding:chunked\r\nx: y\r\nCONTENT-LENGTH:3",
        ] {
            let bytes = format!("{head}\r\n\r\n");
            assert_eq!(fault(bytes.as_bytes()), Some(head.len() + 1), "{head}");
        }
        assert_eq!(fault(b"POST / HTTP/1.1\r\ncontent-length: 3\r\nx: transfer-encoding: chunked\r\n\r\n"), None);
    }

    #[test]
    fn pipelined_heads_are_examined_and_bodies_are_not() {
        let first = b"POST / HTTP/1.1\r\ncontent-length: 6\r\n\r\n\nbody\n".as_slice();
        assert_eq!(fault(first), None);
        let second = b"GET / HTTP/1.1\nhost: a\r\n\r\n";
        assert_eq!(fault(&[first, second].concat()), Some(first.len() + 14));
        let chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbody\n\r\n0\r\n\r\n";
        assert_eq!(fault(chunked), None);
        let mut scanner = HeadScanner::new();
        assert_eq!(scanner.fault(b"GET / HTTP/1.1\r\n\r\n"), None);
        assert_eq!(scanner.fault(second), Some(14));
    }
}
