//! Any bytes as the cookies of a request, read as flows read it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_flow::fuzzing::cookies(bytes);
});
