//! Any bytes as requests over HTTP/1.1: what the server reads is what the bytes say, in pieces of every size.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_server::fuzzing::requests(bytes);
});
