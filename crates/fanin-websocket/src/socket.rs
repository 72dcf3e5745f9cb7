//! One open WebSocket.

use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Sleep, sleep};
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, FrameHeader};
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message};

pub use tungstenite::protocol::frame::coding::CloseCode;

/// Largest message of a client. None is taken; a larger one is refused with a code of its own.
const MAX_MESSAGE: usize = 4 << 10;

/// Bytes of a client that are taken over at a time, and stay allocated.
const READ_BUFFER: usize = 128;

/// Pings that a client may leave unanswered. Instead of the next one it is given up.
const MAX_UNANSWERED: u8 = 2;

/// Most control frames of a client between two pings of ours.
const MAX_CONTROL_FRAMES: u32 = 1000;

/// How long a client may take to answer the frame that closes the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A WebSocket after its handshake. It holds the frames that have not been taken, so give it something to send only when it is
/// [idle](Next::Idle).
pub struct WebSocket {
    context: WebSocketContext,
    /// Frames to send.
    out: Vec<u8>,
    state: State,
    /// Pings since the client sent anything.
    unanswered: u8,
    /// Control frames of the client since the last ping.
    control_frames: u32,
}

enum State {
    Open,
    /// A frame that closes it is sent, and the client's answer is awaited.
    Closing(Pin<Box<Sleep>>),
    /// It ends when the frames are sent.
    Ended,
}

/// What is to be done with the connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// These bytes are sent.
    Bytes(Bytes),
    /// Nothing; it is open.
    Idle,
    /// It ends.
    Ended,
}

impl Default for WebSocket {
    fn default() -> WebSocket {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        WebSocket {
            context: WebSocketContext::new(Role::Server, Some(config)),
            out: Vec::new(),
            state: State::Open,
            unanswered: 0,
            control_frames: 0,
        }
    }
}

impl WebSocket {
    /// Whether messages can be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// The client has sent bytes. They end anywhere.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        self.unanswered = 0;
        let mut buffers = Buffers { input: bytes, output: &mut self.out };
        let failed = loop {
            match self.context.read(&mut buffers) {
                Ok(Message::Ping(_) | Message::Pong(_)) => {
                    self.control_frames += 1;
                    if self.control_frames > MAX_CONTROL_FRAMES {
                        break (CloseCode::Policy, "too many pings and pongs");
                    }
                }
                // What follows it is the end.
                Ok(Message::Close(_)) => {}
                // It was sent before the client knew.
                Ok(_) if !matches!(self.state, State::Open) => {}
                Ok(_) => break (CloseCode::Unsupported, "clients send no messages here"),
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return,
                Err(Error::Capacity(_)) => break (CloseCode::Size, "clients send no messages here"),
                Err(Error::Utf8(_)) => break (CloseCode::Invalid, "a text is not UTF-8"),
                Err(Error::Protocol(_)) => break (CloseCode::Protocol, "a frame is against the protocol"),
                // The client has closed it, and has been answered.
                Err(_) => {
                    self.state = State::Ended;
                    return;
                }
            }
        };
        self.fail(failed.0, failed.1);
    }

    /// Sends a message.
    pub fn send_text(&mut self, text: &[u8]) {
        if !self.is_open() {
            return;
        }
        let header = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
        self.out.reserve_exact(header.len(text.len() as u64) + text.len());
        // Writing to a vector cannot fail.
        let _ = header.format(text.len() as u64, &mut self.out);
        self.out.extend_from_slice(text);
    }

    /// Sends a ping, or gives the client up if it has not answered those before.
    pub fn ping(&mut self) {
        if self.unanswered >= MAX_UNANSWERED {
            return self.fail(CloseCode::Policy, "pings were not answered");
        }
        self.unanswered += 1;
        self.control_frames = 0;
        // A buffer takes everything, and one that closes sends nothing more.
        let _ = self.context.write(&mut Buffers::to(&mut self.out), Message::Ping(Bytes::new()));
    }

    /// Closes it: it ends when the client has answered, or after two seconds.
    pub fn close(&mut self, code: CloseCode, reason: &'static str) {
        if self.is_open() {
            self.send_close(code, reason);
            self.state = State::Closing(Box::pin(sleep(CLOSE_TIMEOUT)));
        }
    }

    /// Closes it without waiting for an answer: what the client sends can't be read any more.
    fn fail(&mut self, code: CloseCode, reason: &'static str) {
        if self.is_open() {
            self.send_close(code, reason);
        }
        self.state = State::Ended;
    }

    fn send_close(&mut self, code: CloseCode, reason: &'static str) {
        let frame = CloseFrame { code, reason: reason.into() };
        let _ = self.context.close(&mut Buffers::to(&mut self.out), Some(frame));
    }

    /// What is to be done now. Pending while the client's answer to a close is awaited.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        if !self.out.is_empty() {
            return Poll::Ready(Next::Bytes(std::mem::take(&mut self.out).into()));
        }
        match &mut self.state {
            State::Open => return Poll::Ready(Next::Idle),
            State::Closing(timeout) => ready!(timeout.as_mut().poll(cx)),
            State::Ended => {}
        }
        self.state = State::Ended;
        Poll::Ready(Next::Ended)
    }
}

/// What the client has sent, and what it is sent, as a connection that never waits.
struct Buffers<'b> {
    input: &'b [u8],
    output: &'b mut Vec<u8>,
}

impl Buffers<'_> {
    fn to(output: &mut Vec<u8>) -> Buffers<'_> {
        Buffers { input: &[], output }
    }
}

impl Read for Buffers<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // No bytes would be the end of the connection.
        if self.input.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.input.read(buffer)
    }
}

impl Write for Buffers<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    fn next(socket: &mut WebSocket) -> Poll<Next> {
        socket.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn bytes(of: &[u8]) -> Poll<Next> {
        Poll::Ready(Next::Bytes(Bytes::copy_from_slice(of)))
    }

    #[test]
    fn texts_of_all_lengths_have_the_right_header() {
        for (length, header) in [
            (0, &[0x81, 0][..]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (65_535, &[0x81, 126, 255, 255]),
            (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut socket = WebSocket::default();
            socket.send_text(&vec![b'x'; length]);
            assert_eq!(next(&mut socket), bytes(&[header, &vec![b'x'; length]].concat()), "{length}");
            assert_eq!(next(&mut socket), Poll::Ready(Next::Idle));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_close_waits_for_the_answer_but_not_for_long() {
        let close = [&[0x88, 6, 3, 233][..], b"away"].concat();
        let mut socket = WebSocket::default();
        socket.close(CloseCode::Away, "away");
        assert_eq!(next(&mut socket), bytes(&close));
        assert_eq!(next(&mut socket), Poll::Pending);
        socket.send_text(b"too late");
        socket.ping();
        assert_eq!(next(&mut socket), Poll::Pending);
        // A text that crosses the close, and the answer, both with the mask 0.
        socket.on_bytes(&[0x81, 0x81, 0, 0, 0, 0, b'x']);
        assert_eq!(next(&mut socket), Poll::Pending);
        socket.on_bytes(&[0x88, 0x82, 0, 0, 0, 0, 3, 233]);
        assert_eq!(next(&mut socket), Poll::Ready(Next::Ended));

        let mut socket = WebSocket::default();
        socket.close(CloseCode::Away, "away");
        assert_eq!(next(&mut socket), bytes(&close));
        let start = tokio::time::Instant::now();
        assert_eq!(poll_fn(|cx| socket.poll_next(cx)).await, Next::Ended);
        assert_eq!(start.elapsed().as_secs(), 2);
    }

    #[test]
    fn the_third_ping_without_an_answer_is_a_close() {
        let mut socket = WebSocket::default();
        for _ in 0..5 {
            for _ in 0..2 {
                socket.ping();
                assert_eq!(next(&mut socket), bytes(&[0x89, 0]));
            }
            socket.on_bytes(&[0x8a, 0x80, 0, 0, 0, 0]);
        }
        (0..3).for_each(|_| socket.ping());
        let Poll::Ready(Next::Bytes(sent)) = next(&mut socket) else { panic!("nothing sent") };
        assert_eq!(sent[..6], [0x89, 0, 0x89, 0, 0x88, 25]);
        assert_eq!(next(&mut socket), Poll::Ready(Next::Ended));
    }
}
