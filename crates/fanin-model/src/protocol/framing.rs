//! gRPC's wire format: message framing, `grpc-timeout`.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::status::{Code, Status};

pub(super) fn too_large(max: usize) -> Status {
    let max = fanin_config::format_size(max as u64);
    Status::new(Code::ResourceExhausted, format!("the request is larger than {max} (models.max_message)"))
}

/// Takes the message out of a request's body.
pub(super) fn unframed(body: &Bytes, max: usize) -> Result<Bytes, Status> {
    let Some((head, rest)) = body.split_first_chunk::<5>() else {
        return Err(Status::new(Code::Internal, "the request has no message"));
    };
    if head[0] != 0 {
        return Err(Status::new(Code::Unimplemented, "the message is compressed; send it uncompressed"));
    }
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > max {
        return Err(too_large(max));
    }
    if length != rest.len() {
        let message = format!("the message announces {length} bytes, {} arrived", rest.len());
        return Err(Status::new(Code::Internal, message));
    }
    Ok(body.slice(5..))
}

/// Encodes a message behind its five bytes of framing.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(length as u32);
    // Encoding fails only for lack of room, and the buffer has `encoded_len` bytes.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// Parses the header `grpc-timeout`: at most eight digits and a unit, as in `50m`. `None` if it is not such a text.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_is_parsed() {
        assert_eq!(parse_timeout("50m"), Some(Duration::from_millis(50)));
        assert_eq!(parse_timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for bad in ["", "m", "50", "50x", "999999999m", "-1m", "+1m", "1.5S", "5é"] {
            assert_eq!(parse_timeout(bad), None, "{bad}");
        }
    }

    #[test]
    fn incomplete_frames_are_rejected() {
        let message = |body: &'static [u8]| unframed(&Bytes::from_static(body), 10).expect_err("it is wrong").message;
        assert_eq!(unframed(&Bytes::from_static(b"\0\0\0\0\x02ab"), 10).expect("it is whole"), "ab");
        assert_eq!(message(b"\0\0"), "the request has no message");
        assert_eq!(message(b"\x01\0\0\0\0"), "the message is compressed; send it uncompressed");
        assert_eq!(message(b"\0\0\0\0\x03ab"), "the message announces 3 bytes, 2 arrived");
        assert_eq!(message(b"\0\xff\0\0\0ab"), "the request is larger than 10B (models.max_message)");
    }
}
