//! Reflection as a stream: a client's bytes in, answers out.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::Reflector;

/// Most bytes that a client may send in one conversation. A message is a name.
pub const MAX_CONVERSATION: usize = 1 << 20;
/// Largest message.
const MAX_MESSAGE: usize = 64 << 10;
/// Bytes before each message: flags, and its length.
const PREFIX: usize = 5;

const INVALID_ARGUMENT: u8 = 3;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;

/// One client's stream to a reflection service.
#[derive(Debug)]
pub struct Conversation {
    reflector: Arc<Reflector>,
    received: BytesMut,
}

/// Why a conversation ends early: a status.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The number of its code.
    pub code: u8,
    /// What is wrong, for people.
    pub message: String,
}

impl Refused {
    fn new(code: u8, message: impl Into<String>) -> Refused {
        Refused { code, message: message.into() }
    }
}

impl Conversation {
    /// With a client that has sent nothing.
    pub fn new(reflector: Arc<Reflector>) -> Conversation {
        Conversation { reflector, received: BytesMut::new() }
    }

    /// Takes bytes that the client has sent.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The answer to the next message that is there in full, without a prefix. `None`: there is none.
    ///
    /// # Errors
    /// The bytes are no messages of reflection.
    pub fn answer(&mut self) -> Result<Option<Bytes>, Refused> {
        let Some(&[flags, length @ ..]) = self.received.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_be_bytes(length) as usize;
        if flags != 0 {
            return Err(Refused::new(UNIMPLEMENTED, "the message is compressed; send it uncompressed"));
        }
        if length > MAX_MESSAGE {
            return Err(Refused::new(RESOURCE_EXHAUSTED, format!("the message has more than {MAX_MESSAGE} bytes")));
        }
        if self.received.len() < PREFIX + length {
            return Ok(None);
        }
        let message = self.received.split_to(PREFIX + length).freeze().slice(PREFIX..);
        let answer = self.reflector.answer(message);
        let answer = answer.map_err(|error| {
            Refused::new(INVALID_ARGUMENT, format!("the message is not one of reflection: {error}"))
        })?;
        Ok(Some(answer.into()))
    }

    /// The client sends nothing more.
    ///
    /// # Errors
    /// A message is not there in full.
    pub fn end(&self) -> Result<(), Refused> {
        match self.received.is_empty() {
            true => Ok(()),
            false => Err(Refused::new(INVALID_ARGUMENT, "the message is cut off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEALTH;

    fn refused(bytes: &[u8]) -> Refused {
        let reflector = Reflector::new(&[HEALTH], &[]).expect("descriptions");
        let mut conversation = Conversation::new(Arc::new(reflector));
        conversation.receive(bytes);
        loop {
            match conversation.answer() {
                Ok(Some(_)) => {}
                Ok(None) => return conversation.end().expect_err("it is not whole"),
                Err(refused) => return refused,
            }
        }
    }

    #[test]
    fn bytes_come_as_they_like_and_wrong_ones_end_it() {
        let reflector = Reflector::new(&[HEALTH], &[]).expect("descriptions");
        let mut conversation = Conversation::new(Arc::new(reflector));
        // list_services = "*", byte by byte.
        let message = b"\0\0\0\0\x03\x3a\x01*";
        for byte in &message[..message.len() - 1] {
            conversation.receive(&[*byte]);
            assert_eq!(conversation.answer(), Ok(None));
        }
        conversation.receive(&message[message.len() - 1..]);
        let answer = conversation.answer().expect("a message").expect("in full");
        assert!(answer.windows(HEALTH.len()).any(|part| part == HEALTH.as_bytes()));
        assert_eq!((conversation.answer(), conversation.end()), (Ok(None), Ok(())));
        for (bytes, code, text) in [
            (&message[..6], 3, "cut off"),
            (b"\0\0", 3, "cut off"),
            (b"\0\0\0\0\x01\xff", 3, "not one of reflection"),
            (b"\x01\0\0\0\x01a", 12, "compressed"),
            (b"\0\0\x01\0\x01", 8, "65536"),
        ] {
            let refused = refused(bytes);
            assert!(refused.code == code && refused.message.contains(text), "{refused:?}");
        }
    }
}
