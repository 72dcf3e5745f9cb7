//! Any bytes as a form of a request: its content type, and its body, read as flows read it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_flow::fuzzing::form(bytes);
});
