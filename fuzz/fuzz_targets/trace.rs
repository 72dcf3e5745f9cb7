//! Any bytes as the headers in which a caller says its trace.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_tracecontext::fuzzing::headers(bytes);
});
