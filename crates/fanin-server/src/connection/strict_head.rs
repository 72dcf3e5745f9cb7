//! Stricter than hyper about the head of an HTTP/1.1 request: a line that ends in LF without CR, and `Content-Length` beside
//! `Transfer-Encoding`. RFC 9112 (sections 2.2 and 6.3) lets a server accept both, and servers that read them in different ways
//! are what request smuggling needs.
//!
//! Heads are followed through pipelined requests and bodies of a known length. Of a body in chunks the end is not known here. A
//! head in the same read as that end is not examined: hyper reads it as it does any head, so that a request after it begins where
//! hyper says.

use memchr::memchr;

const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";
/// Of a line that comes in several reads, as many bytes are kept: enough for the names above, and for a length.
const KEPT: usize = 48;
/// The end of a head without a body, and of a body in chunks.
const END: [u8; 4] = *b"\r\n\r\n";

/// Where in the stream the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    /// In a body of which so many bytes are to come.
    Body(usize),
    /// In a body of unknown length, or behind it.
    Unknown,
}

/// What is known of the head that is being read.
#[derive(Debug)]
pub(super) struct HeadScanner {
    place: Place,
    /// The last bytes, while the place is unknown.
    last: [u8; 4],
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
            last: [0; 4],
            kept: [0; KEPT],
            len: 0,
            cr: true,
            begun: false,
            length: None,
            chunked: false,
        }
    }

    /// Bytes of a body that the reader may take without [`fault`](Self::fault), if it [passes](Self::pass) them.
    #[inline]
    pub(super) fn body(&self) -> usize {
        match self.place {
            Place::Head => 0,
            Place::Body(left) => left,
            Place::Unknown => usize::MAX,
        }
    }

    /// Takes bytes of a body, at most as many as [`body`](Self::body) says.
    #[inline]
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        match self.place {
            Place::Body(left) if bytes.len() < left => self.place = Place::Body(left - bytes.len()),
            Place::Body(_) => *self = HeadScanner { cr: false, ..HeadScanner::new() },
            Place::Unknown => {
                let tail = &bytes[bytes.len().saturating_sub(END.len())..];
                self.last.rotate_left(tail.len());
                self.last[END.len() - tail.len()..].copy_from_slice(tail);
            }
            Place::Head => {}
        }
    }

    /// No request is in progress. If the last bytes ended one, hyper holds none of the next, and its head begins now. Otherwise
    /// hyper may hold a part of a head, whose end is not known here.
    #[inline]
    pub(super) fn on_idle(&mut self) {
        if self.place == Place::Unknown && self.last == END {
            *self = HeadScanner::new();
        }
    }

    /// Takes the next bytes. If they make the head malformed, returns how many of them come before that.
    #[inline]
    pub(super) fn fault(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if self.place != Place::Head {
                let part = rest.len().min(self.body());
                self.pass(&rest[..part]);
                at += part;
                continue;
            }
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
                self.name(&kept[..self.len.min(KEPT)], self.len <= KEPT);
            }
            if self.chunked && self.length.is_some() {
                self.place = Place::Unknown;
                return Some(at + end);
            }
            at += end + 1;
            (self.len, self.cr) = (0, false);
            self.begun |= !is_empty;
            if is_empty && self.begun {
                self.end();
            }
        }
        None
    }

    /// The head has ended.
    fn end(&mut self) {
        let place = match self.length {
            None if !self.chunked => Place::Head,
            Some(Some(0)) => Place::Head,
            Some(Some(length)) => Place::Body(length),
            _ => Place::Unknown,
        };
        *self = HeadScanner { place, cr: false, ..HeadScanner::new() };
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
            assert_eq!(found, whole, "split at {split}");
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
