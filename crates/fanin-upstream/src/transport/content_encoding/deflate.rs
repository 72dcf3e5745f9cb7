//! gzip (RFC 1952) and deflate (RFC 1950, and RFC 1951 as some servers send it).

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::buffers::{Broken, Buffers, MORE, Step, TRUNCATED};

/// Decodes gzip or deflate.
pub(super) struct Deflate {
    stage: Stage,
    is_gzip: bool,
    inflate: Decompress,
    /// Checksum of the present gzip member.
    crc: Crc,
}

#[derive(Clone, Copy)]
enum Stage {
    Header,
    Data,
    Trailer,
}

impl Deflate {
    pub(super) fn new(is_gzip: bool, input: &[u8]) -> Deflate {
        let has_zlib_header = !is_gzip && is_zlib(input);
        Deflate {
            stage: if is_gzip { Stage::Header } else { Stage::Data },
            is_gzip,
            inflate: Decompress::new(has_zlib_header),
            crc: Crc::new(),
        }
    }

    /// Decodes one step. Whether everything is decoded.
    pub(super) fn step(&mut self, buffers: &mut Buffers, max: usize) -> Result<bool, Broken> {
        match self.stage {
            Stage::Header => {
                buffers.at += header_length(buffers.rest())?;
                self.stage = Stage::Data;
                Ok(false)
            }
            Stage::Data => {
                if self.inflate(buffers, max)? {
                    self.stage = Stage::Trailer;
                }
                Ok(false)
            }
            Stage::Trailer if self.is_gzip => self.trailer(buffers),
            Stage::Trailer if !buffers.rest().is_empty() => Err(MORE),
            Stage::Trailer => Ok(true),
        }
    }

    fn inflate(&mut self, buffers: &mut Buffers, max: usize) -> Result<bool, Broken> {
        let inflate = &mut self.inflate;
        let (written, has_ended) = buffers.step(max, |input, output| {
            let before = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(input, output, FlushDecompress::None);
            // Both are at most the lengths of the slices.
            let (read, written) = ((inflate.total_in() - before.0) as usize, (inflate.total_out() - before.1) as usize);
            Step { read, written, has_ended: status.map(|status| status == Status::StreamEnd).map_err(|_| ()) }
        })?;
        if self.is_gzip {
            self.crc.update(written);
        }
        Ok(has_ended)
    }

    /// The end of a gzip member: checksum and length. Another member may follow.
    fn trailer(&mut self, buffers: &mut Buffers) -> Result<bool, Broken> {
        let Some((trailer, rest)) = buffers.rest().split_first_chunk::<8>() else { return Err(TRUNCATED) };
        let expected = [self.crc.sum().to_le_bytes(), self.crc.amount().to_le_bytes()].concat();
        if trailer[..] != expected {
            return Err(Broken::Because("its checksum is wrong"));
        }
        let (is_last, is_member) = (rest.is_empty(), rest.starts_with(&GZIP));
        buffers.at += trailer.len();
        if is_last {
            return Ok(true);
        }
        if !is_member {
            return Err(MORE);
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
