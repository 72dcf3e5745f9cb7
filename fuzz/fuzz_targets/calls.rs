//! Any bytes as a body of gRPC, gRPC-Web and Connect, and as the query of a GET.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_server::fuzzing::calls(bytes);
});
