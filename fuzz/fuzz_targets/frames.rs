//! Any bytes as gRPC's messages, of an answer and of a request to a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_upstream::fuzzing::frames(bytes);
    fanin_model::fuzzing::frame(bytes);
});
