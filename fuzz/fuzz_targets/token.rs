//! Any bytes as a token of a client, and as the keys of an issuer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_auth::fuzzing::token_or_keys(bytes);
});
