//! Any bytes as a value of MySQL, the first two as its reader and its kind: refused, or JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_upstream::fuzzing::mysql_value(bytes);
});
