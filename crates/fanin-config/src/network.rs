//! Addresses and networks of clients.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::reader::Table;

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

/// Most networks of one list: a request compares its client with each.
const MAX_NETWORKS: usize = 1000;

/// Reads a list of addresses and networks.
pub(crate) fn networks(table: &mut Table<'_, '_>, key: &'static str) -> Vec<Network> {
    let found = table.list(key, "an address or a network such as \"10.0.0.0/8\"", false, str::parse);
    let found: Vec<Network> = found.into_iter().flatten().map(|network| network.value).collect();
    if found.len() > MAX_NETWORKS {
        table.error(key, format_args!("has more than {MAX_NETWORKS} networks; put a firewall in front"));
    }
    found
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
}
