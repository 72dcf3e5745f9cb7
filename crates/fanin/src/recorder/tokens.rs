//! One-time names for full records, which the admin pages give out.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Further ones replace the oldest.
const MOST: usize = 64;
/// How long one can be used.
const VALID: Duration = Duration::from_secs(60);

/// Names that have not been used.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<VecDeque<(String, Instant)>>);

impl Tokens {
    pub(super) fn make(&self) -> String {
        let token = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tokens.len() >= MOST {
            tokens.pop_front();
        }
        tokens.push_back((token.clone(), Instant::now() + VALID));
        token
    }

    /// Whether this is one that has not been used. It is used then.
    pub(super) fn spend(&self, token: &str) -> bool {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        tokens.retain(|(_, end)| *end > now);
        match tokens.iter().position(|(one, _)| one == token) {
            Some(at) => tokens.remove(at).is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_can_be_used_once() {
        let tokens = Tokens::default();
        let one = tokens.make();
        assert!(!tokens.spend("other"));
        assert!(tokens.spend(&one));
        assert!(!tokens.spend(&one));
        let all: Vec<String> = (0..=MOST).map(|_| tokens.make()).collect();
        assert!(!tokens.spend(&all[0]));
        assert!(tokens.spend(&all[1]));
    }
}
