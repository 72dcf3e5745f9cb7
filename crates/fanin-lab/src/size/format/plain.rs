//! The plain form: `15:04:00 400 ms GET /vacancies`. A date before the time, a fraction of the second, and another unit
//! are understood.

use super::{Broken, Entry, Number, Unit, stamp};

pub(super) fn parse(line: &[u8]) -> Result<Entry, Broken> {
    let (stamp, rest) = stamp::clock(line).or_else(|| stamp::iso(line)).ok_or(Broken::Shape)?;
    let [b' ' | b'\t', ..] = rest else { return Err(Broken::Stamp) };
    let (number, rest) = Number::prefix(rest.trim_ascii_start()).ok_or(Broken::NoLatency)?;
    let rest = rest.trim_ascii_start();
    let word = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let unit = match &rest[..word] {
        b"ms" => Unit::Ms,
        b"s" => Unit::S,
        b"us" => Unit::Us,
        micro if micro == "µs".as_bytes() || micro == "μs".as_bytes() => Unit::Us,
        _ => return Err(Broken::Latency),
    };
    Ok(Entry { stamp, length: number.micros(unit), status: None })
}
