//! Decompresses answers (`Content-Encoding`, RFC 9110, 8.4), requested or not: gzip (RFC 1952) and
//! deflate (RFC 1950, and RFC 1951 as some servers send it).
//!
//! `max_answer` bounds the decoded bytes, so that a small answer cannot become a huge one. A worker decodes in steps
//! that are bounded in input and output. What takes longer goes to the offload thread.

use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::{Crc, Decompress, FlushDecompress, Status};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use tokio::task::yield_now;

use super::attempt::Received;
use super::body::too_large;
use crate::error::{ErrorKind, Failure};
use crate::offload;

/// How long a worker decodes before it hands over or yields.
const MOMENT: Duration = Duration::from_micros(500);
/// Most bytes that one step reads and writes. Both are bounded, because empty blocks take time and give no output.
const STEP_IN: usize = 4 << 10;
const STEP_OUT: usize = 32 << 10;
/// Most encodings of one answer.
const MAX_CODINGS: usize = 3;

/// Decodes an answer and removes the headers that no longer apply.
///
/// # Errors
/// `Decode` for an unknown encoding or a broken stream, `TooLarge` for more than `max` decoded bytes.
pub(crate) async fn decode(received: Received, max: usize) -> Result<Received, Failure> {
    if received.body.is_empty() {
        // An answer to HEAD, or a 304: the header describes another answer's body.
        return Ok(received);
    }
    let codings = Coding::all(&received.headers)?;
    let body = Decoding { codings, bytes: received.body.clone(), decoder: None, max }.run_here_or_there().await?;
    let mut headers = received.headers.into_map();
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    Ok(Received { headers: headers.into(), body, at: tokio::time::Instant::now(), ..received })
}

/// Decodes one gzip-compressed message.
///
/// # Errors
/// As [`decode`].
pub(crate) async fn gunzip(bytes: Bytes, max: usize) -> Result<Bytes, Failure> {
    Decoding { codings: vec![Coding::Gzip], bytes, decoder: None, max }.run_here_or_there().await
}

fn stopwatch() -> impl FnMut() -> bool {
    let begun = Instant::now();
    move || begun.elapsed() >= MOMENT
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// The encodings of an answer in the order in which they were applied.
    fn all(headers: &HeaderMap) -> Result<Vec<Coding>, Failure> {
        let mut all = Vec::new();
        for value in headers.get_all(CONTENT_ENCODING) {
            for name in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                match name.to_ascii_lowercase().as_slice() {
                    b"gzip" | b"x-gzip" => all.push(Coding::Gzip),
                    b"deflate" => all.push(Coding::Deflate),
                    b"" | b"identity" => {}
                    _ => return Err(unknown(name)),
                }
            }
        }
        match all.len() {
            0..=MAX_CODINGS => Ok(all),
            more => Err(Failure::new(ErrorKind::Decode, format!("the answer has {more} content-encodings"))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }
}

#[cold]
fn unknown(name: &[u8]) -> Failure {
    let name: String = String::from_utf8_lossy(name).chars().take(40).collect();
    Failure::new(
        ErrorKind::Decode,
        format!(
            "the answer has content-encoding {name:?}; only gzip and deflate can be decoded: \
             turn {name} off at the upstream, or do not send accept-encoding"
        ),
    )
}

/// An answer that is being decoded.
struct Decoding {
    /// The encodings that are left. The last one is decoded next.
    codings: Vec<Coding>,
    bytes: Bytes,
    /// Decodes the last of `codings`.
    decoder: Option<Decoder>,
    max: usize,
}

impl Decoding {
    /// Decodes to the end: on the worker for a moment, then on the offload thread.
    async fn run_here_or_there(mut self) -> Result<Bytes, Failure> {
        if self.run_until(&mut stopwatch())? {
            return Ok(self.bytes);
        }
        match offload::slot() {
            Some(slot) => slot.run(move |is_abandoned| self.run(is_abandoned)).await?,
            None => {
                while !self.run_until(&mut stopwatch())? {
                    yield_now().await;
                }
                Ok(self.bytes)
            }
        }
    }

    /// Decodes to the end. Stops early once `is_abandoned`.
    fn run(mut self, is_abandoned: &dyn Fn() -> bool) -> Result<Bytes, Failure> {
        match self.run_until(&mut || is_abandoned())? {
            true => Ok(self.bytes),
            false => Err(Failure::new(ErrorKind::Cancelled, "the call was cancelled")),
        }
    }

    /// Decodes until `pause` returns true after a step. Whether everything is decoded.
    fn run_until(&mut self, pause: &mut dyn FnMut() -> bool) -> Result<bool, Failure> {
        while let Some(&coding) = self.codings.last() {
            let decoder = self.decoder.get_or_insert_with(|| Decoder::new(coding, self.bytes.clone()));
            let is_done = decoder.step(self.max).map_err(|broken| broken.into_failure(coding, self.max))?;
            if is_done && let Some(done) = self.decoder.take() {
                self.bytes = done.finish();
                self.codings.pop();
            } else if pause() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Why a stream cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
enum Broken {
    Because(&'static str),
    TooLarge,
}

impl Broken {
    #[cold]
    fn into_failure(self, coding: Coding, max: usize) -> Failure {
        match self {
            Broken::Because(what) => {
                Failure::new(ErrorKind::Decode, format!("the answer's {} stream is broken: {what}", coding.name()))
            }
            Broken::TooLarge => too_large(max.saturating_add(1), max),
        }
    }
}

const TRUNCATED: Broken = Broken::Because("it ends too early");

/// Decodes one encoding.
struct Decoder {
    stage: Stage,
    is_gzip: bool,
    inflate: Decompress,
    input: Bytes,
    /// Bytes of the input that have been decoded.
    at: usize,
    output: Vec<u8>,
    /// Checksum of the present gzip member.
    crc: Crc,
}

#[derive(Clone, Copy)]
enum Stage {
    Header,
    Data,
    Trailer,
}

impl Decoder {
    fn new(coding: Coding, input: Bytes) -> Decoder {
        let (is_gzip, has_zlib_header) = match coding {
            Coding::Gzip => (true, false),
            Coding::Deflate => (false, is_zlib(&input)),
        };
        Decoder {
            stage: if is_gzip { Stage::Header } else { Stage::Data },
            is_gzip,
            inflate: Decompress::new(has_zlib_header),
            input,
            at: 0,
            output: Vec::new(),
            crc: Crc::new(),
        }
    }

    fn finish(mut self) -> Bytes {
        // An answer may be cached for long: unused capacity must not be kept with it.
        self.output.shrink_to_fit();
        self.output.into()
    }

    /// Decodes one step. Whether everything is decoded.
    fn step(&mut self, max: usize) -> Result<bool, Broken> {
        match self.stage {
            Stage::Header => {
                self.at += header_length(&self.input[self.at..])?;
                self.stage = Stage::Data;
                Ok(false)
            }
            Stage::Data => {
                if self.inflate(max)? == Status::StreamEnd {
                    self.stage = Stage::Trailer;
                }
                Ok(false)
            }
            Stage::Trailer if self.is_gzip => self.trailer(),
            Stage::Trailer if self.at < self.input.len() => Err(Broken::Because("bytes follow its end")),
            Stage::Trailer => Ok(true),
        }
    }

    fn inflate(&mut self, max: usize) -> Result<Status, Broken> {
        let rest = &self.input[self.at..];
        let input = &rest[..rest.len().min(STEP_IN)];
        let begin = self.output.len();
        // One byte more than allowed shows that the answer is too large.
        let room = STEP_OUT.min(max.saturating_add(1) - begin);
        self.output.resize(begin + room, 0);
        let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, &mut self.output[begin..], FlushDecompress::None);
        // Both are at most the lengths of the slices.
        let (read, written) =
            ((self.inflate.total_in() - read) as usize, (self.inflate.total_out() - written) as usize);
        self.at += read;
        self.output.truncate(begin + written);
        let status = status.map_err(|_| Broken::Because("its bytes are not valid"))?;
        if self.output.len() > max {
            return Err(Broken::TooLarge);
        }
        if status != Status::StreamEnd && written < room && self.at == self.input.len() {
            return Err(TRUNCATED);
        }
        if self.is_gzip {
            self.crc.update(&self.output[begin..]);
        }
        Ok(status)
    }

    /// The end of a gzip member: checksum and length. Another member may follow.
    fn trailer(&mut self) -> Result<bool, Broken> {
        let Some((trailer, rest)) = self.input[self.at..].split_first_chunk::<8>() else { return Err(TRUNCATED) };
        let expected = [self.crc.sum().to_le_bytes(), self.crc.amount().to_le_bytes()].concat();
        if trailer[..] != expected {
            return Err(Broken::Because("its checksum is wrong"));
        }
        self.at += trailer.len();
        if rest.is_empty() {
            return Ok(true);
        }
        if !rest.starts_with(&GZIP) {
            return Err(Broken::Because("bytes follow its end"));
        }
        self.crc.reset();
        self.inflate.reset(false);
        self.stage = Stage::Header;
        Ok(false)
    }
}

/// The first bytes of a gzip member: magic number, and deflate as the only method.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// Length of the header at the start of a gzip member (RFC 1952, 2.3).
fn header_length(bytes: &[u8]) -> Result<usize, Broken> {
    const HEADER_CRC: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    if !bytes.starts_with(&GZIP[..GZIP.len().min(bytes.len())]) {
        return Err(Broken::Because("it has no gzip header"));
    }
    let flags = *bytes.get(3).ok_or(TRUNCATED)?;
    let mut at = 10;
    if flags & EXTRA != 0 {
        let length = bytes.get(at..at + 2).ok_or(TRUNCATED)?;
        at += 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let rest = bytes.get(at..).ok_or(TRUNCATED)?;
            at += memchr::memchr(0, rest).ok_or(TRUNCATED)? + 1;
        }
    }
    if flags & HEADER_CRC != 0 {
        at += 2;
    }
    if at > bytes.len() { Err(TRUNCATED) } else { Ok(at) }
}

/// Whether a deflate stream starts with zlib's header (RFC 1950, 2.2). Some servers omit it.
fn is_zlib(bytes: &[u8]) -> bool {
    let Some(&[method, flags]) = bytes.first_chunk() else { return false };
    method & 15 == 8 && u16::from_be_bytes([method, flags]).is_multiple_of(31)
}

/// Decodes any bytes, for [`crate::fuzzing`].
pub(crate) mod fuzz {
    use super::{Coding, Decoding, STEP_OUT};
    use bytes::Bytes;

    /// Most decoded bytes here.
    const MAX: usize = 64 << 10;

    /// Decodes bytes, of which the first chooses the encodings. Whether they are encoded so.
    ///
    /// # Panics
    /// If there is more output than allowed, or pauses make a difference.
    pub fn content_encoding(bytes: &[u8]) -> bool {
        use Coding::{Deflate, Gzip};
        let Some((&first, bytes)) = bytes.split_first() else { return false };
        let codings = [&[Gzip][..], &[Deflate], &[Gzip, Gzip], &[Deflate, Gzip]][usize::from(first % 4)];
        let decoding =
            |max| Decoding { codings: codings.to_vec(), bytes: Bytes::copy_from_slice(bytes), decoder: None, max };
        let whole = decoding(MAX).run(&|| false).map_err(|failure| failure.kind);
        let mut steps = decoding(MAX);
        let stepped = loop {
            match steps.run_until(&mut || true) {
                Ok(true) => break Ok(steps.bytes),
                Ok(false) => {}
                Err(failure) => break Err(failure.kind),
            }
            let room = steps.decoder.as_ref().map_or(0, |decoder| decoder.output.capacity());
            assert!(room <= 2 * (MAX + STEP_OUT), "room for {room} bytes");
        };
        assert_eq!(stepped, whole);
        let Ok(whole) = whole else { return false };
        assert!(whole.len() <= MAX);
        if let Some(less) = whole.len().checked_sub(1) {
            assert!(decoding(less).run(&|| false).is_err(), "more than {less} bytes were let through");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http::StatusCode;
    use http::header::{CONTENT_TYPE, HeaderValue};

    use super::*;

    const TEXT: &[u8] = b"{\"a\": 1}";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn answer(encoding: &'static str, body: Vec<u8>) -> Received {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        Received { status: StatusCode::OK, headers: headers.into(), body: body.into(), at: tokio::time::Instant::now() }
    }

    async fn decoded(encoding: &'static str, body: Vec<u8>, max: usize) -> Result<Bytes, Failure> {
        let received = decode(answer(encoding, body), max).await?;
        assert_eq!(received.headers.len(), 1, "{:?}", received.headers);
        assert_eq!(received.headers.content_type(), Some(&b"application/json"[..]));
        Ok(received.body)
    }

    #[tokio::test]
    async fn each_encoding_is_decoded() {
        for (encoding, body) in [
            ("gzip", gzip(TEXT)),
            ("GZIP", gzip(TEXT)),
            ("x-gzip", gzip(TEXT)),
            ("deflate", zlib(TEXT)),
            ("deflate", raw_deflate(TEXT)),
            ("identity", TEXT.to_vec()),
            ("deflate, gzip", gzip(&zlib(TEXT))),
            ("gzip,identity, ", gzip(TEXT)),
            ("gzip", [gzip(&TEXT[..3]), gzip(b""), gzip(&TEXT[3..])].concat()),
        ] {
            assert_eq!(decoded(encoding, body, 100).await.unwrap(), TEXT, "{encoding}");
        }
        assert_eq!(decoded("gzip", gzip(b""), 100).await.unwrap(), "");
    }

    #[tokio::test]
    async fn optional_fields_of_a_gzip_header_are_skipped() {
        let plain = gzip(TEXT);
        let mut full = vec![0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 3];
        full.extend_from_slice(b"\x03\0xyzname\0comment\0\0\0");
        full.extend_from_slice(&plain[10..]);
        assert_eq!(decoded("gzip", full.clone(), 100).await.unwrap(), TEXT);
        for length in 1..full.len() {
            assert!(decoded("gzip", full[..length].to_vec(), 100).await.is_err(), "{length}");
        }
    }

    #[tokio::test]
    async fn a_truncated_stream_fails_wherever_it_ends() {
        let text = vec![b'x'; 100_000];
        for (encoding, whole) in [("gzip", gzip(&text)), ("deflate", zlib(&text)), ("deflate", raw_deflate(&text))] {
            for length in 1..whole.len() {
                let failure = decoded(encoding, whole[..length].to_vec(), 1 << 20).await.unwrap_err();
                assert_eq!(failure.kind, ErrorKind::Decode, "{encoding} {length}");
            }
            let failure = decoded(encoding, whole[..whole.len() - 1].to_vec(), 1 << 20).await.unwrap_err();
            let expected = format!("the answer's {encoding} stream is broken: it ends too early");
            assert_eq!(failure.detail, expected);
        }
    }

    #[tokio::test]
    async fn invalid_and_trailing_bytes_fail() {
        let mut wrong_checksum = gzip(TEXT);
        let at = wrong_checksum.len() - 8;
        wrong_checksum[at] ^= 1;
        for (encoding, body, what) in [
            ("gzip", TEXT.to_vec(), "gzip stream is broken: it has no gzip header"),
            ("gzip", wrong_checksum, "gzip stream is broken: its checksum is wrong"),
            ("gzip", [gzip(TEXT), b"more".to_vec()].concat(), "gzip stream is broken: bytes follow its end"),
            ("deflate", [zlib(TEXT), b"more".to_vec()].concat(), "deflate stream is broken: bytes follow its end"),
            ("deflate", vec![0xff; 20], "deflate stream is broken: its bytes are not valid"),
            ("br", TEXT.to_vec(), "content-encoding \"br\"; only gzip and deflate can be decoded: turn br off"),
            ("gzip, zstd", gzip(TEXT), "content-encoding \"zstd\""),
            ("gzip, gzip, gzip, gzip", gzip(TEXT), "4 content-encodings"),
        ] {
            let failure = decoded(encoding, body, 100).await.unwrap_err();
            assert_eq!(failure.kind, ErrorKind::Decode, "{encoding}");
            assert!(failure.detail.contains(what), "{}", failure.detail);
        }
    }

    #[tokio::test]
    async fn the_bound_counts_decoded_bytes() {
        let text = vec![b'x'; 10_000_000];
        for (encoding, body) in [("gzip", gzip(&text)), ("deflate", zlib(&text)), ("gzip, gzip", gzip(&gzip(&text)))] {
            assert!(body.len() < 11_000);
            for max in [0, 100, 1 << 20, 9_999_999] {
                let failure = decoded(encoding, body.clone(), max).await.unwrap_err();
                assert_eq!(failure.kind, ErrorKind::TooLarge, "{encoding} {max}");
            }
            assert_eq!(decoded(encoding, body, 10_000_000).await.unwrap(), text);
        }
    }

    #[test]
    fn a_step_is_bounded_in_input_and_output() {
        let mut decoder = Decoder::new(Coding::Deflate, zlib(&vec![b'x'; 10_000_000]).into());
        // Blocks without content: stored, of length 0.
        let mut empty_blocks = Decoder::new(Coding::Deflate, [0, 0, 0, 0xff, 0xff].repeat(10_000).into());
        for _ in 0..10 {
            for decoder in [&mut decoder, &mut empty_blocks] {
                let (at, output) = (decoder.at, decoder.output.len());
                assert_eq!(decoder.step(usize::MAX), Ok(false));
                assert!(decoder.at - at <= STEP_IN && decoder.output.len() - output <= STEP_OUT);
            }
        }
    }
}
