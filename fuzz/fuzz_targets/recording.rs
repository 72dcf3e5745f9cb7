//! Any bytes as a recording, and as what secrets are removed from.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_recording::fuzzing::file(bytes);
    fanin_recording::fuzzing::scrub(bytes);
});
