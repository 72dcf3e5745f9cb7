//! `memory` of the server: the memory budget.

use serde::{Serialize, Serializer};

use crate::reader::Table;
use crate::values::size::{format_size, parse_size, saturating_usize};

/// How much memory the server may use before it sheds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryBudget {
    /// What the cgroup allows, or else what the machine has.
    #[default]
    Auto,
    /// It never sheds for memory.
    Off,
    /// So many bytes.
    Bytes(usize),
}

impl Serialize for MemoryBudget {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            MemoryBudget::Auto => to.serialize_str("auto"),
            MemoryBudget::Off => to.serialize_str("off"),
            MemoryBudget::Bytes(bytes) => to.serialize_str(&format_size(*bytes as u64)),
        }
    }
}

/// Less would be refused at once by what the program itself takes.
const LEAST_MEMORY: u64 = 1 << 20;

/// Reads `memory`: a size, `"auto"` or `"off"`.
pub(crate) fn read(table: &mut Table<'_, '_>) -> Option<MemoryBudget> {
    if table.is_integer("memory") {
        return table.size("memory", LEAST_MEMORY).map(MemoryBudget::Bytes);
    }
    let read = table.parsed("memory", "a size such as \"512MiB\", \"auto\" or \"off\"", |text| match text {
        "auto" => Ok(MemoryBudget::Auto),
        "off" => Ok(MemoryBudget::Off),
        size => match parse_size(size)? {
            bytes if bytes < LEAST_MEMORY => Err(format!("{bytes} bytes is below the least, {LEAST_MEMORY}")),
            bytes => Ok(MemoryBudget::Bytes(saturating_usize(bytes))),
        },
    })?;
    Some(read.value)
}
