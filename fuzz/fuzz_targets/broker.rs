//! Any bytes as a message of another instance from a broker.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_broker::fuzzing::message(bytes);
});
