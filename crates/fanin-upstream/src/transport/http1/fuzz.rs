//! Parses any bytes as an answer, for [`crate::fuzzing`].

use super::chunked::Chunked;
use super::head::{self, Framing, Head, MAX_HEAD};

/// Longest body here.
const MAX: usize = 4096;

/// Parses bytes as an answer, in pieces of several sizes. Whether it is one.
///
/// # Panics
/// If the size of the pieces makes a difference.
pub fn answer(bytes: &[u8]) -> bool {
    let whole = read(bytes, bytes.len().max(1));
    for size in [1, 2, 3, 7, 64] {
        let pieces = read(bytes, size);
        // If several things are wrong, another one may be found first.
        assert!(pieces == whole || pieces.is_err() && whole.is_err(), "in pieces of {size}: {pieces:?}, {whole:?}");
    }
    matches!(whole, Ok(Some(_)))
}

/// Status, keep-alive, body, and what follows it.
type Answer = (u16, bool, Vec<u8>, Vec<u8>);

/// `None` if it is not complete.
fn read(bytes: &[u8], size: usize) -> Result<Option<Answer>, String> {
    let mut came = Vec::new();
    let mut body: Option<(Head, Body)> = None;
    for piece in bytes.chunks(size) {
        match &mut body {
            Some((_, body)) => body.take(piece)?,
            None => {
                let first = came.is_empty();
                came.extend_from_slice(piece);
                // As the transport does: a head ends with a line.
                if !first && came.len() < MAX_HEAD && !piece.contains(&b'\n') {
                    continue;
                }
                let Some(head) = head::parse(&came, false).map_err(str::to_owned)? else { continue };
                assert!(head.len <= came.len() && head.content_type.1 as usize <= head.len, "{head:?}");
                let mut rest = Body::new(head.framing);
                rest.take(&came[head.len..])?;
                body = Some((head, rest));
            }
        }
    }
    let Some((head, body)) = body else {
        // The mistake of a line that has no end.
        let complete = head::parse(&came, false).map_err(str::to_owned)?;
        assert!(complete.is_none());
        return Ok(None);
    };
    let (is_whole, data, after) = match body {
        Body::Chunked(decoder, data, after) => (decoder.is_done(), data, after),
        Body::Length(left, data, after) => (left == 0, data, after),
        Body::UntilClose(data) => (true, data, Vec::new()),
    };
    Ok(is_whole.then_some((head.status.as_u16(), head.keep_alive, data, after)))
}

enum Body {
    Length(u64, Vec<u8>, Vec<u8>),
    Chunked(Chunked, Vec<u8>, Vec<u8>),
    UntilClose(Vec<u8>),
}

impl Body {
    fn new(framing: Framing) -> Body {
        match framing {
            Framing::Length(length) => Body::Length(length, Vec::new(), Vec::new()),
            Framing::Chunked => Body::Chunked(Chunked::new(), Vec::new(), Vec::new()),
            Framing::UntilClose => Body::UntilClose(Vec::new()),
        }
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), String> {
        match self {
            Body::Length(left, data, after) => {
                let part = piece.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= part as u64;
                data.extend_from_slice(&piece[..part]);
                after.extend_from_slice(&piece[part..]);
            }
            Body::Chunked(decoder, data, after) => {
                let rest = decoder.decode(piece, data, MAX).map_err(|what| what.unwrap_or("too long").to_owned())?;
                after.extend_from_slice(rest);
                assert!(data.len() <= MAX);
            }
            Body::UntilClose(data) => data.extend_from_slice(piece),
        }
        Ok(())
    }
}

/// Decodes bytes as a chunked body, in pieces of several sizes and in random ones. Whether it is a whole body.
///
/// # Panics
/// If the size of the pieces makes a difference, or a body in chunks of our own does not come back.
pub fn chunked(bytes: &[u8]) -> bool {
    let mut seed = bytes.iter().fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let mut random = move |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (seed >> 33) as usize % most
    };
    let whole = chunks(bytes, || bytes.len().max(1));
    for most in [1, 2, 9, 100] {
        let pieces = chunks(bytes, || random(most));
        assert!(pieces == whole || pieces.is_err() && whole.is_err(), "in pieces to {most}: {pieces:?}, {whole:?}");
    }
    let body = &bytes[..bytes.len().min(MAX)];
    let mut wire = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(random(40).min(rest.len()));
        wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
        rest = after;
    }
    wire.extend_from_slice(b"0\r\n\r\nafter");
    assert_eq!(chunks(&wire, || random(50)), Ok(Some((body.to_vec(), b"after".to_vec()))));
    matches!(whole, Ok(Some(_)))
}

/// The body and what follows it; `None` if it is not complete.
type Decoded = Option<(Vec<u8>, Vec<u8>)>;

fn chunks(mut bytes: &[u8], mut size: impl FnMut() -> usize) -> Result<Decoded, Option<&'static str>> {
    let (mut decoder, mut data, mut after) = (Chunked::new(), Vec::new(), Vec::new());
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(size().min(bytes.len()));
        after.extend_from_slice(decoder.decode(piece, &mut data, MAX)?);
        assert!(data.len() <= MAX && (after.is_empty() || decoder.is_done()));
        bytes = rest;
    }
    Ok(decoder.is_done().then_some((data, after)))
}
