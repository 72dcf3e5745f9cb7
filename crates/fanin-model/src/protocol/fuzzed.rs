//! The protocol's readers, for [`crate::fuzzing`].

use bytes::Bytes;

use super::body::Asked;
use super::peek::peek;
use super::{convert, proto};
use crate::Tensor;

/// What a look at a message says, which is broken or says what the decoder says.
///
/// # Panics
/// If it says something else.
pub(crate) fn peeks_alike(message: &[u8], model: &str, version: &str, rows: Option<i64>) {
    let Some(peek) = peek(message) else { return };
    assert_eq!((peek.model, peek.version), (model, version));
    assert_eq!(peek.rows, rows.map_or(1, |rows| usize::try_from(rows).unwrap_or(1)));
}

pub(crate) fn inputs(request: &mut proto::ModelInferRequest) -> Result<Vec<Tensor>, String> {
    convert::inputs(request).map(|(inputs, _)| inputs)
}

pub(crate) fn body(bytes: Bytes, length: usize) -> Result<Vec<Tensor>, String> {
    let asked = Asked::read(bytes, length)?;
    asked.outputs()?;
    Ok(asked.inputs)
}
