//! Any bytes as a configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_config::fuzzing::config(bytes);
});
