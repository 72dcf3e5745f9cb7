//! Any bytes as a PROXY header in front of a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_server::fuzzing::proxy_header(bytes);
});
