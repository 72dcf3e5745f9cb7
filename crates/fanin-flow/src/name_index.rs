//! Names that a client chose, by which something is found.

use std::borrow::Cow;
use std::collections::HashMap;

/// Up to this many names, comparing with all of them costs less than a hash table.
const FEW_NAMES: usize = 16;

/// Positions of names in a list. Whoever sends a request chooses its names, so a long list is looked up in a hash table with random keys.
#[derive(Default)]
pub(crate) struct NameIndex<'a>(HashMap<Cow<'a, str>, usize>);

impl<'a> NameIndex<'a> {
    /// The position of a name in `known`. `None` if it is new: it is then added at the end of `known`.
    pub fn find_or_add<'k>(
        &mut self,
        name: &str,
        known: impl ExactSizeIterator<Item = &'k Cow<'a, str>>,
    ) -> Option<usize>
    where
        'a: 'k,
    {
        let count = known.len();
        if count < FEW_NAMES {
            let mut known = known;
            return known.position(|other| *other == name);
        }
        if self.0.is_empty() {
            self.0.extend(known.cloned().zip(0..));
        }
        let found = self.0.get(name).copied();
        if found.is_none() {
            self.0.insert(Cow::Owned(name.to_owned()), count);
        }
        found
    }
}
