//! Any bytes as the query of a request, read as flows read it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_flow::fuzzing::query(bytes);
});
