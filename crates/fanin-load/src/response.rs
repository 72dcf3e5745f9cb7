//! An incremental reader of HTTP/1.1 responses that keeps nothing: it tells where a response ends, its status and its body's length.

/// What a response said, once its last byte is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Bytes of the body, without the framing of chunks.
    pub length: usize,
    /// The server will close the connection.
    pub close: bool,
}

/// Why the bytes are no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// The reader of one connection's responses.
#[derive(Debug, Default)]
pub struct Reader {
    /// They answer HEAD: what they say of a body is about another response.
    bodiless: bool,
    /// A head or a chunk's size line that has not come whole yet.
    partial: Vec<u8>,
    state: State,
    status: u16,
    length: usize,
    close: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many bytes of a body with a length.
    Body(usize),
    /// A body that ends with the connection.
    UntilClose,
    /// A chunk's size line.
    ChunkSize,
    /// So many bytes of a chunk and its line end.
    Chunk(usize),
    /// Lines after the last chunk.
    Trailer,
}

const LONGEST_HEAD: usize = 64 * 1024;

impl Reader {
    /// A reader of responses to HEAD.
    pub fn of_head() -> Reader {
        Reader { bodiless: true, ..Reader::default() }
    }

    /// The server has closed the connection; `Some` if that was the end of a response.
    pub fn closed(&mut self) -> Option<Response> {
        (self.state == State::UntilClose).then(|| self.finish())
    }

    /// Takes bytes from the front of `bytes`; `Some` once a response is whole, whose remains stay in `bytes`.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Response>, Malformed> {
        loop {
            match self.state {
                State::Head => {
                    let Some(done) = self.with_line(bytes, b"\r\n\r\n", Self::head)? else { return Ok(None) };
                    if done {
                        return Ok(Some(self.finish()));
                    }
                }
                State::Body(left) => {
                    let take = left.min(bytes.len());
                    *bytes = &bytes[take..];
                    self.state = State::Body(left - take);
                    return Ok((take == left).then(|| self.finish()));
                }
                State::UntilClose => {
                    self.length += bytes.len();
                    *bytes = &[];
                    return Ok(None);
                }
                State::ChunkSize => {
                    if self.with_line(bytes, b"\r\n", Self::chunk_size)?.is_none() {
                        return Ok(None);
                    }
                }
                State::Chunk(left) => {
                    let take = left.min(bytes.len());
                    *bytes = &bytes[take..];
                    if take < left {
                        self.state = State::Chunk(left - take);
                        return Ok(None);
                    }
                    self.state = State::ChunkSize;
                }
                State::Trailer => match self.with_line(bytes, b"\r\n", |_, line| Ok(line.is_empty()))? {
                    Some(true) => return Ok(Some(self.finish())),
                    Some(false) => {}
                    None => return Ok(None),
                },
            }
        }
    }

    fn finish(&mut self) -> Response {
        self.state = State::Head;
        Response { status: self.status, length: self.length, close: self.close }
    }

    /// Hands what stands before `end` to `take`, or keeps the bytes until `end` comes.
    fn with_line<T>(
        &mut self,
        bytes: &mut &[u8],
        end: &[u8],
        take: impl FnOnce(&mut Self, &[u8]) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.partial.is_empty() {
            // The way of nearly every response: its head came in one piece.
            if let Some(at) = memchr::memmem::find(bytes, end) {
                let line = &bytes[..at];
                *bytes = &bytes[at + end.len()..];
                return take(self, line).map(Some);
            }
            self.partial.extend_from_slice(bytes);
            *bytes = &[];
        } else {
            let before = self.partial.len();
            self.partial.extend_from_slice(bytes);
            if let Some(at) = memchr::memmem::find(&self.partial, end) {
                *bytes = &bytes[at + end.len() - before..];
                let mut line = std::mem::take(&mut self.partial);
                line.truncate(at);
                return take(self, &line).map(Some);
            }
            *bytes = &[];
        }
        if self.partial.len() > LONGEST_HEAD { Err(Malformed("head too long")) } else { Ok(None) }
    }

    /// Takes a head; true: the response has no body.
    fn head(&mut self, head: &[u8]) -> Result<bool, Malformed> {
        let status = head.get(9..12).and_then(|s| std::str::from_utf8(s).ok()?.parse().ok());
        let old = head.starts_with(b"HTTP/1.0 ");
        let known = old || head.starts_with(b"HTTP/1.1 ");
        self.status = status.filter(|_| known).ok_or(Malformed("no status line of HTTP/1.1"))?;
        // The response itself is still to come.
        if (100..200).contains(&self.status) && self.status != 101 {
            return Ok(false);
        }
        self.close = old;
        let mut length = None;
        let mut chunked = false;
        for line in head.split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = memchr::memchr(b':', line) else { return Err(Malformed("header without a colon")) };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                let value = std::str::from_utf8(value).ok().and_then(|v| v.parse::<usize>().ok());
                length = Some(value.ok_or(Malformed("content-length is no number"))?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                chunked = value.eq_ignore_ascii_case(b"chunked");
            } else if name.eq_ignore_ascii_case(b"connection") {
                self.close =
                    value.eq_ignore_ascii_case(b"close") || (old && !value.eq_ignore_ascii_case(b"keep-alive"));
            }
        }
        if self.bodiless || matches!(self.status, 101 | 204 | 304) {
            self.length = 0;
            self.state = State::Body(0);
            return Ok(true);
        }
        if chunked {
            self.length = 0;
            self.state = State::ChunkSize;
            return Ok(false);
        }
        self.length = match length {
            Some(length) => length,
            None => {
                self.length = 0;
                self.close = true;
                self.state = State::UntilClose;
                return Ok(false);
            }
        };
        self.state = State::Body(self.length);
        Ok(self.length == 0)
    }

    fn chunk_size(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let size = std::str::from_utf8(digits).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
        let size = size.ok_or(Malformed("a chunk's size is no number"))?;
        self.length += size;
        self.state = if size == 0 { State::Trailer } else { State::Chunk(size + 2) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: a\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 502 Bad\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\nX: y\r\n\r\n";

    fn whole(input: &[u8], step: usize) -> Vec<Response> {
        let mut reader = Reader::default();
        let mut found = Vec::new();
        for piece in input.chunks(step) {
            let mut rest = piece;
            while let Some(response) = reader.read(&mut rest).unwrap() {
                found.push(response);
                if rest.is_empty() {
                    break;
                }
            }
        }
        assert!(reader.state == State::Head && reader.partial.is_empty());
        found
    }

    #[test]
    fn responses_come_whole_however_they_are_cut() {
        let input = [LENGTH, CHUNKED, LENGTH].concat();
        let one = Response { status: 200, length: 5, close: false };
        let two = Response { status: 502, length: 13, close: true };
        for step in 1..=input.len() {
            assert_eq!(whole(&input, step), [one, two, one], "in steps of {step}");
        }
    }

    #[test]
    fn what_is_no_response_is_told() {
        for bad in ["HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "nonsense\r\n\r\n"] {
            assert!(Reader::default().read(&mut bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_body_may_end_with_the_connection() {
        let mut reader = Reader::default();
        let mut bytes: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nab";
        assert_eq!(reader.read(&mut bytes), Ok(None));
        assert_eq!(reader.read(&mut &b"cde"[..]), Ok(None));
        assert_eq!(reader.closed(), Some(Response { status: 200, length: 5, close: true }));
        assert_eq!(reader.closed(), None, "none had begun");
    }

    #[test]
    fn what_comes_before_the_response_is_passed_over() {
        let mut reader = Reader::default();
        let input = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", LENGTH].concat();
        assert_eq!(reader.read(&mut &input[..]), Ok(Some(Response { status: 200, length: 5, close: false })));
    }

    #[test]
    fn answers_to_head_have_no_body() {
        let mut bytes: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let found = Reader::of_head().read(&mut bytes);
        assert_eq!(found, Ok(Some(Response { status: 200, length: 0, close: false })));
    }
}
