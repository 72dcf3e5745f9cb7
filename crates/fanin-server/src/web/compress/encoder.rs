//! The encodings: gzip (RFC 1952), brotli (RFC 7932) and zstd (RFC 8878).

use std::fmt;
use std::io::Write;

use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::write::GzEncoder;
#[cfg(feature = "zstd")]
use zstd::stream::raw::CParameter;

/// The windows, as powers of two: what an encoder must remember. Larger ones take more memory for each response. Brotli compresses more
/// slowly with a smaller one.
const BROTLI_WINDOW: u32 = 18;
#[cfg(feature = "zstd")]
const ZSTD_WINDOW: u32 = 17;
/// The tables of zstd, which would grow to megabytes with the level.
#[cfg(feature = "zstd")]
const ZSTD_TABLES: u32 = 16;
/// Room for brotli's output before it is passed on.
const BROTLI_BUFFER: usize = 4 << 10;

/// An encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

impl Coding {
    /// Its name in headers.
    pub(in crate::web) fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// Whether this program has it.
    pub(super) fn is_built(self) -> bool {
        self != Coding::Zstd || cfg!(feature = "zstd")
    }
}

/// Compresses one body.
pub(super) enum Encoder {
    #[cfg(feature = "zstd")]
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// A whole body. `None`: there is no memory.
pub(super) fn whole(coding: Coding, level: u8, bytes: &[u8]) -> Option<Bytes> {
    #[cfg(feature = "zstd")]
    if coding == Coding::Zstd {
        // With a known size, its tables are as small as the body.
        return zstd::bulk::compress(bytes, level.into()).ok().map(Bytes::from);
    }
    let mut encoder = Encoder::new(coding, level)?;
    encoder.write(bytes)?;
    encoder.finish()
}

/// `None` of these functions means that there is no memory: the encoders write to memory and have no other failure.
impl Encoder {
    pub(super) fn new(coding: Coding, level: u8) -> Option<Encoder> {
        Some(match coding {
            #[cfg(feature = "zstd")]
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level.into()).ok()?;
                let bounds = [
                    CParameter::WindowLog(ZSTD_WINDOW),
                    CParameter::HashLog(ZSTD_TABLES),
                    CParameter::ChainLog(ZSTD_TABLES),
                ];
                for bound in bounds {
                    encoder.set_parameter(bound).ok()?;
                }
                Encoder::Zstd(Box::new(encoder))
            }
            #[cfg(not(feature = "zstd"))]
            Coding::Zstd => return None,
            Coding::Brotli => {
                Encoder::Brotli(Box::new(CompressorWriter::new(Vec::new(), BROTLI_BUFFER, level.into(), BROTLI_WINDOW)))
            }
            Coding::Gzip => Encoder::Gzip(Box::new(GzEncoder::new(Vec::new(), flate2::Compression::new(level.into())))),
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Option<()> {
        self.writer().write_all(bytes).ok()
    }

    /// Makes all output of what was written.
    pub(super) fn flush(&mut self) -> Option<()> {
        self.writer().flush().ok()
    }

    /// The output since the last time, if it is at least so many bytes.
    pub(super) fn take(&mut self, least: usize) -> Option<Bytes> {
        let output = match self {
            #[cfg(feature = "zstd")]
            Encoder::Zstd(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Gzip(encoder) => encoder.get_mut(),
        };
        (output.len() >= least).then(|| std::mem::take(output).into())
    }

    /// The rest of the output.
    pub(super) fn finish(self) -> Option<Bytes> {
        Some(match self {
            #[cfg(feature = "zstd")]
            Encoder::Zstd(encoder) => encoder.finish().ok()?.into(),
            Encoder::Brotli(encoder) => encoder.into_inner().into(),
            Encoder::Gzip(encoder) => encoder.finish().ok()?.into(),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            #[cfg(feature = "zstd")]
            Encoder::Zstd(encoder) => &mut **encoder,
            Encoder::Brotli(encoder) => &mut **encoder,
            Encoder::Gzip(encoder) => &mut **encoder,
        }
    }
}
