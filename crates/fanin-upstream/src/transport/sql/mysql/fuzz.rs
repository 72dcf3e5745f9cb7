//! Writes any value as JSON, for [`crate::fuzzing`]. Packets are read by `mysql_async`.

use bytes::Bytes;
use fanin_json::Doc;
use mysql_async::Value;

use super::values::Reader;

/// Writes a value with a reader. The first byte chooses the reader, the second the kind of value, the others are the
/// value. Whether it is one of this reader.
///
/// # Panics
/// If the output is not JSON.
pub fn value(bytes: &[u8]) -> bool {
    let Some((&[reader, kind], bytes)) = bytes.split_first_chunk() else { return false };
    let reader = Reader::ALL[usize::from(reader) % Reader::ALL.len()];
    let Some(value) = of_kind(kind, bytes) else { return false };
    let mut out = Vec::new();
    if reader.write(&value, &mut out).is_none() {
        return false;
    }
    let is_json = Doc::parse(Bytes::from(out.clone()), 64).is_ok();
    // JSON is passed on as it comes, and whoever reads the answer checks it.
    assert!(is_json || reader == Reader::Json, "{reader:?} {value:?}: {}", out.escape_ascii());
    true
}

fn of_kind(kind: u8, bytes: &[u8]) -> Option<Value> {
    let number = || bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let micros = |at: usize| bytes.get(at..at + 4).and_then(|micros| Some(u32::from_be_bytes(micros.try_into().ok()?)));
    Some(match kind % 8 {
        0 => Value::NULL,
        1 => Value::Int(number()? as i64),
        2 => Value::UInt(number()?),
        3 => Value::Float(f32::from_bits((number()? >> 32) as u32)),
        4 => Value::Double(f64::from_bits(number()?)),
        5 => {
            let (&[high, low, month, day, hour, minute, second], _) = bytes.split_first_chunk()?;
            Value::Date(u16::from_be_bytes([high, low]), month, day, hour, minute, second, micros(7)?)
        }
        6 => {
            let (&[sign, hours, minutes, seconds], _) = bytes.split_first_chunk()?;
            Value::Time(sign & 1 == 1, micros(4)?, hours, minutes, seconds, micros(8)?)
        }
        _ => Value::Bytes(bytes.to_vec()),
    })
}
