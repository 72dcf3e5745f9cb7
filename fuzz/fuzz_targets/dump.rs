//! Any bytes as a file with recorded requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_trace::fuzzing::dump(bytes);
});
