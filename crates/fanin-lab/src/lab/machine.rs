//! The machine that figures belong to.

use serde::{Deserialize, Serialize};

/// What a reader must know of a machine to read its figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Kernel and its release.
    pub system: String,
    /// Whether it is a virtual machine: its cores may be another's for a while.
    pub guest: bool,
    /// The program's version and whether it was built with optimisation.
    pub build: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kilobytes: u64 = memory.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let name = rustix::system::uname();
        let profile = if cfg!(debug_assertions) { ", built WITHOUT optimisation" } else { "" };
        Machine {
            cpu: value(&cpuinfo, "model name").unwrap_or_else(|| name.machine().to_string_lossy().into_owned()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            memory: kilobytes * 1024,
            system: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            guest: value(&cpuinfo, "flags").unwrap_or_default().split(' ').any(|flag| flag == "hypervisor"),
            build: format!("fanin {}{profile}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let guest = if self.guest { ", virtual" } else { "" };
        let gib = self.memory as f64 / f64::from(1 << 30);
        format!("{} x {}, {gib:.0} GiB{guest}; {}; {}", self.cores, self.cpu, self.system, self.build)
    }
}

/// The time as RFC 3339 in UTC, whole seconds.
pub(crate) fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Civil date of a day number, after H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}
