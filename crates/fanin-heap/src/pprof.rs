//! The profile in pprof's format: gzip around `perftools.profiles.Profile`
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>), with functions and lines, so that the program's file is not
//! needed to read it.

use std::collections::HashMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::text::{Place, is_ours, places, sites};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
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

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
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

/// The profile, gzipped: `go tool pprof FILE`, or any other reader of the format. Nothing lives in one of a process that does not
/// sample.
pub fn pprof() -> Vec<u8> {
    let encoded = profile().encode_to_vec();
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector does not fail.
    let written = out.write_all(&encoded).and_then(|()| out.finish());
    written.unwrap_or_default()
}

fn profile() -> Profile {
    let mut strings = Strings { all: Vec::new(), known: HashMap::new() };
    // The format wants the empty text first.
    strings.place("");
    let mut of = |kind: &str, unit: &str| ValueType { kind: strings.place(kind), unit: strings.place(unit) };
    let sample_type = vec![of("inuse_objects", "count"), of("inuse_space", "bytes")];
    let period_type = Some(of("space", "bytes"));
    let mut profile = Profile {
        default_sample_type: sample_type[1].kind,
        sample_type,
        period_type,
        period: crate::every().unwrap_or_default() as i64,
        time_nanos: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64),
        ..Profile::default()
    };
    // A location of 0: all its calls belong to allocating itself.
    let mut locations: HashMap<usize, u64> = HashMap::new();
    let mut functions: HashMap<(i64, i64), u64> = HashMap::new();
    for site in sites().0 {
        let mut location_id = Vec::with_capacity(site.calls.len());
        for address in site.calls {
            let id = match locations.get(&address) {
                Some(id) => *id,
                None => {
                    let known = places(address);
                    let line: Vec<Line> = known
                        .iter()
                        .filter(|place| !is_ours(&place.function))
                        .map(|Place { function, file, line }| {
                            let (name, filename) = (strings.place(function), strings.place(file));
                            let next = functions.len() as u64 + 1;
                            let function_id = *functions.entry((name, filename)).or_insert_with(|| {
                                profile.function.push(Function { id: next, name, filename });
                                next
                            });
                            Line { function_id, line: i64::from(*line) }
                        })
                        .collect();
                    let id = match line.is_empty() && !known.is_empty() {
                        true => 0,
                        false => {
                            let id = profile.location.len() as u64 + 1;
                            profile.location.push(Location { id, address: address as u64, line });
                            id
                        }
                    };
                    locations.insert(address, id);
                    id
                }
            };
            if id != 0 {
                location_id.push(id);
            }
        }
        let value = vec![site.count.round() as i64, site.bytes.round() as i64];
        profile.sample.push(Sample { location_id, value });
    }
    profile.string_table = strings.all;
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_whole_without_samples() {
        let profile = profile();
        assert_eq!(profile.string_table[0], "");
        let text = |at: i64| profile.string_table[at as usize].as_str();
        assert_eq!(text(profile.sample_type[1].kind), "inuse_space");
        assert_eq!(text(profile.default_sample_type), "inuse_space");
        assert!(pprof().starts_with(&[0x1f, 0x8b]));
    }
}
