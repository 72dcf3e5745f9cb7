//! Request head parsing: model, version and number of rows of an encoded ModelInferRequest.
//!
//! Admission needs no more than that, so an overloaded server refuses a request without decoding its tensors.

/// The part of a ModelInferRequest from which its computing time is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestHead<'a> {
    pub model: &'a str,
    pub version: &'a str,
    /// First dimension of the first input.
    pub rows: usize,
}

/// Parses the head of a message; `None` if only the full decoder can judge it.
pub(super) fn parse_head(mut message: &[u8]) -> Option<RequestHead<'_>> {
    let mut found = RequestHead { rows: 1, ..RequestHead::default() };
    let mut is_first = true;
    while !message.is_empty() {
        let (field, bytes) = field(&mut message)?;
        match field {
            1 => found.model = std::str::from_utf8(bytes).ok()?,
            2 => found.version = std::str::from_utf8(bytes).ok()?,
            5 if is_first => {
                is_first = false;
                found.rows = rows(bytes)?;
            }
            _ => {}
        }
    }
    Some(found)
}

/// What it takes to decode a message, in bytes. Raw tensors are not copied, so only their number counts. It looks no further than `most`.
pub(super) fn decoding_cost(mut message: &[u8], most: usize) -> usize {
    const RAW_INPUT_CONTENTS: u64 = 7;
    const FIELD: usize = 16;
    let mut cost = 0;
    while !message.is_empty() && cost <= most {
        let rest = message.len();
        match field(&mut message) {
            Some((RAW_INPUT_CONTENTS, _)) => cost += FIELD,
            Some((_, bytes)) => cost += FIELD + bytes.len(),
            // Only the decoder can judge what follows.
            None => return cost + rest,
        }
    }
    cost
}

/// The first dimension of an input tensor.
fn rows(mut tensor: &[u8]) -> Option<usize> {
    while !tensor.is_empty() {
        if let (3, mut shape) = field(&mut tensor)? {
            // A negative dimension is refused when the tensor is decoded.
            return Some(usize::try_from(varint(&mut shape)? as i64).unwrap_or(1));
        }
    }
    Some(1)
}

/// The next field: its number and its bytes. A varint is returned undecoded.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let key = varint(rest)?;
    let length = match key & 7 {
        0 => {
            let before = *rest;
            varint(rest)?;
            return Some((key >> 3, &before[..before.len() - rest.len()]));
        }
        1 => 8,
        2 => usize::try_from(varint(rest)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some((key >> 3, bytes))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::proto::ModelInferRequest;
    use super::super::proto::model_infer_request::InferInputTensor;
    use super::*;

    fn request() -> ModelInferRequest {
        let input = |name: &str, shape: &[i64]| InferInputTensor {
            name: name.to_owned(),
            datatype: "FP64".to_owned(),
            shape: shape.to_vec(),
            ..Default::default()
        };
        ModelInferRequest {
            model_name: "spam".to_owned(),
            model_version: "3".to_owned(),
            id: "seven".to_owned(),
            inputs: vec![input("a", &[300, 4]), input("b", &[300])],
            raw_input_contents: vec![vec![1; 9600].into(), vec![2; 2400].into()],
            ..Default::default()
        }
    }

    #[test]
    fn it_says_what_the_decoder_says() {
        let mut request = request();
        assert_eq!(parse_head(&request.encode_to_vec()), Some(RequestHead { model: "spam", version: "3", rows: 300 }));
        request.inputs.clear();
        request.model_version.clear();
        assert_eq!(parse_head(&request.encode_to_vec()), Some(RequestHead { model: "spam", version: "", rows: 1 }));
        assert_eq!(parse_head(&[]), Some(RequestHead { model: "", version: "", rows: 1 }));
    }

    #[test]
    fn decoding_costs_what_is_not_raw() {
        let mut request = request();
        assert!(decoding_cost(&request.encode_to_vec(), 1 << 20) < 200);
        request.raw_input_contents = vec![bytes::Bytes::new(); 10_000];
        let cost = decoding_cost(&request.encode_to_vec(), 1000);
        assert!((1001..1100).contains(&cost), "{cost}");
        request.raw_input_contents.clear();
        request.id = "x".repeat(5000);
        assert!(decoding_cost(&request.encode_to_vec(), 1000) > 5000);
        // A group, which the decoder skips.
        let group = [b"\x73\x74", &request.encode_to_vec()[..]].concat();
        assert!(decoding_cost(&group, 1 << 20) > 5000);
    }

    #[test]
    fn unreadable_messages_are_left_to_the_decoder() {
        let message = request().encode_to_vec();
        // A truncated message parses as a shorter one or not at all; it never panics.
        for end in 0..message.len() {
            let _ = parse_head(&message[..end]);
        }
        for broken in [&[0xff; 12][..], b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x0a\x02\xff\xfe", b"\x0b"] {
            assert_eq!(parse_head(broken), None, "{broken:?}");
        }
        // A shape that is not packed, and a negative one.
        assert_eq!(parse_head(b"\x2a\x04\x18\x05\x18\x02").map(|it| it.rows), Some(5));
        let mut negative = request();
        negative.inputs[0].shape = vec![-1, 4];
        assert_eq!(parse_head(&negative.encode_to_vec()).map(|it| it.rows), Some(1));
    }
}
