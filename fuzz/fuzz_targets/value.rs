//! Any bytes as a value of PostgreSQL, the first two as its type's number: refused, or JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((number, bytes)) = bytes.split_first_chunk() {
        fanin_upstream::fuzzing::value(u16::from_le_bytes(*number), bytes);
    }
});
