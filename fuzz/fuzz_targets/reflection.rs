//! Any bytes as a conversation with server reflection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_grpc::fuzzing::conversation(bytes);
});
