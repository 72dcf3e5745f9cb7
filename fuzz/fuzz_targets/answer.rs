//! Any bytes as an answer over HTTP/1.1: the same in pieces of every size.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_upstream::fuzzing::answer(bytes);
});
