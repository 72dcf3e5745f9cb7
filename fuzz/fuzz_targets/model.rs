//! Any bytes as a model's file: refused, or computed the same alone and together.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_model::fuzzing::model(bytes);
});
