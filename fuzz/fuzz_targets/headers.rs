//! Any bytes as header lines of a request, read as flows read them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_flow::fuzzing::headers(bytes);
});
