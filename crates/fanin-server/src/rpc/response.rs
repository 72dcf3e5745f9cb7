//! What a call receives: its messages, compressed where that is worth it.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, VARY};

use super::grpc;
use super::request::PREFIX;
use super::{Call, Protocol};

const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// How the messages of a response are written.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    call: Call,
    /// Messages from this size on are compressed.
    gzip_from: Option<usize>,
}

impl Writer {
    /// For a call. `gzip_from` is for clients that understand gzip.
    pub fn new(call: Call, gzip_from: Option<usize>) -> Writer {
        Writer { call, gzip_from }
    }

    /// The call.
    pub fn call(&self) -> Call {
        self.call
    }

    /// Whether a message of so many bytes is compressed.
    pub fn compresses(&self, bytes: usize) -> bool {
        self.gzip_from.is_some_and(|from| bytes >= from)
    }

    /// A message with its prefix.
    ///
    /// # Errors
    /// It is too large to have one.
    pub fn frame(&self, message: &Bytes) -> Result<Bytes, String> {
        let (flags, bytes) = match self.compressed(message) {
            Some(compressed) => (1, compressed),
            None => (0, message.clone()),
        };
        let length = u32::try_from(bytes.len()).map_err(|_| "is too large to be sent".to_owned())?;
        let mut frame = Vec::with_capacity(PREFIX + bytes.len());
        frame.push(flags);
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&bytes);
        Ok(frame.into())
    }

    /// The only message of a response that has no prefixes, and whether it is compressed.
    pub fn body(&self, message: Bytes) -> (Bytes, bool) {
        match self.compressed(&message) {
            Some(compressed) => (compressed, true),
            None => (message, false),
        }
    }

    /// The message compressed, if that makes it smaller.
    fn compressed(&self, message: &Bytes) -> Option<Bytes> {
        if !self.compresses(message.len()) {
            return None;
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(message.len() / 2), Compression::fast());
        encoder.write_all(message).ok()?;
        let compressed = encoder.finish().ok()?;
        (compressed.len() < message.len()).then(|| compressed.into())
    }

    /// Adds what a client must know of compression. `compressed`: some messages may be.
    pub fn add_headers(&self, compressed: bool, headers: &mut HeaderMap) {
        const ALL: HeaderValue = HeaderValue::from_static("identity, gzip");
        let (encoding, accepted) = match self.call.protocol {
            Protocol::Connect => {
                if compressed {
                    headers.insert(CONTENT_ENCODING, GZIP);
                }
                if self.gzip_from.is_some() {
                    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
                }
                return;
            }
            Protocol::ConnectStream => ("connect-content-encoding", "connect-accept-encoding"),
            _ => ("grpc-encoding", "grpc-accept-encoding"),
        };
        headers.insert(HeaderName::from_static(accepted), ALL);
        if compressed {
            headers.insert(HeaderName::from_static(encoding), GZIP);
        }
    }

    /// Bytes of a body as they are sent: base64 for clients that can read nothing else.
    pub fn sent(&self, bytes: Bytes) -> Bytes {
        match self.call.protocol {
            Protocol::GrpcWebText => grpc::text(&bytes).into(),
            _ => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Codec;
    use super::*;

    #[test]
    fn messages_are_compressed_from_a_size_on_if_it_helps() {
        let writer = |from| Writer::new(Call { protocol: Protocol::Grpc, codec: Codec::Proto }, from);
        let small = Bytes::from(vec![b'a'; 99]);
        let large = Bytes::from(vec![b'a'; 100]);
        assert_eq!(writer(None).frame(&large).unwrap()[..6], *b"\0\0\0\0\x64a");
        assert_eq!(writer(Some(100)).frame(&small).unwrap()[0], 0);
        let frame = writer(Some(100)).frame(&large).unwrap();
        assert!(frame[0] == 1 && frame.len() < 60, "{frame:?}");
        let noise: Vec<u8> = (0..100_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert_eq!(writer(Some(10)).frame(&noise.into()).unwrap()[0], 0);
    }
}
