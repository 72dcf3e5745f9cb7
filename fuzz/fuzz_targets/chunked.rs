//! Any bytes as a chunked body: the same in pieces of every size; and as what chunks carry.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_upstream::fuzzing::chunked(bytes);
});
