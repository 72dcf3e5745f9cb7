//! Any bytes as the input of the language server.

use std::path::Path;
use std::sync::mpsc::channel;

use fanin_config::Editing;
use fanin_flow::UpstreamDescription;

use crate::server::{MISTAKE, run};
use crate::{Checked, Project, wire};

/// Finds nothing: only what the server does itself is tried.
struct Nothing;

impl Project for Nothing {
    fn check(&self, _: &Path, _: bool, _: &Editing) -> Checked {
        Checked::default()
    }

    fn describe(&self, _: &Path, _: &Editing) -> Vec<UpstreamDescription> {
        Vec::new()
    }
}

/// Handles all messages. Whether the editor has ended the server as it should.
pub fn messages(mut bytes: &[u8]) -> bool {
    let (sender, input) = channel();
    // Memory can always be read, and the other end is there.
    while let Ok(Some(one)) = wire::read(&mut bytes) {
        drop(sender.send(Ok(Some(one))));
    }
    drop(sender.send(Ok(None)));
    let mut output = Vec::new();
    let ended = run(&Nothing, &input, &mut output);
    assert!(!String::from_utf8_lossy(&output).contains(MISTAKE), "a request has panicked");
    ended.is_ok()
}
