//! Keys of `[server]` and of routes that say what happens when there is more to do than the server can.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::table::Table;
use crate::{format_duration, format_size, parse_duration, parse_size};

/// How important a request is: the more important waits in front, the less important is refused first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Refused last.
    Critical,
    /// What a route has if nothing is said.
    #[default]
    Normal,
    /// Refused before `Normal`.
    Low,
    /// Refused first.
    Background,
}

impl Priority {
    /// All, the most important first.
    pub const ALL: [Priority; 4] = [Priority::Critical, Priority::Normal, Priority::Low, Priority::Background];

    /// Its word in the file and in headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Critical => "critical",
            Priority::Normal => "normal",
            Priority::Low => "low",
            Priority::Background => "background",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = ();

    fn from_str(text: &str) -> Result<Priority, ()> {
        Priority::ALL.into_iter().find(|priority| priority.as_str() == text).ok_or(())
    }
}

/// Reads a route's `priority`.
pub(crate) fn read_priority(table: &mut Table<'_, '_>) -> Option<Priority> {
    table.choice("priority", &Priority::ALL.map(|priority| (priority.as_str(), priority)))
}

/// An address, or all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address belongs to it. An IPv4 address that came in over an IPv6 socket is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits_of = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, true),
            IpAddr::V6(v6) => (v6.to_bits(), false),
        };
        let ((own, own_is_v4), (other, other_is_v4)) = (bits_of(self.address), bits_of(address.to_canonical()));
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
        own_is_v4 == other_is_v4 && own & mask == other & mask
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let no_address = |_| format!("`{text}` is neither an address nor a network such as \"10.0.0.0/8\"");
        let address: IpAddr = address.parse().map_err(no_address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => match bits.parse::<u8>() {
                Ok(bits) if bits <= most => bits,
                _ => return Err(format!("`{text}`: the number behind the slash is between 0 and {most}")),
            },
        };
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == most { self.address.fmt(f) } else { write!(f, "{}/{}", self.address, self.bits) }
    }
}

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
pub(crate) fn read_memory(table: &mut Table<'_, '_>) -> Option<MemoryBudget> {
    if table.is_integer("memory") {
        return table.size("memory", LEAST_MEMORY).map(MemoryBudget::Bytes);
    }
    let read = table.parsed("memory", "a size such as \"512MiB\", \"auto\" or \"off\"", |text| match text {
        "auto" => Ok(MemoryBudget::Auto),
        "off" => Ok(MemoryBudget::Off),
        size => match parse_size(size)? {
            bytes if bytes < LEAST_MEMORY => Err(format!("{bytes} bytes is below the least, {LEAST_MEMORY}")),
            bytes => Ok(MemoryBudget::Bytes(usize::try_from(bytes).unwrap_or(usize::MAX))),
        },
    })?;
    Some(read.value)
}

/// Reads a duration above zero, or `"off"`.
pub(crate) fn read_duration_or_off(table: &mut Table<'_, '_>, key: &'static str) -> Option<Option<Duration>> {
    let read = table.parsed(key, "a duration such as \"5ms\" or \"off\"", |text| match text {
        "off" => Ok(None),
        text => match parse_duration(text)? {
            Duration::ZERO => Err("must be longer than zero".into()),
            duration => Ok(Some(duration)),
        },
    })?;
    Some(read.value)
}

pub(crate) fn duration_or_off<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(duration) => to.serialize_str(&format_duration(*duration)),
        None => to.serialize_str("off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn networks_hold_what_begins_alike() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("192.168.1.128/25", "192.168.1.200", "192.168.1.1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("::/0", "::1", "8.8.8.8"),
        ] {
            assert!(network(text).contains(inside.parse().unwrap()), "{text} has {inside}");
            assert!(!network(text).contains(outside.parse().unwrap()), "{text} has not {outside}");
            assert_eq!(network(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/x", "a/8", "10.0.0.0/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn words_of_priorities_are_read_back() {
        for priority in Priority::ALL {
            assert_eq!(priority.as_str().parse(), Ok(priority));
        }
        assert!("Critical".parse::<Priority>().is_err());
        assert!(Priority::Critical < Priority::Background);
    }
}
