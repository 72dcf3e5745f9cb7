//! Values of PostgreSQL as JSON, from their binary format.
//!
//! Nothing is lost: numeric keeps every digit, timestamps every microsecond. What JSON does not have (NaN, infinity) is
//! the string that PostgreSQL itself writes into JSON. A type that is missing here is an error that says to cast it,
//! when the statement is prepared and not at its first row.

mod calendar;
mod digits;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fanin_json::{write_int, write_str};
use postgres_types::{Kind, Type};

use self::calendar::{date, interval, time, timestamp};
use self::digits::padded;

/// Most digits of a numeric after its point (PostgreSQL manual, 8.1.2).
const MAX_SCALE: usize = 16_383;

/// How the values of a column are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnReader {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Text,
    Json,
    Jsonb,
    Uuid,
    Bytea,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Inet,
    Mac,
    Char,
    Void,
    Array(Box<ColumnReader>),
}

impl ColumnReader {
    /// The reader of a type, `None` for one without a form in JSON.
    pub fn of(kind: &Type) -> Option<ColumnReader> {
        match kind.kind() {
            Kind::Array(element) => return Some(ColumnReader::Array(Box::new(ColumnReader::of(element)?))),
            Kind::Domain(base) => return ColumnReader::of(base),
            Kind::Enum(_) => return Some(ColumnReader::Text),
            _ => {}
        }
        Some(match *kind {
            Type::BOOL => ColumnReader::Bool,
            Type::INT2 => ColumnReader::Int2,
            Type::INT4 => ColumnReader::Int4,
            Type::INT8 => ColumnReader::Int8,
            Type::OID => ColumnReader::Oid,
            Type::FLOAT4 => ColumnReader::Float4,
            Type::FLOAT8 => ColumnReader::Float8,
            Type::NUMERIC => ColumnReader::Numeric,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::XML | Type::UNKNOWN => ColumnReader::Text,
            Type::JSON => ColumnReader::Json,
            Type::JSONB => ColumnReader::Jsonb,
            Type::UUID => ColumnReader::Uuid,
            Type::BYTEA => ColumnReader::Bytea,
            Type::DATE => ColumnReader::Date,
            Type::TIME => ColumnReader::Time,
            Type::TIMETZ => ColumnReader::TimeTz,
            Type::TIMESTAMP => ColumnReader::Timestamp,
            Type::TIMESTAMPTZ => ColumnReader::TimestampTz,
            Type::INTERVAL => ColumnReader::Interval,
            Type::INET | Type::CIDR => ColumnReader::Inet,
            Type::MACADDR | Type::MACADDR8 => ColumnReader::Mac,
            Type::CHAR => ColumnReader::Char,
            Type::VOID => ColumnReader::Void,
            // Types of extensions have no fixed number.
            _ if kind.name() == "citext" => ColumnReader::Text,
            _ => return None,
        })
    }

    /// Whether its values are JSON already, and passed on as they come.
    pub fn holds_json(&self) -> bool {
        match self {
            ColumnReader::Json | ColumnReader::Jsonb => true,
            ColumnReader::Array(element) => element.holds_json(),
            _ => false,
        }
    }

    /// Writes a value. `None` if the bytes are not what the type says, or if an array becomes longer than `most` bytes: a
    /// few bytes of a number may stand for thousands of digits.
    pub fn write(&self, bytes: &[u8], most: usize, out: &mut Vec<u8>) -> Option<()> {
        let mut from = Bytes(bytes);
        match self {
            ColumnReader::Bool => out.extend_from_slice(if from.u8()? != 0 { b"true" } else { b"false" }),
            ColumnReader::Int2 => write_int(out, from.i16()?.into()),
            ColumnReader::Int4 => write_int(out, from.i32()?.into()),
            ColumnReader::Int8 => write_int(out, from.i64()?),
            ColumnReader::Oid => write_int(out, from.u32()?.into()),
            ColumnReader::Float4 => {
                let value = f32::from_bits(from.u32()?);
                // The shortest digits of the f32, not of the f64.
                if value.is_finite() { plain(out, format_args!("{value:?}")) } else { no_number(value.into(), out) }
            }
            ColumnReader::Float8 => {
                let value = f64::from_bits(from.i64()? as u64);
                if fanin_json::write_float(out, value).is_err() {
                    no_number(value, out);
                }
            }
            ColumnReader::Numeric => numeric(&mut from, out)?,
            ColumnReader::Text => write_str(out, std::str::from_utf8(bytes).ok()?),
            ColumnReader::Json => out.extend_from_slice(bytes),
            // A version byte, then the text.
            ColumnReader::Jsonb => out.extend_from_slice(bytes.strip_prefix(&[1])?),
            ColumnReader::Uuid => {
                let value = u128::from_be_bytes(bytes.try_into().ok()?);
                let part = |shift: u32, bits: u32| value >> shift & ((1 << bits) - 1);
                let parts = (part(96, 32), part(80, 16), part(64, 16), part(48, 16), part(0, 48));
                quoted(
                    out,
                    format_args!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", parts.0, parts.1, parts.2, parts.3, parts.4),
                );
            }
            ColumnReader::Bytea => {
                out.push(b'"');
                out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
                out.push(b'"');
            }
            ColumnReader::Date => match from.i32()? {
                i32::MAX => out.extend_from_slice(b"\"infinity\""),
                i32::MIN => out.extend_from_slice(b"\"-infinity\""),
                days => {
                    out.push(b'"');
                    let before_christ = date(out, days.into());
                    out.extend_from_slice(if before_christ { b" BC\"" } else { b"\"" });
                }
            },
            ColumnReader::Time => {
                out.push(b'"');
                time(out, from.i64()?);
                out.push(b'"');
            }
            ColumnReader::TimeTz => {
                out.push(b'"');
                time(out, from.i64()?);
                // Seconds west of Greenwich.
                let east = -i64::from(from.i32()?);
                let size = east.abs();
                out.push(if east < 0 { b'-' } else { b'+' });
                padded(out, size / 3600, 2);
                out.push(b':');
                padded(out, size / 60 % 60, 2);
                out.push(b'"');
            }
            ColumnReader::Timestamp => timestamp(from.i64()?, b"\"", out),
            ColumnReader::TimestampTz => timestamp(from.i64()?, b"Z\"", out),
            ColumnReader::Interval => {
                let (micros, days, months) = (from.i64()?, from.i32()?, from.i32()?);
                out.push(b'"');
                interval(micros, days, months, out);
                out.push(b'"');
            }
            ColumnReader::Inet => inet(&mut from, out)?,
            ColumnReader::Mac => {
                let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                quoted(out, format_args!("{}", text.join(":")));
            }
            ColumnReader::Char => write_str(out, char::from(from.u8()?).encode_utf8(&mut [0; 4])),
            ColumnReader::Void => out.extend_from_slice(b"null"),
            ColumnReader::Array(element) => array(element, &mut from, most, out)?,
        }
        Some(())
    }
}

/// The rest of a value's bytes, big-endian.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn i16(&mut self) -> Option<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }
}

fn plain(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing into memory cannot fail.
    let _ = std::io::Write::write_fmt(out, text);
}

fn quoted(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.push(b'"');
    plain(out, text);
    out.push(b'"');
}

fn no_number(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(match value {
        f64::INFINITY => b"\"Infinity\"",
        f64::NEG_INFINITY => b"\"-Infinity\"",
        _ => b"\"NaN\"".as_slice(),
    });
}

/// Groups of four digits: their number, the power of 10,000 of the first, the sign, the digits after the point.
fn numeric(from: &mut Bytes<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (groups, weight, sign, scale) = (from.u16()?, i32::from(from.i16()?), from.u16()?, usize::from(from.u16()?));
    match sign {
        0x0000 => {}
        0x4000 => out.push(b'-'),
        0xC000 | 0xD000 | 0xF000 => {
            no_number(
                match sign {
                    0xC000 => f64::NAN,
                    0xD000 => f64::INFINITY,
                    _ => f64::NEG_INFINITY,
                },
                out,
            );
            return Some(());
        }
        _ => return None,
    }
    let digits = from.0.get(..2 * usize::from(groups))?;
    // Most digits after the point, and it bounds what a few bytes become.
    if scale > MAX_SCALE {
        return None;
    }
    if digits.as_chunks().0.iter().any(|pair| u16::from_be_bytes(*pair) > 9999) {
        return None;
    }
    // PostgreSQL sends no zeros at either end; other servers of its protocol may.
    let group = |power: i32| {
        let at = usize::try_from(weight - power).ok().and_then(|at| digits.get(2 * at..2 * at + 2));
        at.map_or(0, |pair| i64::from(u16::from_be_bytes([pair[0], pair[1]])))
    };
    match (0..=weight).rev().find(|power| group(*power) != 0) {
        None => out.push(b'0'),
        Some(first) => {
            write_int(out, group(first));
            for power in (0..first).rev() {
                padded(out, group(power), 4);
            }
        }
    }
    if scale > 0 {
        out.push(b'.');
        let end = out.len() + scale;
        let mut power = -1;
        while out.len() < end {
            padded(out, group(power), 4);
            power -= 1;
        }
        out.truncate(end);
    }
    Some(())
}

/// Family, bits of the network, whether it is a network, how many bytes, the bytes.
fn inet(from: &mut Bytes<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (_, bits, is_network, length) = (from.u8()?, from.u8()?, from.u8()?, from.u8()?);
    let (address, all) = match length {
        4 => (IpAddr::V4(Ipv4Addr::from(from.take::<4>()?)), 32),
        16 => (IpAddr::V6(Ipv6Addr::from(from.take::<16>()?)), 128),
        _ => return None,
    };
    if bits == all && is_network == 0 {
        quoted(out, format_args!("{address}"));
    } else {
        quoted(out, format_args!("{address}/{bits}"));
    }
    Some(())
}

/// Dimensions, whether any is NULL, the elements' type, each dimension's length and first index, the elements.
fn array(element: &ColumnReader, from: &mut Bytes<'_>, most: usize, out: &mut Vec<u8>) -> Option<()> {
    let (dimensions, _, _) = (from.i32()?, from.i32()?, from.u32()?);
    // PostgreSQL allows six dimensions.
    let lengths: Vec<usize> = match dimensions {
        0 => vec![0],
        1..=6 => (0..dimensions)
            .map(|_| {
                let length = usize::try_from(from.i32()?).ok()?;
                from.i32()?;
                Some(length)
            })
            .collect::<Option<_>>()?,
        _ => return None,
    };
    // Each element has a length of four bytes, and only an array without dimensions is empty. So no loop runs longer
    // than the bytes that have come.
    let elements = lengths.iter().try_fold(1_usize, |product, length| product.checked_mul(*length))?;
    if elements > from.0.len() / 4 || elements == 0 && dimensions > 0 {
        return None;
    }
    level(element, &lengths, from, most, out)
}

fn level(
    element: &ColumnReader,
    lengths: &[usize],
    from: &mut Bytes<'_>,
    most: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    let (length, inner) = lengths.split_first()?;
    out.push(b'[');
    for at in 0..*length {
        if at > 0 {
            out.push(b',');
        }
        if out.len() > most {
            return None;
        }
        if !inner.is_empty() {
            level(element, inner, from, most, out)?;
            continue;
        }
        match usize::try_from(from.i32()?) {
            Err(_) => out.extend_from_slice(b"null"),
            Ok(size) => {
                let (value, rest) = from.0.split_at_checked(size)?;
                from.0 = rest;
                element.write(value, most, out)?;
            }
        }
    }
    out.push(b']');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_bytes_are_no_value() {
        let mut out = Vec::new();
        for reader in [
            ColumnReader::Bool,
            ColumnReader::Int8,
            ColumnReader::Numeric,
            ColumnReader::Uuid,
            ColumnReader::TimestampTz,
            ColumnReader::Interval,
            ColumnReader::Inet,
            ColumnReader::Jsonb,
            ColumnReader::Array(Box::new(ColumnReader::Int4)),
        ] {
            assert_eq!(reader.write(&[], usize::MAX, &mut out), None, "{reader:?}");
        }
        let array = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0];
        assert_eq!(ColumnReader::Array(Box::new(ColumnReader::Int4)).write(&array, usize::MAX, &mut out), None);
    }

    #[test]
    fn lengths_are_checked_against_the_bytes() {
        let ints = ColumnReader::Array(Box::new(ColumnReader::Int4));
        let array = |lengths: &[i32], values: &[i32]| {
            let head = [i32::try_from(lengths.len()).unwrap(), 0, 23];
            let lengths = lengths.iter().flat_map(|length| [*length, 1]);
            let values = values.iter().flat_map(|value| [4, *value]);
            let bytes: Vec<u8> = head.into_iter().chain(lengths).chain(values).flat_map(i32::to_be_bytes).collect();
            let mut out = Vec::new();
            ints.write(&bytes, 1000, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(array(&[2, 1], &[7, 8]).as_deref(), Some("[[7],[8]]"));
        assert_eq!(array(&[], &[]).as_deref(), Some("[]"));
        // The first would be 2 billion empty lists.
        for lengths in
            [&[i32::MAX, 0][..], &[i32::MAX, i32::MAX, i32::MAX, i32::MAX, 0], &[0], &[-1], &[-1, -1], &[9], &[3, 3]]
        {
            assert_eq!(array(lengths, &[7, 8]), None, "{lengths:?}");
        }
        assert_eq!(array(&[500], &[77; 500]), None, "longer than 1000 bytes");
        // Two bytes for all digits after the point.
        let mut out = Vec::new();
        assert_eq!(ColumnReader::Numeric.write(&[0, 0, 0, 0, 0, 0, 0x40, 0], usize::MAX, &mut out), None);
    }
}
