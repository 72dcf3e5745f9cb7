//! Decodes chunked bodies (RFC 9112, 7.1) as the bytes come.

use super::head::MAX_HEAD;
use crate::answer_headers::MAX_HEADERS;

/// Most hexadecimal digits of a chunk's size: more than any allowed body needs.
const MAX_DIGITS: u8 = 15;

/// The state of the decoder.
#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    /// Bytes of the present chunk that are still to come.
    left: u64,
    /// Digits of the present size.
    digits: u8,
    /// Bytes of all chunk extensions, which are ignored.
    extensions: usize,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataEnds,
    Trailers,
    Done,
}

impl Chunked {
    pub fn new() -> Chunked {
        Chunked { state: State::Size, left: 0, digits: 0, extensions: 0, trailers: Vec::new() }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Decodes received bytes into `out`, up to a length of `max`. Returns the bytes after the body, if it ends.
    ///
    /// # Errors
    /// What is wrong; `None` if the body is too long.
    pub fn decode<'a>(
        &mut self,
        mut bytes: &'a [u8],
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<&'a [u8], Option<&'static str>> {
        while self.state != State::Done {
            let Some((&first, rest)) = bytes.split_first() else { break };
            match self.state {
                State::Data => {
                    let part = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                    if part > max.saturating_sub(out.len()) {
                        return Err(None);
                    }
                    out.extend_from_slice(&bytes[..part]);
                    self.left -= part as u64;
                    if self.left == 0 {
                        self.state = State::DataEnd;
                    }
                    bytes = &bytes[part..];
                    continue;
                }
                State::Size => match char::from(first).to_digit(16) {
                    Some(digit) if self.digits < MAX_DIGITS => {
                        self.left = self.left << 4 | u64::from(digit);
                        self.digits += 1;
                    }
                    Some(_) => return Err(Some("a chunk's size is too long")),
                    None if self.digits == 0 => return Err(Some("a chunk without a size")),
                    None => match first {
                        b'\r' => self.state = State::SizeEnd,
                        b';' | b' ' | b'\t' => self.state = State::Extension,
                        _ => return Err(Some("a chunk's size is not a number")),
                    },
                },
                State::Extension => match first {
                    b'\r' => self.state = State::SizeEnd,
                    b'\n' => return Err(Some("a chunk's size ends with a bare line feed")),
                    _ => {
                        self.extensions += 1;
                        if self.extensions > MAX_HEAD {
                            return Err(Some("too many chunk extensions"));
                        }
                    }
                },
                State::SizeEnd => {
                    expect(first, b'\n')?;
                    self.digits = 0;
                    self.state = if self.left > 0 { State::Data } else { State::Trailers };
                }
                State::DataEnd => {
                    expect(first, b'\r')?;
                    self.state = State::DataEnds;
                }
                State::DataEnds => {
                    expect(first, b'\n')?;
                    self.state = State::Size;
                }
                State::Trailers => {
                    self.trailers.push(first);
                    if self.trailers.ends_with(b"\r\n\r\n") || self.trailers == b"\r\n" {
                        let mut lines = [httparse::EMPTY_HEADER; MAX_HEADERS];
                        httparse::parse_headers(&self.trailers, &mut lines).map_err(|_| Some("invalid trailers"))?;
                        self.state = State::Done;
                    } else if self.trailers.len() >= MAX_HEAD {
                        return Err(Some("trailers that are too long"));
                    }
                }
                State::Done => {}
            }
            bytes = rest;
        }
        Ok(bytes)
    }
}

fn expect(byte: u8, expected: u8) -> Result<(), Option<&'static str>> {
    if byte == expected { Ok(()) } else { Err(Some("a chunk without its line end")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Body and what follows it, `None` if it is not complete.
    type Decoded = Option<(Vec<u8>, Vec<u8>)>;

    /// Decoded in slices of every size.
    fn decode(text: &[u8]) -> Result<Decoded, Option<&'static str>> {
        let mut results = Vec::new();
        for size in 1..=text.len() {
            let (mut decoder, mut out, mut rest) = (Chunked::new(), Vec::new(), Vec::new());
            let run = text.chunks(size).try_for_each(|slice| {
                rest.extend_from_slice(decoder.decode(slice, &mut out, 64)?);
                Ok(())
            });
            results.push(run.map(|()| decoder.is_done().then_some((out, rest))));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "slicing changes nothing: {results:?}");
        results.pop().expect("there is a slice")
    }

    #[test]
    fn chunks_become_a_body() {
        for (text, body, rest) in [
            (&b"0\r\n\r\n"[..], &b""[..], &b""[..]),
            (b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world", b""),
            (b"5;name=value; x\r\nhello\r\n000\r\nx-trailer: y\r\n\r\nmore", b"hello", b"more"),
            (b"A \r\n0123456789\r\n0\r\n\r\n\r\n", b"0123456789", b"\r\n"),
        ] {
            assert_eq!(decode(text), Ok(Some((body.to_vec(), rest.to_vec()))), "{}", text.escape_ascii());
        }
        assert_eq!(decode(b"5\r\nhel"), Ok(None));
        assert_eq!(decode(b"5\r\nhello\r\n0\r\n"), Ok(None));
    }

    #[test]
    fn invalid_chunks_are_refused() {
        for text in [
            &b"\r\nhello"[..],
            b"x\r\n",
            b"-1\r\n",
            b"0x5\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5;x\nhello\r\n",
            b"5\r\rhello\r\n",
            b"5\r\nhelloX\n0\r\n\r\n",
            b"5\r\nhello\n\r0\r\n\r\n",
            b"1234567890123456\r\n",
            b"0\r\nno trailer\r\n\r\n",
        ] {
            assert!(matches!(decode(text), Err(Some(_))), "{}", text.escape_ascii());
        }
        let long = [b"41\r\n", &[b'x'; 65][..], b"\r\n0\r\n\r\n"].concat();
        assert_eq!(decode(&long), Err(None));
    }
}
