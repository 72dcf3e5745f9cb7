//! Names and short constants of programs, kept for the life of the process.
//!
//! All workers clone a string of a program each time that it is evaluated. Counting the references costs two
//! atomic operations and makes the workers contend for a cache line. A string that is never freed is not
//! counted. What is kept is bounded: each text once, short ones only, and [`MOST`] bytes in all;
//! everything else is counted as usual. So a reload keeps only what is new in it.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use arcstr::ArcStr;

/// Longest text that is kept.
const LONGEST: usize = 256;

/// Most bytes that are kept.
const MOST: usize = 4 << 20;

#[derive(Default)]
struct Kept {
    texts: HashSet<ArcStr>,
    bytes: usize,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

impl Kept {
    fn intern(&mut self, text: &str) -> ArcStr {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let made = ArcStr::from(text);
        let bytes = text.len() + 64;
        if text.len() <= LONGEST && self.bytes + bytes <= MOST {
            made.leak();
            self.bytes += bytes;
            self.texts.insert(made.clone());
        }
        made
    }
}

/// A string of a program.
pub(crate) fn intern(text: &str) -> ArcStr {
    // A panic elsewhere cannot leave the table half changed.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).intern(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_kept_once_and_a_long_one_is_counted() {
        let (one, two) = (intern("some name"), intern("some name"));
        assert!(ArcStr::ptr_eq(&one, &two));
        assert!(ArcStr::is_static(&one));
        let long = "x".repeat(LONGEST + 1);
        assert!(!ArcStr::is_static(&intern(&long)));
        assert_eq!(intern(&long).as_str(), long);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept { texts: HashSet::new(), bytes: MOST - 100 };
        assert!(ArcStr::is_static(&kept.intern("first")));
        assert!(!ArcStr::is_static(&kept.intern("second")));
        assert!(kept.bytes <= MOST);
    }
}
