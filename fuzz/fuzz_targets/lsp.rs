//! Any bytes as what an editor sends to the language server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_lsp::fuzzing::messages(bytes);
});
