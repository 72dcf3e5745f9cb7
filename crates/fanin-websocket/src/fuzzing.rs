//! Reads any bytes as what a client sends, for the fuzz target `websocket`.

use std::task::{Context, Poll, Waker};

use tungstenite::protocol::frame::FrameSocket;
use tungstenite::protocol::frame::coding::{Control, OpCode};

use crate::{Next, WebSocket};

/// Gives bytes to a WebSocket in pieces of several sizes, with a message and a ping between them. Whether the client is neither refused
/// nor closes.
///
/// # Panics
/// If what is sent depends on the pieces, is no sequence of frames, goes on behind a close, or is more than what came allows.
pub fn client(bytes: &[u8]) -> bool {
    let whole = sent(bytes, bytes.len().max(1), false);
    for size in [1, 3, 64] {
        assert_eq!(sent(bytes, size, false), whole, "in pieces of {size}");
    }
    // An answer is no longer than what it answers, and a close has a bound.
    assert!(whole.0.len() <= bytes.len() + 127, "{} bytes for {}", whole.0.len(), bytes.len());
    check(&whole.0);
    check(&sent(bytes, 7, true).0);
    whole.1
}

/// What is sent, and whether the socket is still open.
fn sent(bytes: &[u8], size: usize, talks: bool) -> (Vec<u8>, bool) {
    let mut socket = WebSocket::default();
    let mut all = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    for piece in bytes.chunks(size) {
        socket.on_bytes(piece);
        if talks {
            socket.send_text(b"{}");
            socket.ping();
        }
        loop {
            match socket.poll_next(&mut cx) {
                Poll::Ready(Next::Bytes(bytes)) => all.extend_from_slice(&bytes),
                Poll::Ready(Next::Idle) | Poll::Pending => break,
                Poll::Ready(Next::Ended) => return (all, false),
            }
        }
    }
    (all, socket.is_open())
}

/// Frames of a server: without masks, nothing behind a close.
fn check(sent: &[u8]) {
    let mut frames = FrameSocket::new(sent);
    let mut closed = false;
    let mut length = 0;
    while let Ok(Some(frame)) = frames.read(None) {
        assert!(!closed, "{frame:?} behind a close");
        assert!(frame.header().mask.is_none(), "{frame:?}");
        closed = frame.header().opcode == OpCode::Control(Control::Close);
        length += frame.len();
    }
    assert_eq!(length, sent.len(), "not a sequence of frames");
}
