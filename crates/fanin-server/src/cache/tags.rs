//! Tags of kept responses, and purging by them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Tags of a response, in its own header, which is not sent.
pub(crate) const TAGS: HeaderName = HeaderName::from_static("cache-tag");
/// Tags that a response purges, in its own header, which is not sent.
pub(super) const PURGE: HeaderName = HeaderName::from_static("cache-purge");

/// Most tags of a response that count.
const MOST_TAGS: usize = 128;
/// Most purged tags that are remembered one by one. With more, everything that has tags is purged.
const MOST_PURGED: usize = 1 << 16;

/// When which tag was purged. Kept responses have a time of their own and ask here before they are sent, so a purge costs the same
/// however much is kept.
#[derive(Debug)]
pub(super) struct Purges {
    /// The number of the last purge.
    last: AtomicU64,
    purged: RwLock<Purged>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Purged {
    /// The number of the last purge of each tag.
    tags: HashMap<u64, u64>,
    /// Whatever has tags and is not younger is purged.
    all: u64,
}

impl Purges {
    pub(super) fn new() -> Purges {
        Purges { last: AtomicU64::new(0), purged: RwLock::default(), hasher: RandomState::new() }
    }

    /// The present time, by the number of purges.
    pub(super) fn now(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The tags in a response's header, as they are kept.
    pub(super) fn tags(&self, headers: &HeaderMap) -> Box<[u64]> {
        let all = split(headers, &TAGS).take(MOST_TAGS);
        all.map(|tag| self.hasher.hash_one(tag)).collect()
    }

    /// Purges everything with one of these tags that was asked for before.
    pub(super) fn purge<'t>(&self, tags: impl Iterator<Item = &'t [u8]>) -> usize {
        let mut purged = self.purged.write().unwrap_or_else(PoisonError::into_inner);
        let number = self.last.load(Ordering::Relaxed) + 1;
        let mut count = 0;
        for tag in tags {
            count += 1;
            if purged.tags.len() >= MOST_PURGED {
                purged.tags.clear();
                purged.all = number;
            }
            purged.tags.insert(self.hasher.hash_one(tag), number);
        }
        // After the table, so that whoever sees the number finds the tags.
        self.last.store(number, Ordering::Release);
        count
    }

    /// Whether something with these tags, made at this time, has been purged since.
    pub(super) fn is_purged(&self, tags: &[u64], made: u64) -> bool {
        if tags.is_empty() || self.now() <= made {
            return false;
        }
        let purged = self.purged.read().unwrap_or_else(PoisonError::into_inner);
        purged.all > made || tags.iter().any(|tag| purged.tags.get(tag).is_some_and(|number| *number > made))
    }
}

/// The tags in a header: separated by commas or spaces.
pub(super) fn split<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    let lines = headers.get_all(name.clone()).iter().map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.split(|byte| matches!(byte, b',' | b' ' | b'\t'))).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(line: &str) -> HeaderMap {
        HeaderMap::from_iter([(TAGS, HeaderValue::from_str(line).unwrap())])
    }

    #[test]
    fn a_purge_reaches_what_was_made_before_and_has_the_tag() {
        let purges = Purges::new();
        let tags = purges.tags(&headers("product-7, shop  all"));
        assert_eq!(tags.len(), 3);
        let before = purges.now();
        assert!(!purges.is_purged(&tags, before));
        assert_eq!(purges.purge([&b"product-8"[..]].into_iter()), 1);
        assert!(!purges.is_purged(&tags, before));
        purges.purge([&b"shop"[..]].into_iter());
        assert!(purges.is_purged(&tags, before));
        assert!(!purges.is_purged(&tags, purges.now()), "made since");
        assert!(!purges.is_purged(&[], before));
    }

    #[test]
    fn many_purges_cost_bounded_memory_and_forget_nothing() {
        let purges = Purges::new();
        let tags = purges.tags(&headers("first"));
        let other = purges.tags(&headers("other"));
        let before = purges.now();
        purges.purge([&b"first"[..]].into_iter());
        for number in 0..MOST_PURGED {
            purges.purge([number.to_string().as_bytes()].into_iter());
        }
        assert!(purges.purged.read().unwrap().tags.len() <= MOST_PURGED);
        assert!(purges.is_purged(&tags, before));
        assert!(purges.is_purged(&other, before), "more than needed, never less");
        assert!(!purges.is_purged(&other, purges.now()));
    }
}
