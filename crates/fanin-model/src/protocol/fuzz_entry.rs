//! The protocol's readers, for [`crate::fuzzing`].

use bytes::Bytes;

use super::framing::unframed;
use super::json_body::JsonRequest;
use super::request_head::parse_head;
use super::{proto, tensor_codec};
use crate::Tensor;

/// What a look at a message says, which is broken or says what the decoder says.
///
/// # Panics
/// If it says something else.
pub(crate) fn check_head(message: &[u8], model: &str, version: &str, rows: Option<i64>) {
    let Some(peek) = parse_head(message) else { return };
    assert_eq!((peek.model, peek.version), (model, version));
    assert_eq!(peek.rows, rows.map_or(1, |rows| usize::try_from(rows).unwrap_or(1)));
}

/// Takes the message out of a request's body. Whether it is whole.
///
/// # Panics
/// If the message is not what follows its length.
pub(crate) fn frame(bytes: &[u8], max: usize) -> bool {
    let Ok(message) = unframed(&Bytes::copy_from_slice(bytes), max) else { return false };
    let (prefix, rest) = bytes.split_at(5);
    assert!(message == rest && message.len() <= max && prefix[0] == 0, "{prefix:?}");
    assert_eq!(prefix[1..], (message.len() as u32).to_be_bytes());
    true
}

pub(crate) fn inputs(request: &mut proto::ModelInferRequest) -> Result<Vec<Tensor>, String> {
    tensor_codec::inputs(request).map(|(inputs, _)| inputs)
}

pub(crate) fn body(bytes: Bytes, length: usize) -> Result<Vec<Tensor>, String> {
    JsonRequest::read(bytes, length).map(|request| request.inputs)
}
