//! Any text as a program: no panic, no hang, limits hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = fanin_lang::fuzzing::run_source(text);
});
