//! Any bytes as the certificate of a client.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_tls::fuzzing::client_certificate(bytes);
});
