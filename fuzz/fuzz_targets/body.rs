//! Any bytes as an infer over HTTP, and as a flow's question: tensors are the same in all their forms.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_model::fuzzing::json_request(bytes);
});
