//! Any bytes as what a client sends over WebSocket, in pieces of several sizes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fanin_websocket::fuzzing::client(bytes);
});
