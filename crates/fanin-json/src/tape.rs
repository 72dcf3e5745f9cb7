//! The index of a document: one entry for each key and value, in the order of the text.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, OnceLock};

use crate::error::Fault;
use crate::scan::{self, Extent, Sink};
use crate::unescape;

/// One key or value. An object's entry is followed by key, value, key, value …; an array's by its
/// elements; each with all that is inside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Entry after this one and everything inside it.
    pub(crate) next: u32,
    /// Containers: number of elements or members as written, and [`REPEATS`]. Strings: 1 if escaped.
    extra: u32,
}

/// Set in `extra` of an object that writes a key twice. A body of 4 GiB cannot have 2^31 members.
const REPEATS: u32 = 1 << 31;

/// Containers with more children than this get an index of their own when one is first looked for.
const MANY: u32 = 16;

impl Entry {
    pub(crate) fn escaped(self) -> bool {
        self.extra == 1
    }

    pub(crate) fn written(self) -> u32 {
        self.extra & !REPEATS
    }

    fn repeats(self) -> bool {
        self.extra & REPEATS != 0
    }
}

/// What is between the quotes.
#[inline(always)]
pub(crate) fn inside(bytes: &[u8], string: Entry) -> &[u8] {
    &bytes[string.start as usize + 1..string.end as usize - 1]
}

/// The text of a string entry; borrowed unless it is escaped.
pub(crate) fn decode(bytes: &[u8], string: Entry) -> Cow<'_, str> {
    if string.escaped() {
        Cow::Owned(unescape::unescape(inside(bytes, string)))
    } else {
        unescape::plain(inside(bytes, string))
    }
}

#[derive(Debug)]
pub(crate) struct Tape {
    pub(crate) entries: Box<[Entry]>,
    /// Containers with [`MANY`] children, by their position.
    large: Box<[(u32, OnceLock<Children>)]>,
}

/// The index of one large container.
#[derive(Debug)]
enum Children {
    /// Positions of the elements.
    Elements(Box<[u32]>),
    Members {
        /// Distinct keys by their hash.
        by_hash: Box<[Member]>,
        /// If a key is written twice: places in `by_hash`, by the keys' first positions.
        by_position: Option<Box<[u32]>>,
    },
}

/// A distinct key of a large object.
#[derive(Clone, Copy, Debug)]
struct Member {
    hash: u32,
    /// Its first position.
    key: u32,
    /// The position of its last value.
    value: u32,
}

/// Who sends a document chooses its keys, so their hashes are random: an object of a megabyte is indexed in a few milliseconds,
/// where a sort by text would take ten times as long.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

fn hash(text: &[u8]) -> u32 {
    HASHER.hash_one(text) as u32
}

fn hash_key(bytes: &[u8], key: Entry) -> u32 {
    match key.escaped() {
        false => hash(inside(bytes, key)),
        true => hash(decode(bytes, key).as_bytes()),
    }
}

/// Builds entries. While a container is open its `next` holds the position of the one around it.
///
/// `VALIDATED` says that the bytes passed before, see [`Sink::VALIDATED`].
struct Builder<'a, const VALIDATED: bool> {
    bytes: &'a [u8],
    entries: Vec<Entry>,
    /// Position of the innermost open container, or `NONE`.
    open: u32,
    large: Vec<(u32, OnceLock<Children>)>,
}

const NONE: u32 = u32::MAX;

/// Keys that are hashed between two pauses: some 200 microseconds.
const KEYS: usize = 2048;

/// The scanner refuses bodies whose offsets do not fit.
#[inline(always)]
fn offset(at: usize) -> u32 {
    at as u32
}

impl<'a, const VALIDATED: bool> Builder<'a, VALIDATED> {
    fn new(bytes: &'a [u8]) -> Self {
        // About one entry for eight bytes is usual; growing once or twice costs less than a count.
        Self { bytes, entries: Vec::with_capacity(bytes.len() / 8 + 4), open: NONE, large: Vec::new() }
    }

    fn finish(self) -> Tape {
        let mut large = self.large;
        // Containers were pushed when they closed: inner before outer.
        large.sort_unstable_by_key(|(at, _)| *at);
        Tape { entries: self.entries.into_boxed_slice(), large: large.into_boxed_slice() }
    }

    #[inline(always)]
    fn push(&mut self, start: usize, end: usize, extra: u32) {
        let position = self.entries.len() as u32;
        if let Some(parent) = self.entries.get_mut(self.open as usize) {
            parent.extra += 1;
        }
        self.entries.push(Entry { start: offset(start), end: offset(end), next: position + 1, extra });
    }
}

impl<const VALIDATED: bool> Sink for Builder<'_, VALIDATED> {
    const VALIDATED: bool = VALIDATED;

    fn open(&mut self, start: usize) {
        let position = self.entries.len() as u32;
        self.push(start, start, 0);
        self.entries[position as usize].next = self.open;
        self.open = position;
    }

    fn close(&mut self, end: usize) {
        let at = self.open;
        let next = self.entries.len() as u32;
        // The scanner closes only what it opened.
        let entry = &mut self.entries[at as usize];
        self.open = entry.next;
        entry.end = offset(end);
        entry.next = next;
        if self.bytes[entry.start as usize] == b'{' {
            // Keys and values were counted.
            entry.extra /= 2;
            let members = entry.extra;
            if members > MANY {
                self.large.push((at, OnceLock::new()));
            } else if members > 1 && small_object_repeats(self.bytes, &self.entries, at) {
                self.entries[at as usize].extra |= REPEATS;
            }
        } else if entry.extra > MANY && next - at - 1 != entry.extra {
            self.large.push((at, OnceLock::new()));
        }
    }

    #[inline(always)]
    fn string(&mut self, start: usize, end: usize, escaped: bool) {
        self.push(start, end, u32::from(escaped));
    }

    #[inline(always)]
    fn scalar(&mut self, start: usize, end: usize) {
        self.push(start, end, 0);
    }
}

/// Whether an object of at most [`MANY`] members writes a key twice. Keys that differ in length or
/// last byte set different bits most of the time, so that few objects are compared key by key.
fn small_object_repeats(bytes: &[u8], entries: &[Entry], object: u32) -> bool {
    let end = entries[object as usize].next;
    let mut bits = 0_u64;
    let mut suspect = false;
    let mut key = object + 1;
    while key < end {
        let entry = entries[key as usize];
        // The length with its quotes, and the byte before the closing one; the opening quote for an empty key.
        let (length, last) = match entry.escaped() {
            false => (entry.end - entry.start, bytes[entry.end as usize - 2]),
            true => {
                let text = decode(bytes, entry);
                (text.len() as u32 + 2, text.as_bytes().last().copied().unwrap_or(b'"'))
            }
        };
        let bit = 1_u64 << (length.wrapping_mul(7).wrapping_add(u32::from(last)) % 64);
        suspect |= bits & bit != 0;
        bits |= bit;
        key = entries[key as usize + 1].next;
    }
    suspect && has_equal_keys(bytes, entries, object)
}

/// Compares the keys of a small object with each other.
#[cold]
fn has_equal_keys(bytes: &[u8], entries: &[Entry], object: u32) -> bool {
    let end = entries[object as usize].next;
    let mut keys: Vec<Cow<'_, str>> = Vec::with_capacity(MANY as usize);
    let mut key = object + 1;
    while key < end {
        let text = decode(bytes, entries[key as usize]);
        if keys.contains(&text) {
            return true;
        }
        keys.push(text);
        key = entries[key as usize + 1].next;
    }
    false
}

#[inline(always)]
fn key_is(bytes: &[u8], key: Entry, wanted: &[u8]) -> bool {
    let length = (key.end - key.start) as usize;
    if key.escaped() {
        // An escape is longer than what it stands for.
        return length > wanted.len() + 2 && decode(bytes, key).as_bytes() == wanted;
    }
    length == wanted.len() + 2 && inside(bytes, key) == wanted
}

impl Tape {
    /// Indexes bytes that were validated before.
    #[cold]
    pub(crate) fn build(bytes: &[u8]) -> Self {
        let mut builder = Builder::<true>::new(bytes);
        let scanned = scan::scan(bytes, usize::MAX, &mut builder);
        debug_assert!(scanned.is_ok(), "a document holds valid JSON only");
        builder.finish()
    }

    /// Validates bytes and indexes them, in one pass.
    pub(crate) fn validate(bytes: &[u8], max_depth: usize) -> Result<(Extent, Self), Fault> {
        let mut builder = Builder::<false>::new(bytes);
        let extent = scan::scan(bytes, max_depth, &mut builder)?;
        Ok((extent, builder.finish()))
    }

    /// Bytes that a value or key takes at most: its entry, and its place in the index of a large container.
    pub(crate) const PER_ENTRY: usize = size_of::<Entry>() + 8;

    /// Bytes on the heap, without the indexes of large containers (each at most 8 bytes a key or value).
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.large)
    }

    #[inline(always)]
    pub(crate) fn entry(&self, at: u32) -> Entry {
        self.entries[at as usize]
    }

    /// Builds the indexes of all large containers, which otherwise the first look into each builds.
    pub(crate) fn index_large(&self, bytes: &[u8], pause: fn()) {
        for (at, children) in &self.large {
            children.get_or_init(|| self.index_children(bytes, *at, pause));
        }
    }

    fn children(&self, bytes: &[u8], at: u32) -> Option<&Children> {
        let place = self.large.binary_search_by_key(&at, |(position, _)| *position).ok()?;
        Some(self.large[place].1.get_or_init(|| self.index_children(bytes, at, || ())))
    }

    /// Calls `pause` each [`KEYS`] keys.
    fn index_children(&self, bytes: &[u8], at: u32, pause: fn()) -> Children {
        let container = self.entry(at);
        let object = bytes[container.start as usize] == b'{';
        let mut positions = Vec::with_capacity(container.written() as usize);
        let mut child = at + 1;
        while child < container.next {
            positions.push(child);
            child = self.entry(child + u32::from(object)).next;
        }
        if !object {
            return Children::Elements(positions.into_boxed_slice());
        }
        // The position is in the lower half: equal keys stay in the order of the text.
        let mut hashed: Vec<u64> = Vec::with_capacity(positions.len());
        for keys in positions.chunks(KEYS) {
            hashed.extend(keys.iter().map(|key| u64::from(hash_key(bytes, self.entry(*key))) << 32 | u64::from(*key)));
            pause();
        }
        hashed.sort_unstable();
        pause();
        let mut by_hash: Vec<Member> = Vec::with_capacity(hashed.len());
        for of_hash in hashed.chunk_by(|a, b| a >> 32 == b >> 32) {
            let member = |hashed: u64| {
                let (hash, key) = ((hashed >> 32) as u32, hashed as u32);
                Member { hash, key, value: key + 1 }
            };
            // Nearly all hashes have one key. Looking at its text would be most of the work.
            if let [only] = of_hash {
                by_hash.push(member(*only));
                continue;
            }
            let from = by_hash.len();
            for next in of_hash.iter().map(|hashed| member(*hashed)) {
                let name = decode(bytes, self.entry(next.key));
                let is_same = |known: &&mut Member| key_is(bytes, self.entry(known.key), name.as_bytes());
                match by_hash[from..].iter_mut().find(is_same) {
                    Some(known) => known.value = next.value,
                    None => by_hash.push(next),
                }
            }
        }
        let by_position = (by_hash.len() != container.written() as usize).then(|| {
            let mut places: Vec<u32> = (0..by_hash.len() as u32).collect();
            places.sort_unstable_by_key(|place| by_hash[*place as usize].key);
            places.into_boxed_slice()
        });
        Children::Members { by_hash: by_hash.into_boxed_slice(), by_position }
    }

    /// First position of key `wanted` in object `at` and the position of its last value.
    pub(crate) fn member(&self, bytes: &[u8], at: u32, wanted: &str) -> Option<(u32, u32)> {
        let wanted = wanted.as_bytes();
        if self.entry(at).written() > MANY
            && let Some(Children::Members { by_hash, .. }) = self.children(bytes, at)
        {
            let sought = hash(wanted);
            let from = by_hash.partition_point(|member| member.hash < sought);
            let mut candidates = by_hash[from..].iter().take_while(|member| member.hash == sought);
            let found = candidates.find(|member| key_is(bytes, self.entry(member.key), wanted))?;
            return Some((found.key, found.value));
        }
        let container = self.entry(at);
        let mut found = None;
        let mut key = at + 1;
        while key < container.next {
            if key_is(bytes, self.entry(key), wanted) {
                found = match found {
                    None => Some((key, key + 1)),
                    Some((first, _)) => Some((first, key + 1)),
                };
                if !container.repeats() {
                    break;
                }
            }
            key = self.entry(key + 1).next;
        }
        found
    }

    /// Whether object `at` writes a key more than once.
    pub(crate) fn repeats(&self, bytes: &[u8], at: u32) -> bool {
        let container = self.entry(at);
        if container.written() > MANY
            && let Some(Children::Members { by_position, .. }) = self.children(bytes, at)
        {
            return by_position.is_some();
        }
        container.repeats()
    }

    /// Number of distinct keys of object `at`.
    pub(crate) fn members(&self, bytes: &[u8], at: u32) -> u32 {
        if !self.repeats(bytes, at) {
            return self.entry(at).written();
        }
        if let Some(Children::Members { by_hash, .. }) = self.children(bytes, at) {
            return by_hash.len() as u32;
        }
        let end = self.entry(at).next;
        let mut distinct = 0;
        let mut key = at + 1;
        while key < end {
            distinct += u32::from(self.first_of_its_name(bytes, at, key).is_some());
            key = self.entry(key + 1).next;
        }
        distinct
    }

    /// If no equal key is before `key` in `object`: the position of the value that counts.
    pub(crate) fn first_of_its_name(&self, bytes: &[u8], object: u32, key: u32) -> Option<u32> {
        if let Some(Children::Members { by_hash, by_position: Some(places) }) = self.children(bytes, object) {
            let member = |place: u32| by_hash[place as usize];
            let place = places.binary_search_by_key(&key, |place| member(*place).key).ok()?;
            return Some(member(places[place]).value);
        }
        let name = decode(bytes, self.entry(key));
        let (first, value) = self.member(bytes, object, &name)?;
        (first == key).then_some(value)
    }

    /// Position of element `index` of array `at`.
    pub(crate) fn element(&self, bytes: &[u8], at: u32, index: usize) -> Option<u32> {
        let array = self.entry(at);
        let length = array.written();
        let index = u32::try_from(index).ok().filter(|index| *index < length)?;
        if array.next - at - 1 == length {
            // Nothing but scalars and empty containers: one entry each.
            return Some(at + 1 + index);
        }
        if let Some(Children::Elements(positions)) = self.children(bytes, at) {
            return positions.get(index as usize).copied();
        }
        let mut child = at + 1;
        for _ in 0..index {
            child = self.entry(child).next;
        }
        Some(child)
    }
}
