//! Any bytes as the lines of a header in which proxies name the client.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_server::fuzzing::forwarded(bytes);
});
