//! Values of MySQL as JSON, from the binary format of prepared statements.

use std::fmt::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fanin_json::{write_int, write_str};
use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_async::{Column, Value};

/// The number of the binary character set.
const BINARY: u16 = 63;

/// How the values of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Number,
    Decimal,
    Text,
    Base64,
    Json,
    Bits,
    Date,
    Datetime,
    Timestamp,
    Time,
}

impl Reader {
    /// All readers.
    pub const ALL: [Reader; 10] = [
        Reader::Number,
        Reader::Decimal,
        Reader::Text,
        Reader::Base64,
        Reader::Json,
        Reader::Bits,
        Reader::Date,
        Reader::Datetime,
        Reader::Timestamp,
        Reader::Time,
    ];

    /// The reader of a column, or the name of its type if that has no form in JSON.
    pub fn of(column: &Column) -> Result<Reader, &'static str> {
        use ColumnType::*;
        Ok(match column.column_type() {
            MYSQL_TYPE_TINY | MYSQL_TYPE_SHORT | MYSQL_TYPE_INT24 | MYSQL_TYPE_LONG | MYSQL_TYPE_LONGLONG
            | MYSQL_TYPE_YEAR | MYSQL_TYPE_FLOAT | MYSQL_TYPE_DOUBLE | MYSQL_TYPE_NULL => Reader::Number,
            MYSQL_TYPE_DECIMAL | MYSQL_TYPE_NEWDECIMAL => Reader::Decimal,
            MYSQL_TYPE_JSON => Reader::Json,
            MYSQL_TYPE_BIT => Reader::Bits,
            MYSQL_TYPE_DATE | MYSQL_TYPE_NEWDATE => Reader::Date,
            MYSQL_TYPE_DATETIME | MYSQL_TYPE_DATETIME2 => Reader::Datetime,
            MYSQL_TYPE_TIMESTAMP | MYSQL_TYPE_TIMESTAMP2 => Reader::Timestamp,
            MYSQL_TYPE_TIME | MYSQL_TYPE_TIME2 => Reader::Time,
            MYSQL_TYPE_ENUM | MYSQL_TYPE_SET => Reader::Text,
            MYSQL_TYPE_GEOMETRY => return Err("geometry"),
            MYSQL_TYPE_VARCHAR
            | MYSQL_TYPE_VAR_STRING
            | MYSQL_TYPE_STRING
            | MYSQL_TYPE_TINY_BLOB
            | MYSQL_TYPE_MEDIUM_BLOB
            | MYSQL_TYPE_LONG_BLOB
            | MYSQL_TYPE_BLOB => {
                let named = ColumnFlags::ENUM_FLAG | ColumnFlags::SET_FLAG;
                match column.character_set() == BINARY && !column.flags().intersects(named) {
                    true => Reader::Base64,
                    false => Reader::Text,
                }
            }
            _ => return Err("a type that is not supported"),
        })
    }

    /// Writes a value. `None` if it is not what the column's type says.
    pub fn write(self, value: &Value, out: &mut Vec<u8>) -> Option<()> {
        match (self, value) {
            (_, Value::NULL) => out.extend_from_slice(b"null"),
            (Reader::Number, Value::Int(value)) => write_int(out, *value),
            (Reader::Number, Value::UInt(value)) => plain(out, format_args!("{value}")),
            // The shortest digits of the f32, not of the f64.
            (Reader::Number, Value::Float(value)) if value.is_finite() => plain(out, format_args!("{value:?}")),
            (Reader::Number, Value::Double(value)) => fanin_json::write_float(out, *value).ok()?,
            (Reader::Decimal, Value::Bytes(digits)) => decimal(digits, out)?,
            (Reader::Text, Value::Bytes(text)) => write_str(out, std::str::from_utf8(text).ok()?),
            (Reader::Base64, Value::Bytes(bytes)) => plain(out, format_args!("\"{}\"", STANDARD.encode(bytes))),
            (Reader::Json, Value::Bytes(json)) => out.extend_from_slice(json),
            (Reader::Bits, Value::Bytes(bits)) if bits.len() <= 8 => {
                let value = bits.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
                plain(out, format_args!("{value}"));
            }
            (Reader::Date, Value::Date(year, month, day, ..)) => {
                plain(out, format_args!("\"{year:04}-{month:02}-{day:02}\""));
            }
            (Reader::Datetime | Reader::Timestamp, Value::Date(year, month, day, hour, minute, second, micros)) => {
                plain(out, format_args!("\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"));
                fraction(out, *micros);
                // Sessions use UTC.
                out.extend_from_slice(if self == Reader::Timestamp { b"Z\"" } else { b"\"" });
            }
            (Reader::Time, Value::Time(negative, days, hours, minutes, seconds, micros)) => {
                let (sign, hours) = (if *negative { "-" } else { "" }, u64::from(*days) * 24 + u64::from(*hours));
                plain(out, format_args!("\"{sign}{hours:02}:{minutes:02}:{seconds:02}"));
                fraction(out, *micros);
                out.push(b'"');
            }
            _ => return None,
        }
        Some(())
    }
}

fn plain(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // A vector accepts everything.
    let _ = Bytes(out).write_fmt(text);
}

/// Fractional digits without trailing zeros.
fn fraction(out: &mut Vec<u8>, micros: u32) {
    if micros > 0 {
        plain(out, format_args!(".{}", format!("{micros:06}").trim_end_matches('0')));
    }
}

/// A decimal without the leading zeros that `zerofill` adds: JSON does not allow them.
fn decimal(digits: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (sign, rest) = match digits.strip_prefix(b"-") {
        Some(rest) => (&b"-"[..], rest),
        None => (&b""[..], digits),
    };
    let zeros =
        rest.iter().zip(rest.iter().skip(1)).take_while(|(zero, next)| **zero == b'0' && **next != b'.').count();
    let rest = &rest[zeros..];
    let mut parts = rest.splitn(2, |byte| *byte == b'.');
    if !parts.all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    out.extend_from_slice(sign);
    out.extend_from_slice(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reader: Reader, value: Value) -> Option<String> {
        let mut out = Vec::new();
        reader.write(&value, &mut out)?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn nothing_is_lost() {
        let bytes = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        for (reader, value, json) in [
            (Reader::Number, Value::UInt(u64::MAX), "18446744073709551615"),
            (Reader::Number, Value::Float(0.1), "0.1"),
            (Reader::Decimal, bytes("0.00"), "0.00"),
            (Reader::Decimal, bytes("-12.50"), "-12.50"),
            (Reader::Decimal, bytes("00012.50"), "12.50"),
            (Reader::Decimal, bytes("000"), "0"),
            (Reader::Bits, Value::Bytes(vec![1, 0]), "256"),
            (Reader::Base64, bytes("hi"), "\"aGk=\""),
            (Reader::Date, Value::Date(2024, 1, 2, 0, 0, 0, 0), "\"2024-01-02\""),
            (Reader::Timestamp, Value::Date(2024, 1, 2, 3, 4, 5, 500_000), "\"2024-01-02T03:04:05.5Z\""),
            (Reader::Datetime, Value::Date(2024, 1, 2, 3, 4, 5, 1), "\"2024-01-02T03:04:05.000001\""),
            (Reader::Time, Value::Time(true, 1, 2, 3, 4, 0), "\"-26:03:04\""),
            (Reader::Time, Value::Time(false, u32::MAX, 23, 0, 0, 0), "\"103079215103:00:00\""),
            (Reader::Text, Value::NULL, "null"),
        ] {
            assert_eq!(written(reader, value.clone()).as_deref(), Some(json), "{reader:?} {value:?}");
        }
        assert_eq!(written(Reader::Text, Value::Bytes(vec![0xff])), None);
        assert_eq!(written(Reader::Number, bytes("7")), None);
        for text in ["", "-", ".", ".5", "12.", "1.2.3", "1e5", "--1", "00.", "0x1"] {
            assert_eq!(written(Reader::Decimal, bytes(text)), None, "{text}");
        }
    }
}
