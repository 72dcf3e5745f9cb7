//! Decompresses answers (`Content-Encoding`, RFC 9110, 8.4), requested or not: gzip, deflate, brotli and zstd.
//!
//! `max_answer` bounds the decoded bytes, so that a small answer cannot become a huge one. A worker decodes in steps
//! that are bounded in input and output. What takes longer goes to the offload thread.

mod brotli;
mod buffers;
mod deflate;
#[cfg(feature = "zstd")]
mod zstandard;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use tokio::task::yield_now;

use brotli::Brotli;
use buffers::{Broken, Buffers};
use deflate::Deflate;
#[cfg(feature = "zstd")]
use zstandard::Zstandard;

use super::attempt::Received;
use super::body::too_large;
use crate::error::{ErrorKind, Failure};
use crate::offload;

/// How long a worker decodes before it hands over or yields.
const MOMENT: Duration = Duration::from_micros(500);
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
    Brotli,
    #[cfg(feature = "zstd")]
    Zstd,
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
                    b"br" => all.push(Coding::Brotli),
                    #[cfg(feature = "zstd")]
                    b"zstd" => all.push(Coding::Zstd),
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
            Coding::Brotli => "br",
            #[cfg(feature = "zstd")]
            Coding::Zstd => "zstd",
        }
    }
}

#[cold]
fn unknown(name: &[u8]) -> Failure {
    let name: String = String::from_utf8_lossy(name).chars().take(40).collect();
    Failure::new(
        ErrorKind::Decode,
        format!(
            "the answer has content-encoding {name:?}; only gzip, deflate, br and zstd can be decoded: \
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
            Some(slot) => offload::run(slot, move |is_abandoned| self.run(is_abandoned)).await?,
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
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                none => {
                    none.insert(Decoder::new(coding, self.bytes.clone()).map_err(|b| failure(b, coding, self.max))?)
                }
            };
            let is_done = decoder.step(self.max).map_err(|broken| failure(broken, coding, self.max))?;
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

#[cold]
fn failure(broken: Broken, coding: Coding, max: usize) -> Failure {
    match broken {
        Broken::Because(what) => {
            Failure::new(ErrorKind::Decode, format!("the answer's {} stream is broken: {what}", coding.name()))
        }
        Broken::TooLarge => too_large(max.saturating_add(1), max),
    }
}

/// Decodes one encoding.
struct Decoder {
    buffers: Buffers,
    format: Format,
}

enum Format {
    Deflate(Deflate),
    Brotli(Brotli),
    #[cfg(feature = "zstd")]
    Zstd(Zstandard),
}

impl Decoder {
    fn new(coding: Coding, input: Bytes) -> Result<Decoder, Broken> {
        let format = match coding {
            Coding::Gzip | Coding::Deflate => Format::Deflate(Deflate::new(coding == Coding::Gzip, &input)),
            Coding::Brotli => Format::Brotli(Brotli::new()),
            #[cfg(feature = "zstd")]
            Coding::Zstd => Format::Zstd(Zstandard::new().ok_or(Broken::Because("there is no memory to decode it"))?),
        };
        Ok(Decoder { buffers: Buffers::new(input), format })
    }

    fn finish(self) -> Bytes {
        self.buffers.finish()
    }

    /// Decodes one step. Whether everything is decoded.
    fn step(&mut self, max: usize) -> Result<bool, Broken> {
        let buffers = &mut self.buffers;
        match &mut self.format {
            Format::Deflate(deflate) => deflate.step(buffers, max),
            Format::Brotli(brotli) => brotli.step(buffers, max),
            #[cfg(feature = "zstd")]
            Format::Zstd(zstd) => zstd.step(buffers, max),
        }
    }
}

/// Decodes any bytes, for [`crate::fuzzing`].
pub(crate) mod fuzz {
    use super::buffers::STEP_OUT;
    use super::{Coding, Decoding};
    use bytes::Bytes;

    /// Most decoded bytes here.
    const MAX: usize = 64 << 10;

    /// Decodes bytes, of which the first chooses the encodings. Whether they are encoded so.
    ///
    /// # Panics
    /// If there is more output than allowed, or pauses make a difference.
    pub fn content_encoding(bytes: &[u8]) -> bool {
        use Coding::{Brotli, Deflate, Gzip};
        #[cfg(feature = "zstd")]
        const ZSTD: &[Coding] = &[Coding::Zstd];
        #[cfg(not(feature = "zstd"))]
        const ZSTD: &[Coding] = &[];
        let Some((&first, bytes)) = bytes.split_first() else { return false };
        let all = [&[Gzip][..], &[Deflate], &[Gzip, Gzip], &[Deflate, Gzip], &[Brotli], ZSTD];
        let codings = all[usize::from(first) % all.len()];
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
            let room = steps.decoder.as_ref().map_or(0, |decoder| decoder.buffers.output.capacity());
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
mod tests;
