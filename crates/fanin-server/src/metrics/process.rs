//! What the system reports about this process.

use std::fs;

/// Memory, threads and open files, from `/proc`; zeros without it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) resident_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) open_files: u64,
}

impl Process {
    pub(crate) fn read() -> Process {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        Process {
            resident_bytes: field("VmRSS").unwrap_or(0) * 1024,
            threads: field("Threads").unwrap_or(0),
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn reads_something() {
        let process = Process::read();
        assert!(process.resident_bytes > 1 << 20 && process.threads >= 1 && process.open_files >= 3, "{process:?}");
    }
}
