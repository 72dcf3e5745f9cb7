//! Any bytes as the id of the last event that a client has.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_push::fuzzing::event_id(bytes);
});
