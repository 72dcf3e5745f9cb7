//! The profile in pprof's format: gzip around `perftools.profiles.Profile`
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>). With functions and lines the program's file is not needed to
//! read it, but to find them takes about as much memory as that file's debug information; without them a reader takes them from
//! the file.

use std::collections::HashMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::mapping;
use crate::text::{Place, Reading, is_ours, places, sites};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "7")]
    drop_frames: i64,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Texts by their places.
struct Strings {
    all: Vec<String>,
    known: HashMap<String, i64>,
}

impl Strings {
    fn place(&mut self, text: &str) -> i64 {
        if let Some(at) = self.known.get(text) {
            return *at;
        }
        let at = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), at);
        at
    }
}

/// Functions of the allocator, by a name that is at the bottom of all that it calls: a reader drops these calls and what is inside of
/// them, as is done here where names are found.
const DROPPED: &str = ".*__rust_(alloc|alloc_zeroed|realloc).*";

/// Whether a profile has functions and lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// It has: found in this program's file, in memory that is let go afterwards.
    Found,
    /// It has addresses only, for a reader that has the same file.
    Left,
}

/// The profile, gzipped: `go tool pprof FILE`, or any other reader of the format. Nothing lives in one of a process that does not
/// sample.
pub fn pprof(names: Names) -> Vec<u8> {
    let encoded = profile(names).encode_to_vec();
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector does not fail.
    let written = out.write_all(&encoded).and_then(|()| out.finish());
    written.unwrap_or_default()
}

fn profile(names: Names) -> Profile {
    let _reading = Reading;
    let mut strings = Strings { all: Vec::new(), known: HashMap::new() };
    // The format wants the empty text first.
    strings.place("");
    let mut of = |kind: &str, unit: &str| ValueType { kind: strings.place(kind), unit: strings.place(unit) };
    let sample_type = vec![of("inuse_objects", "count"), of("inuse_space", "bytes")];
    let period_type = Some(of("space", "bytes"));
    let mut profile = Profile {
        default_sample_type: sample_type[1].kind,
        sample_type,
        drop_frames: strings.place(DROPPED),
        period_type,
        period: crate::every().unwrap_or_default() as i64,
        time_nanos: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64),
        ..Profile::default()
    };
    for (place, code) in mapping::all().into_iter().enumerate() {
        let found = names == Names::Found;
        profile.mapping.push(Mapping {
            id: place as u64 + 1,
            memory_start: code.start,
            memory_limit: code.end,
            file_offset: code.offset,
            filename: strings.place(&code.file),
            has_functions: found,
            has_filenames: found,
            has_line_numbers: found,
            has_inline_frames: found,
        });
    }
    let mut locations = Locations::default();
    for site in sites().0 {
        let location_id = site.calls.iter().filter_map(|call| locations.of(*call, names, &mut profile, &mut strings));
        let location_id = location_id.collect();
        let value = vec![site.count.round() as i64, site.bytes.round() as i64];
        profile.sample.push(Sample { location_id, value });
    }
    profile.string_table = strings.all;
    profile
}

/// What is known of addresses already.
#[derive(Default)]
struct Locations {
    /// None: all its calls belong to allocating itself.
    ids: HashMap<usize, Option<u64>>,
    functions: HashMap<(i64, i64), u64>,
}

impl Locations {
    /// The location of a return address, put into the profile when it is new.
    fn of(&mut self, address: usize, names: Names, profile: &mut Profile, strings: &mut Strings) -> Option<u64> {
        if let Some(id) = self.ids.get(&address) {
            return *id;
        }
        let known = if names == Names::Found { places(address) } else { Vec::new() };
        let line: Vec<Line> = known
            .iter()
            .filter(|place| !is_ours(place))
            .map(|Place { function, file, line }| {
                let (name, filename) = (strings.place(function), strings.place(file));
                let next = self.functions.len() as u64 + 1;
                let function_id = *self.functions.entry((name, filename)).or_insert_with(|| {
                    profile.function.push(Function { id: next, name, filename });
                    next
                });
                Line { function_id, line: i64::from(*line) }
            })
            .collect();
        let id = (!line.is_empty() || known.is_empty()).then(|| {
            // Within the call, as the format wants it: a return address is behind it, and may be another function's.
            let address = (address as u64).saturating_sub(1);
            let within = |code: &&Mapping| (code.memory_start..code.memory_limit).contains(&address);
            let mapping_id = profile.mapping.iter().find(within).map_or(0, |code| code.id);
            let id = profile.location.len() as u64 + 1;
            profile.location.push(Location { id, mapping_id, address, line });
            id
        });
        self.ids.insert(address, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_whole_without_samples() {
        let profile = profile(Names::Found);
        assert_eq!(profile.string_table[0], "");
        let text = |at: i64| profile.string_table[at as usize].as_str();
        assert_eq!(text(profile.sample_type[1].kind), "inuse_space");
        assert_eq!(text(profile.default_sample_type), "inuse_space");
        assert!(pprof(Names::Left).starts_with(&[0x1f, 0x8b]));
        // The program comes first: readers take that one for what was profiled.
        let program = std::env::current_exe().unwrap();
        assert_eq!(Some(text(profile.mapping[0].filename)), program.to_str());
    }
}
