//! Any bytes as an access log that `fanin size` reads.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_lab::fuzzing::access_log(bytes);
});
