//! Any bytes as messages of gRPC methods that routes serve, and as the JSON of such messages, held against the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_upstream::fuzzing::transcode(bytes);
});
