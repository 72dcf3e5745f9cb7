//! What clients send to reflection, for the fuzz target in `fuzz/` and its bounded run in the tests.

use std::sync::{Arc, OnceLock};

use crate::{Conversation, HEALTH, REFLECTION, Reflector};

/// Reads any bytes as a conversation. Whether some of them were answered.
///
/// # Panics
/// On a defect: an answer depends on how the bytes were cut.
pub fn conversation(bytes: &[u8]) -> bool {
    static REFLECTOR: OnceLock<Arc<Reflector>> = OnceLock::new();
    let reflector = REFLECTOR.get_or_init(|| {
        let services = [HEALTH, REFLECTION[0], REFLECTION[1]];
        Arc::new(Reflector::new(&services, &[]).expect("the descriptions of this crate are valid"))
    });
    let answers = |cuts: usize| {
        let mut conversation = Conversation::new(reflector.clone());
        let mut answers = Vec::new();
        for part in bytes.chunks(cuts) {
            conversation.receive(part);
            loop {
                match conversation.answer() {
                    Ok(Some(answer)) => answers.push(answer),
                    Ok(None) => break,
                    Err(refused) => return (answers, Err(refused)),
                }
            }
        }
        let end = conversation.end();
        (answers, end)
    };
    let whole = answers(bytes.len().max(1));
    assert_eq!(whole, answers(3));
    !whole.0.is_empty()
}
