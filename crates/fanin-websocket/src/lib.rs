//! The server's side of the WebSocket protocol (RFC 6455), for clients that only listen: they may send control frames, nothing else.
//!
//! `tungstenite` reads and writes the frames, between buffers: [`WebSocket`] gets the bytes that a client has sent, and gives bytes to
//! send. The crate must not know sockets, HTTP requests, or what is sent.

#[doc(hidden)]
pub mod fuzzing;
mod socket;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub use socket::{CloseCode, Next, WebSocket};

/// The version of the protocol.
pub const VERSION: &str = "13";

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`; `None` if that is not 16 bytes in Base64.
pub fn accept(key: &[u8]) -> Option<String> {
    let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    is_key.then(|| tungstenite::handshake::derive_accept_key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_16_bytes_in_base64() {
        // RFC 6455, section 1.3.
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ==").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        for key in ["", "AAAA", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ== ", "dGhlIHNhbXBsZSBub25jZW8="] {
            assert_eq!(accept(key.as_bytes()), None, "{key}");
        }
    }
}
