//! Protocol detection: HTTP/1.1 or HTTP/2, by a connection's first bytes.

use std::io;

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a client with prior knowledge of HTTP/2 begins with. No HTTP/1.1 request does.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes read for the detection.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    bytes: [u8; PREFACE.len()],
    from: usize,
    to: usize,
}

impl Prefix {
    /// Takes at most `count` bytes off it.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> SmallVec<[u8; PREFACE.len()]> {
        if self.from == self.to {
            return SmallVec::new();
        }
        let to = self.to.min(self.from + count);
        let taken = SmallVec::from_slice(&self.bytes[self.from..to]);
        self.from = to;
        taken
    }
}

/// Reads until the protocol is known, and returns the bytes read and whether it is HTTP/2. The prefix is empty if the client closes
/// first.
pub(super) async fn detect<S: AsyncRead + Unpin>(
    stream: &mut S,
    mut on_bytes: impl FnMut(),
) -> io::Result<(Prefix, bool)> {
    let mut prefix = Prefix::default();
    loop {
        let read = stream.read(&mut prefix.bytes[prefix.to..]).await?;
        if read == 0 {
            return Ok((prefix, false));
        }
        on_bytes();
        prefix.to += read;
        if prefix.bytes[..prefix.to] != PREFACE[..prefix.to] {
            return Ok((prefix, false));
        }
        if prefix.to == PREFACE.len() {
            return Ok((prefix, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn detected(parts: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut stream = tokio_test_reader(parts);
        let (mut prefix, http2) = detect(&mut stream, || ()).await.unwrap();
        let mut bytes = Vec::new();
        loop {
            let some = prefix.take(7);
            if some.is_empty() {
                break;
            }
            bytes.extend_from_slice(&some);
        }
        (bytes, http2)
    }

    /// Gives each part in a read of its own.
    fn tokio_test_reader(parts: &[&[u8]]) -> impl AsyncRead + Unpin {
        let (mut client, server) = tokio::io::duplex(1);
        let all = parts.concat();
        tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            let _ = client.write_all(&all).await;
        });
        server
    }

    #[tokio::test]
    async fn http1_and_http2_are_told_apart_however_bytes_arrive() {
        assert_eq!(detected(&[PREFACE, b"more"]).await, (PREFACE.to_vec(), true));
        assert_eq!(detected(&[b"GET / HTTP/1.1\r\n"]).await, (b"G".to_vec(), false));
        assert_eq!(detected(&[b"PRI * HTTP/1.1\r\n"]).await, (b"PRI * HTTP/1".to_vec(), false));
        assert_eq!(detected(&[b"P"]).await, (b"P".to_vec(), false));
        assert_eq!(detected(&[]).await, (Vec::new(), false));
    }
}
