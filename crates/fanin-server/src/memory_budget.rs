//! The memory budget: from 85 % on the server sheds load, the lowest priority first.
//!
//! The reading is the process's memory without file pages, which the kernel can reclaim. If the budget is the cgroup's limit, the
//! cgroup's own figure counts if it is higher: the kernel kills by it, whichever process of the group used the memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fanin_config::MemoryBudget;

use crate::Priority;

/// Percentages of the budget from which requests of a priority are refused. By [`Priority`].
const REFUSED_FROM: [u64; Priority::ALL.len()] = [97, 94, 90, 85];
/// Hysteresis: a priority is admitted again this many percent lower.
const HYSTERESIS: u64 = 2;
/// Between two readings.
const INTERVAL: Duration = Duration::from_millis(100);
/// Between two readings of the cgroup's limit.
const LIMIT_INTERVAL: Duration = Duration::from_secs(2);

/// The present state of the budget. Written by the watchdog's thread only.
#[derive(Debug)]
pub(crate) struct Memory {
    /// In bytes; 0: no bound.
    budget: AtomicU64,
    used: AtomicU64,
    /// Requests of this priority and all below it are refused; above the last one, none are.
    refused_from: AtomicU8,
}

/// Whether requests must be refused because of the memory budget, for a worker's application.
#[derive(Clone, Debug)]
pub struct MemoryPressure(pub(crate) Arc<Memory>);

impl MemoryPressure {
    /// Whether a request of this priority must be refused because of the memory budget.
    pub fn refuses(&self, priority: Priority) -> bool {
        self.0.refuses(priority)
    }
}

impl Default for Memory {
    fn default() -> Memory {
        let none = Priority::ALL.len() as u8;
        Memory { budget: AtomicU64::new(0), used: AtomicU64::new(0), refused_from: AtomicU8::new(none) }
    }
}

impl Memory {
    /// Whether a request must be refused because of the memory budget.
    #[inline]
    pub(crate) fn refuses(&self, priority: Priority) -> bool {
        priority as u8 >= self.refused_from.load(Relaxed)
    }

    /// How many priorities are refused, counted from the lowest.
    pub(crate) fn shedding(&self) -> u8 {
        Priority::ALL.len() as u8 - self.refused_from.load(Relaxed)
    }

    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Relaxed)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Stores a reading, and logs which priorities are refused if that changes.
    fn note(&self, budget: u64, used: u64) {
        self.budget.store(budget, Relaxed);
        self.used.store(used, Relaxed);
        let before = self.refused_from.load(Relaxed);
        let now = refused_from(budget, used, before);
        if now == before {
            return;
        }
        self.refused_from.store(now, Relaxed);
        let refused = Priority::ALL[usize::from(now)..].iter().map(|priority| priority.as_str()).collect::<Vec<_>>();
        let percent = percent(budget, used);
        if refused.is_empty() {
            tracing::info!(
                used,
                budget,
                percent,
                "memory is below its budget again; no request is refused because of it"
            );
        } else {
            let priorities = refused.join(", ");
            tracing::warn!(used, budget, percent, %priorities, "memory is close to its budget; requests of these priorities are refused");
        }
    }
}

fn percent(budget: u64, used: u64) -> u64 {
    (u128::from(used) * 100 / u128::from(budget.max(1))).try_into().unwrap_or(u64::MAX)
}

/// The highest priority that is refused, by its number.
fn refused_from(budget: u64, used: u64, before: u8) -> u8 {
    if budget == 0 {
        return Priority::ALL.len() as u8;
    }
    let percent = percent(budget, used);
    let is_refused = |(priority, from): &(usize, u64)| {
        let was_refused = *priority >= usize::from(before);
        percent >= if was_refused { from - HYSTERESIS } else { *from }
    };
    let first = REFUSED_FROM.iter().copied().enumerate().find(is_refused);
    first.map_or(Priority::ALL.len(), |(priority, _)| priority) as u8
}

/// Reads the memory of the process and the limits on it.
#[derive(Debug)]
pub(crate) struct MemoryReader {
    cgroup: Option<Cgroup>,
    machine: u64,
    /// Kept open, because opening costs more than reading.
    statm: Option<File>,
    next: Option<Instant>,
    /// The cgroup's limit, and when it was read. It changes rarely, and each parent group has a file of its own.
    limit: Option<(Option<u64>, Instant)>,
}

impl MemoryReader {
    /// Finds the cgroup and the files.
    pub(crate) fn find() -> MemoryReader {
        MemoryReader {
            cgroup: Cgroup::find(Path::new("/")),
            machine: machine(),
            statm: File::open("/proc/self/statm").ok(),
            next: None,
            limit: None,
        }
    }

    /// Reads again if it is time.
    pub(crate) fn tick(&mut self, configured: MemoryBudget, memory: &Memory, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + INTERVAL);
        let (budget, used) = self.read(configured, now);
        memory.note(budget, used);
    }

    fn read(&mut self, configured: MemoryBudget, now: Instant) -> (u64, u64) {
        let own = self.statm.as_ref().map_or(0, resident);
        match (configured, &self.cgroup) {
            (MemoryBudget::Off, _) => (0, own),
            (MemoryBudget::Bytes(bytes), _) => (bytes as u64, own),
            (MemoryBudget::Auto, Some(cgroup)) => {
                let limit = match self.limit {
                    Some((limit, read)) if now < read + LIMIT_INTERVAL => limit,
                    _ => self.limit.insert((cgroup.limit(), now)).0,
                };
                match limit.filter(|limit| *limit < self.machine) {
                    Some(limit) => (limit, own.max(cgroup.used().unwrap_or(0))),
                    None => (self.machine, own),
                }
            }
            (MemoryBudget::Auto, None) => (self.machine, own),
        }
    }
}

/// Bytes of this process that are not backed by a file.
fn resident(statm: &File) -> u64 {
    // The file has seven numbers.
    let mut buffer = [0; 256];
    let len = statm.read_at(&mut buffer, 0).unwrap_or(0);
    let text = str::from_utf8(&buffer[..len]).unwrap_or_default();
    let mut pages = text.split(' ').skip(1).map(|pages| pages.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

/// The machine's memory; 0 if unknown.
fn machine() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The folders of the group's files, own group first, and the files' names, which differ between version 1 and 2.
#[derive(Debug, PartialEq)]
struct Cgroup {
    folders: Vec<PathBuf>,
    limit: &'static str,
    used: &'static str,
    inactive: &'static str,
}

impl Cgroup {
    /// The group of this process. Inside a container its own group is the root of the mount.
    fn find(root: &Path) -> Option<Cgroup> {
        let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let mut found = None;
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            let (mount, names) = match controllers {
                "" => ("sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file ")),
                list if list.split(',').any(|name| name == "memory") => {
                    ("sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "))
                }
                _ => continue,
            };
            let mount = root.join(mount);
            // The limits of parent groups apply as well.
            let own = [mount.join(path), mount.clone()].into_iter().find(|folder| folder.join(names.1).is_file());
            let Some(own) = own.or_else(|| mount.join(names.0).is_file().then(|| mount.clone())) else { continue };
            let folders = own.ancestors().take_while(|folder| folder.starts_with(&mount)).map(PathBuf::from).collect();
            let group = Cgroup { folders, limit: names.0, used: names.1, inactive: names.2 };
            // With version 1 and 2 mounted, the one that has a limit counts.
            if group.limit().is_some() || found.is_none() {
                found = Some(group);
            }
        }
        found
    }

    /// The lowest limit of the group and those above it.
    fn limit(&self) -> Option<u64> {
        let read = |folder: &PathBuf| fs::read_to_string(folder.join(self.limit)).ok()?.trim().parse::<u64>().ok();
        self.folders.iter().filter_map(read).min()
    }

    /// What the group uses without what can be reclaimed at once (the working set of the kubelet).
    fn used(&self) -> Option<u64> {
        let own = self.folders.first()?;
        let used = fs::read_to_string(own.join(self.used)).ok()?.trim().parse::<u64>().ok()?;
        let stat = fs::read_to_string(own.join("memory.stat")).unwrap_or_default();
        let inactive = stat.lines().find_map(|line| line.strip_prefix(self.inactive)?.parse::<u64>().ok());
        Some(used.saturating_sub(inactive.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_priority_is_refused_first_and_admitted_last() {
        let memory = Memory::default();
        let refused = |used| {
            memory.note(1000, used);
            Priority::ALL.map(|priority| memory.refuses(priority))
        };
        assert_eq!(refused(849), [false; 4]);
        assert_eq!(refused(850), [false, false, false, true]);
        assert_eq!(refused(899), [false, false, false, true]);
        assert_eq!(refused(905), [false, false, true, true]);
        assert_eq!(refused(945), [false, true, true, true]);
        assert_eq!(refused(2000), [true; 4]);
        assert_eq!(refused(955), [true; 4], "it is admitted again at 97 less 2");
        assert_eq!(refused(949), [false, true, true, true]);
        assert_eq!((refused(885), memory.shedding()), ([false, false, true, true], 2));
        assert_eq!(refused(829), [false; 4]);
        assert_eq!((memory.budget(), memory.used(), memory.shedding()), (1000, 829, 0));
        memory.note(0, 5000);
        assert!(!memory.refuses(Priority::Background), "without a budget nothing is refused");
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn version_2_with_a_limit_above_the_own_group() {
        let root = tree(&[
            ("proc/self/cgroup", "0::/pod/app\n"),
            ("sys/fs/cgroup/pod/app/memory.max", "max\n"),
            ("sys/fs/cgroup/pod/app/memory.current", "3000\n"),
            ("sys/fs/cgroup/pod/app/memory.stat", "anon 1\ninactive_file 1000\n"),
            ("sys/fs/cgroup/pod/memory.max", "5000\n"),
            ("sys/fs/cgroup/memory.stat", ""),
        ]);
        let group = Cgroup::find(root.path()).unwrap();
        assert_eq!((group.limit(), group.used()), (Some(5000), Some(2000)));
    }

    #[test]
    fn version_1_inside_a_container() {
        let root = tree(&[
            ("proc/self/cgroup", "12:cpu,cpuacct:/docker/1\n9:memory:/docker/1\n1:name=systemd:/docker/1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 500\n"),
        ]);
        let group = Cgroup::find(root.path()).unwrap();
        assert_eq!((group.limit(), group.used()), (Some(7000), Some(3500)));
    }

    #[test]
    fn without_a_cgroup_none_is_found() {
        assert_eq!(Cgroup::find(tree(&[]).path()), None);
        assert_eq!(Cgroup::find(tree(&[("proc/self/cgroup", "0::/\n")]).path()), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn readings_of_this_machine_make_sense() {
        let mut readings = MemoryReader::find();
        let memory = Memory::default();
        let start = Instant::now();
        readings.tick(MemoryBudget::Auto, &memory, start);
        assert!(memory.used() > 100_000 && memory.budget() > memory.used(), "{memory:?}");
        readings.tick(MemoryBudget::Bytes(1 << 20), &memory, start);
        assert!(memory.budget() > 1 << 20, "not yet time for another reading");
        readings.tick(MemoryBudget::Bytes(100_000), &memory, start + INTERVAL);
        assert_eq!((memory.budget(), memory.shedding()), (100_000, 4));
    }
}
