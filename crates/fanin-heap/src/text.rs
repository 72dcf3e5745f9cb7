//! The profile as text: sites by the bytes that live, the calls below each.

use std::fmt::Write;

use crate::table::{self, Noted};

/// Calls of the allocator and of this crate itself, which are the innermost of every site. With line tables alone the debug
/// information has an inlined function's name without its module: then its file tells.
const OUR_FUNCTIONS: [&str; 6] =
    ["backtrace::", "fanin_heap::", "__rust_", "__rustc", "alloc::alloc::", "<alloc::alloc::Global"];
const OUR_FILES: [&str; 4] = ["/backtrace-", "/fanin-heap/src/", "/alloc/src/alloc.rs", "/alloc/src/raw_vec/"];

/// Allocations of one site.
pub(crate) struct Site {
    /// Return addresses, innermost first.
    pub calls: Vec<usize>,
    /// Allocations that live, scaled.
    pub count: f64,
    /// Their bytes.
    pub bytes: f64,
    /// How many were noted.
    pub noted: u64,
}

/// Sites by their bytes, the most first, and how many allocations were not noted for want of room.
pub(crate) fn sites() -> (Vec<Site>, u64) {
    let (mut live, lost) = table::live();
    live.sort_by(|a, b| a.calls.cmp(&b.calls));
    let mut sites: Vec<Site> = Vec::new();
    for Noted { size, weight, calls } in live {
        if sites.last().is_none_or(|last| *last.calls != *calls) {
            sites.push(Site { calls: calls.to_vec(), count: 0.0, bytes: 0.0, noted: 0 });
        }
        // There is one by the line above.
        if let Some(site) = sites.last_mut() {
            site.count += weight;
            site.bytes += weight * size as f64;
            site.noted += 1;
        }
    }
    sites.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    (sites, lost)
}

/// A place in the source, as far as the program's debug information tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub function: String,
    pub file: String,
    pub line: u32,
}

/// What was called at a return address, inlined calls included, innermost first. Empty if nothing is known of it.
pub(crate) fn places(address: usize) -> Vec<Place> {
    let mut places = Vec::new();
    // A return address is behind its call, which may be the last instruction of its function.
    backtrace::resolve(std::ptr::without_provenance_mut(address.saturating_sub(1)), |symbol| {
        places.push(Place {
            function: symbol.name().map(|name| format!("{name:#}")).unwrap_or_default(),
            file: symbol.filename().map(|file| file.display().to_string()).unwrap_or_default(),
            line: symbol.lineno().unwrap_or_default(),
        });
    });
    places
}

/// Whether a call belongs to allocating itself.
pub(crate) fn is_ours(Place { function, file, .. }: &Place) -> bool {
    OUR_FUNCTIONS.iter().any(|prefix| function.starts_with(prefix))
        || OUR_FILES.iter().any(|part| file.contains(part))
        || function.contains("GlobalAlloc")
}

/// Debug information that was read to find names takes as much memory as it has, and is let go again with this.
pub(crate) struct Reading;

impl Drop for Reading {
    fn drop(&mut self) {
        backtrace::clear_symbol_cache();
    }
}

/// The profile as text. It is taken in about a second: debug information is read from the program's file.
pub fn text() -> String {
    let Some(every) = crate::every() else { return "heap profiling is off\n".to_owned() };
    let _reading = Reading;
    let (sites, lost) = sites();
    let (bytes, count) = sites.iter().fold((0.0, 0.0), |(bytes, count), it| (bytes + it.bytes, count + it.count));
    let mut text = format!(
        "{:.1} MB in {count:.0} allocations live at {} sites, by samples of one in {every} bytes since the start\n",
        bytes / 1e6,
        sites.len()
    );
    if lost > 0 {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "{lost} samples found no room: take a larger distance");
    }
    for site in &sites {
        let _ =
            writeln!(text, "\n{:.1} KB in {:.0} allocations ({} samples)", site.bytes / 1e3, site.count, site.noted);
        let places = site.calls.iter().flat_map(|call| places(*call)).skip_while(is_ours);
        for Place { function, file, line } in places {
            let _ = writeln!(text, "    {function}  {file}:{line}");
        }
    }
    text
}
