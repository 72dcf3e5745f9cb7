//! Any bytes as a compressed answer, the first as its encodings: bounded, and the same with pauses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_upstream::fuzzing::content_encoding(bytes);
});
