//! Any bytes as `Cache-Control`, `CDN-Cache-Control` and `Range`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_server::fuzzing::caching(bytes);
});
