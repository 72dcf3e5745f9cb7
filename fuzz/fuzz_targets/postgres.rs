//! Any bytes as messages of a PostgreSQL server: the same in pieces of every size.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_upstream::fuzzing::messages(bytes);
});
