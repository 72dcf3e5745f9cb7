//! Fanin's own access log: `{"time":"2026-01-31T15:04:05.123Z","duration_ms":1.234,…,"status":200,…}`.

use serde::Deserialize;

use super::{Broken, Entry, stamp};

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    time: Option<&'a str>,
    duration_ms: Option<f64>,
    status: Option<u16>,
}

pub(super) fn parse(line: &[u8]) -> Result<Entry, Broken> {
    if line.first() != Some(&b'{') {
        return Err(Broken::Shape);
    }
    let fields: Fields<'_> = serde_json::from_slice(line).map_err(|_| Broken::Shape)?;
    let time = fields.time.ok_or(Broken::Stamp)?;
    let (stamp, rest) = stamp::iso(time.as_bytes()).ok_or(Broken::Stamp)?;
    if !rest.is_empty() {
        return Err(Broken::Stamp);
    }
    let millis = fields.duration_ms.ok_or(Broken::NoLatency)?;
    // JSON has no NaN and no infinity. The cast saturates; what is too long is refused by the caller.
    if millis < 0.0 {
        return Err(Broken::Latency);
    }
    Ok(Entry { stamp, length: (millis * 1000.0).round() as u64, status: fields.status })
}
