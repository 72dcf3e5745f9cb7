//! The file of a recording.
//!
//! It begins with a line of text, [`MAGIC`]. Blocks follow: a byte for what it has (`H` the header, `R` requests, `E` the end), a byte for
//! its compression (0 none, 1 zstd), the length of its contents, the length of what follows, and a CRC-32 of that, as little-endian
//! numbers of four bytes. Contents of `H` and `E` are one message, those of `R` messages that each follow their length.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

use crate::message::{Footer, Header, Request};

/// How a file begins. The number is the version of the format.
pub(crate) const MAGIC: &[u8] = b"fanin-recording 1\n";
/// What the first line of any version begins with.
const KIND: &[u8] = b"fanin-recording ";
/// A block is written once its contents have so many bytes.
pub const BLOCK: usize = 256 << 10;
/// The largest contents of a block that are read. One request has one block at most.
const MAX_BLOCK: usize = 256 << 20;
/// Bytes in front of a block's contents.
const HEAD: usize = 14;
/// The level of compression: the fastest.
#[cfg(feature = "zstd")]
const LEVEL: i32 = 1;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReadError {
    /// Something else.
    #[error("this is no recording: it does not begin with \"fanin-recording\"")]
    Foreign,
    /// Another version.
    #[error("this is a recording of another version of the format ({0}); this program reads version 1")]
    Version(String),
    /// It ends too early.
    #[error("the recording ends in the middle, after {0} whole requests: it was cut off, or `fanin record` was killed")]
    Truncated(usize),
    /// Something was changed.
    #[error("the recording is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the block begins.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Makes a file, block by block.
#[derive(Debug, Default)]
pub struct Writer {
    block: BytesMut,
    /// Bytes of the whole file so far, with those that are not in a block yet.
    written: usize,
    requests: u64,
}

/// What a whole file ends with.
pub type Finished = Vec<u8>;

impl Writer {
    /// The beginning of a file.
    pub fn begin(&mut self, header: &Header) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        block(&mut out, b'H', &header.encode_to_vec());
        self.written += out.len();
        out
    }

    /// Adds a request. Gives a block if one is full.
    pub fn add(&mut self, request: &Request) -> Option<Vec<u8>> {
        let length = request.encoded_len();
        if length > MAX_BLOCK - 16 {
            return None;
        }
        self.block.reserve(length + 10);
        // The buffer grows as it needs to.
        let _ = request.encode_length_delimited(&mut self.block);
        self.requests += 1;
        (self.block.len() >= BLOCK).then(|| self.flush())
    }

    /// What has been added and is not in a block yet, as one.
    pub fn flush(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.block.is_empty() {
            block(&mut out, b'R', &self.block);
            self.block.clear();
        }
        self.written += out.len();
        out
    }

    /// The end of the file.
    pub fn end(&mut self, footer: &Footer) -> Finished {
        let mut out = self.flush();
        block(&mut out, b'E', &Footer { requests: self.requests, ..footer.clone() }.encode_to_vec());
        out
    }

    /// Bytes of the file at most, once what has been added is written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.written + self.block.len()
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }
}

/// Bytes of a request in a file at most.
#[must_use]
pub fn length(request: &Request) -> usize {
    request.encoded_len() + 10
}

fn block(out: &mut Vec<u8>, kind: u8, contents: &[u8]) {
    let packed = pack(contents);
    let (method, stored) = match &packed {
        Some(packed) if packed.len() < contents.len() => (1, &**packed),
        _ => (0, contents),
    };
    out.extend_from_slice(&[kind, method]);
    for number in [contents.len() as u32, stored.len() as u32, crc32fast::hash(stored)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(stored);
}

#[cfg(feature = "zstd")]
fn pack(contents: &[u8]) -> Option<Vec<u8>> {
    zstd::bulk::compress(contents, LEVEL).ok()
}

#[cfg(not(feature = "zstd"))]
fn pack(_: &[u8]) -> Option<Vec<u8>> {
    None
}

#[cfg(feature = "zstd")]
fn unpack(stored: &[u8], length: usize) -> Option<Bytes> {
    zstd::bulk::decompress(stored, length).ok().filter(|contents| contents.len() == length).map(Bytes::from)
}

#[cfg(not(feature = "zstd"))]
fn unpack(_: &[u8], _: usize) -> Option<Bytes> {
    None
}

/// A recording in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// How it was made.
    pub header: Header,
    /// Its requests, by arrival.
    pub requests: Vec<Request>,
    /// How it ended.
    pub footer: Footer,
}

impl Recording {
    /// Reads a file. Bodies are parts of its blocks, not copies.
    ///
    /// # Errors
    /// It is no recording, or not a whole one.
    pub fn read(file: &Bytes) -> Result<Recording, ReadError> {
        let mut rest = file.clone();
        if !rest.starts_with(MAGIC) {
            return Err(other(&rest));
        }
        rest.advance(MAGIC.len());
        let mut recording = Recording::default();
        let mut has_header = false;
        loop {
            let at = file.len() - rest.len();
            let damaged = |what| ReadError::Damaged { at, what };
            let truncated = ReadError::Truncated(recording.requests.len());
            if rest.len() < HEAD {
                return Err(truncated);
            }
            let (kind, method) = (rest.get_u8(), rest.get_u8());
            let [length, stored, sum] = [rest.get_u32_le(), rest.get_u32_le(), rest.get_u32_le()];
            if !matches!(kind, b'H' | b'R' | b'E') || method > 1 {
                return Err(damaged("there is no block"));
            }
            if length as usize > MAX_BLOCK {
                return Err(damaged("a block is too large"));
            }
            if rest.len() < stored as usize {
                return Err(truncated);
            }
            let stored = rest.split_to(stored as usize);
            if crc32fast::hash(&stored) != sum {
                return Err(damaged("the checksum of a block is wrong"));
            }
            let contents = match method {
                0 if stored.len() == length as usize => stored,
                1 if cfg!(not(feature = "zstd")) => return Err(damaged("this program cannot read compressed blocks")),
                1 => unpack(&stored, length as usize).ok_or(damaged("a block cannot be decompressed"))?,
                _ => return Err(damaged("the length of a block is wrong")),
            };
            let wrong = |_| damaged("a message cannot be read");
            match kind {
                b'H' => {
                    recording.header = Header::decode(contents).map_err(wrong)?;
                    has_header = true;
                }
                _ if !has_header => return Err(damaged("the header is missing")),
                b'R' => {
                    let mut contents = contents;
                    while contents.has_remaining() {
                        recording.requests.push(Request::decode_length_delimited(&mut contents).map_err(wrong)?);
                    }
                }
                _ => {
                    recording.footer = Footer::decode(contents).map_err(wrong)?;
                    if !rest.is_empty() || recording.footer.requests != recording.requests.len() as u64 {
                        return Err(damaged("its end does not fit what comes before"));
                    }
                    recording.requests.sort_by_key(|request| request.arrived_us + request.queued_us);
                    return Ok(recording);
                }
            }
        }
    }
}

/// Why something that does not begin as it should cannot be read.
fn other(file: &[u8]) -> ReadError {
    if file.len() < MAGIC.len() && MAGIC.starts_with(file) && !file.is_empty() {
        return ReadError::Truncated(0);
    }
    match file.strip_prefix(KIND) {
        Some(rest) => {
            let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
            ReadError::Version(String::from_utf8_lossy(&line[..line.len().min(20)]).into_owned())
        }
        None => ReadError::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(requests: usize) -> Vec<u8> {
        let mut writer = Writer::default();
        let mut file = writer.begin(&Header { share: 0.5, ..Header::default() });
        for number in 0..requests {
            let target = format!("/{number}");
            let request = Request {
                arrived_us: (requests - number) as u64,
                target,
                body: Bytes::from(vec![7; 2000]),
                ..Request::default()
            };
            file.extend(writer.add(&request).unwrap_or_default());
        }
        file.extend(writer.end(&Footer { dropped: 3, ..Footer::default() }));
        file
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let file = whole(1000);
        let read = Recording::read(&file.into()).unwrap();
        assert_eq!((read.header.share, read.footer.dropped, read.footer.requests), (0.5, 3, 1000));
        assert_eq!(read.requests.len(), 1000);
        assert_eq!((&*read.requests[0].target, read.requests[0].body.len()), ("/999", 2000));
    }

    #[test]
    fn every_cut_is_one_error() {
        let file = whole(300);
        for end in (0..file.len()).step_by(7) {
            let error = Recording::read(&Bytes::copy_from_slice(&file[..end])).unwrap_err();
            let expected = match end {
                0 => matches!(error, ReadError::Foreign),
                _ => matches!(error, ReadError::Truncated(_)),
            };
            assert!(expected, "{end}: {error}");
        }
    }

    #[test]
    fn foreign_files_and_damage_are_named() {
        let read = |bytes: &[u8]| Recording::read(&Bytes::copy_from_slice(bytes)).unwrap_err().to_string();
        assert!(read(b"PK\x03\x04").contains("no recording"));
        assert!(read(b"{}").contains("no recording"));
        assert!(read(b"fanin-recording 2\nwhatever").contains("another version of the format (2)"));
        let mut file = whole(20);
        let middle = file.len() / 2;
        file[middle] ^= 1;
        assert!(read(&file).contains("damaged at byte"), "{}", read(&file));
    }
}
