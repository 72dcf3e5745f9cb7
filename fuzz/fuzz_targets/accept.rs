//! Any bytes as the encodings and the entity tags that a client accepts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_server::fuzzing::accept(bytes);
});
