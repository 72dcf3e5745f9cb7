//! Any bytes as a ModelInferRequest: a look at it says what the decoder says.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_model::fuzzing::message(bytes);
});
