//! Dicts: entries in order of insertion; an index only once there are more than a few.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use arcstr::ArcStr;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::drop::{drop_pairs, drop_values, is_long, is_nested};
use super::list::MutationGuard;
use super::{Value, compare};
use crate::error::Stop;

/// Up to this many entries are searched one by one, which is faster than hashing.
const FEW: usize = 8;

/// The entries of a dict. Keys are decided, hashable values; values may be pending.
#[derive(Debug, Default, Clone)]
pub struct Map {
    /// Dicts of one entry are common (arguments of calls), so they take no room of their own.
    entries: SmallVec<[(Value, Value); 1]>,
    /// Positions in `entries` by the hash of the key; empty while there are few.
    index: Option<Box<HashTable<(u64, u32)>>>,
}

impl Map {
    /// Nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: SmallVec::new(), index: None }
    }

    /// Room for `capacity` entries.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { entries: SmallVec::with_capacity(capacity), index: None }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries in order of insertion.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Value, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Entry at a position.
    #[must_use]
    pub fn at(&self, position: usize) -> Option<(&Value, &Value)> {
        self.entries.get(position).map(|(key, value)| (key, value))
    }

    /// The value of a string key.
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<&Value> {
        let position = match &self.index {
            None => self.entries.iter().position(|(k, _)| matches!(k, Value::Str(text) if text.as_str() == key)),
            Some(index) => {
                let hash = compare::hash_str(key);
                index
                    .find(hash, |(h, at)| {
                        *h == hash && matches!(&self.entries[*at as usize].0, Value::Str(text) if text.as_str() == key)
                    })
                    .map(|(_, at)| *at as usize)
            }
        };
        position.map(|position| &self.entries[position].1)
    }

    /// Position of a key.
    ///
    /// # Errors
    /// If the key is not hashable (a list, a dict), or holds something pending.
    pub fn position(&self, key: &Value) -> Result<Option<usize>, Stop> {
        match (&self.index, key) {
            (None, Value::Str(text)) => {
                Ok(self.entries.iter().position(|(k, _)| matches!(k, Value::Str(other) if other == text)))
            }
            (None, Value::Int(int)) => {
                let same = |k: &Value| match k {
                    Value::Int(other) => other == int,
                    Value::Float(_) => same(key, k),
                    _ => false,
                };
                Ok(self.entries.iter().position(|(k, _)| same(k)))
            }
            (None, _) => {
                compare::hash(key)?;
                for (position, (other, _)) in self.entries.iter().enumerate() {
                    if compare::equal(key, other)? {
                        return Ok(Some(position));
                    }
                }
                Ok(None)
            }
            (Some(index), _) => {
                let hash = compare::hash(key)?;
                Ok(index
                    .find(hash, |(h, at)| *h == hash && same(key, &self.entries[*at as usize].0))
                    .map(|(_, at)| *at as usize))
            }
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If the key is not hashable.
    pub fn get(&self, key: &Value) -> Result<Option<&Value>, Stop> {
        Ok(self.position(key)?.map(|position| &self.entries[position].1))
    }

    /// Sets the value of a key: in its place if it is there, at the end if not. Gives the old value.
    ///
    /// # Errors
    /// If the key is not hashable.
    pub fn insert(&mut self, key: Value, value: Value) -> Result<Option<Value>, Stop> {
        self.put(key, |key| key, value)
    }

    /// The same with copies of both; the key is copied only where it is new.
    ///
    /// # Errors
    /// If the key is not hashable.
    pub(crate) fn insert_copy(&mut self, key: &Value, value: &Value) -> Result<Option<Value>, Stop> {
        self.put(key, Value::clone, value.clone())
    }

    #[inline]
    fn put<K: std::borrow::Borrow<Value>>(
        &mut self,
        key: K,
        own: fn(K) -> Value,
        value: Value,
    ) -> Result<Option<Value>, Stop> {
        if let Some(index) = &mut self.index {
            let hash = compare::hash(key.borrow())?;
            // Hashable values that are ready compare without failing.
            let entries = &self.entries;
            let found = index.find(hash, |(h, at)| *h == hash && same(key.borrow(), &entries[*at as usize].0));
            if let Some((_, at)) = found {
                return Ok(Some(std::mem::replace(&mut self.entries[*at as usize].1, value)));
            }
            index.insert_unique(hash, (hash, self.entries.len() as u32), |(hash, _)| *hash);
            self.entries.push((own(key), value));
            return Ok(None);
        }
        if let Some(position) = self.position(key.borrow())? {
            return Ok(Some(std::mem::replace(&mut self.entries[position].1, value)));
        }
        self.entries.push((own(key), value));
        if self.entries.len() > FEW {
            self.build_index();
        }
        Ok(None)
    }

    #[cold]
    fn build_index(&mut self) {
        let mut index = HashTable::with_capacity(self.entries.len() * 2);
        for (at, (key, _)) in self.entries.iter().enumerate() {
            // Every key was hashed when it was inserted.
            if let Ok(hash) = compare::hash(key) {
                index.insert_unique(hash, (hash, at as u32), |(hash, _): &(u64, u32)| *hash);
            }
        }
        self.index = Some(Box::new(index));
    }

    /// Takes a key out, keeping the order of the others.
    ///
    /// # Errors
    /// If the key is not hashable.
    pub fn remove(&mut self, key: &Value) -> Result<Option<(Value, Value)>, Stop> {
        let Some(position) = self.position(key)? else { return Ok(None) };
        let entry = self.entries.remove(position);
        if self.entries.len() <= FEW {
            self.index = None;
        } else if let Some(index) = &mut self.index {
            // What was behind it has moved up by one.
            index.retain(|(_, at)| {
                let here = *at as usize;
                *at -= u32::from(here > position);
                here != position
            });
        }
        Ok(Some(entry))
    }

    /// Takes the entries out.
    pub fn drain(&mut self) -> Vec<(Value, Value)> {
        self.index = None;
        std::mem::take(&mut self.entries).into_vec()
    }
}

/// Whether two keys are equal. Both are hashable and there, so that comparing them cannot fail.
#[inline]
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        _ => compare::equal(a, b).unwrap_or(false),
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if is_long(self.entries.len()) {
            drop_pairs(std::mem::take(&mut self.entries).into_vec());
        } else if self.entries.iter().any(|(key, value)| is_nested(value) || is_nested(key)) {
            drop_values(self.entries.drain(..).flat_map(|(key, value)| [key, value]));
        }
    }
}

/// A dict.
#[derive(Debug, Default)]
pub struct Dict {
    pub(crate) guard: MutationGuard,
    map: RefCell<Map>,
}

impl Dict {
    /// A new dict.
    #[must_use]
    pub fn new(map: Map) -> Self {
        Self { guard: MutationGuard::default(), map: RefCell::new(map) }
    }

    /// The entries. Let go of them before anything else runs.
    #[must_use]
    #[inline]
    pub fn map(&self) -> Ref<'_, Map> {
        self.map.borrow()
    }

    /// The entries, to change them.
    ///
    /// # Errors
    /// While a loop runs over it, or a waiting fiber can see it.
    #[inline]
    pub fn edit(&self) -> Result<RefMut<'_, Map>, Stop> {
        self.guard.check("dict")?;
        Ok(self.map.borrow_mut())
    }

    /// A dict of keys that are strings and all different, and the values of a row of temporaries.
    ///
    /// It is filled where it stays and each entry is written by parts: a map or an entry that is made
    /// elsewhere first is loaded as a whole before its parts have left the store buffer.
    pub(crate) fn of_record(keys: &[ArcStr], row: &mut [Value]) -> Rc<Self> {
        let dict = Rc::new(Self::default());
        {
            let mut map = dict.map.borrow_mut();
            map.entries.reserve_exact(keys.len());
            for (key, value) in keys.iter().zip(row) {
                let key = Value::Str(key.clone());
                match std::mem::take(value) {
                    Value::Str(text) => map.entries.push((key, Value::Str(text))),
                    Value::Int(int) => map.entries.push((key, Value::Int(int))),
                    Value::Pending(pending) => map.entries.push((key, Value::Pending(pending))),
                    other => map.entries.push((key, other)),
                }
            }
            if map.entries.len() > FEW {
                map.build_index();
            }
        }
        dict
    }

    pub(crate) fn take(&self) -> Map {
        self.map.try_borrow_mut().map(|mut map| std::mem::take(&mut *map)).unwrap_or_default()
    }
}
