//! Addresses: which belong together, and which one a request behind a proxy comes from.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

/// Addresses with the same beginning: `10.0.0.0/8`, `2001:db8::/32`, or one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address or a network; write one such as 10.0.0.1, 10.0.0.0/8 or fd00::/8")]
pub struct NotANetwork(String);

impl Network {
    /// Those that one customer has: a single address of version 4, 64 bits of version 6.
    pub fn of_one(address: IpAddr) -> Self {
        match plain(address) {
            address @ IpAddr::V4(_) => Self { address, bits: 32 },
            address @ IpAddr::V6(_) => Self { address: masked(address, 64), bits: 64 },
        }
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let address = plain(address);
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.bits) == self.address
    }
}

/// Version 4 also where it comes in the clothes of version 6.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let bad = || NotANetwork(text.to_owned());
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address = plain(address.trim().parse().map_err(|_| bad())?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.trim().parse::<u8>().map_err(|_| bad()))?;
        if bits > most {
            return Err(bad());
        }
        Ok(Self { address: masked(address, bits), bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
/// More hops than this nobody has.
const MOST_HOPS: usize = 32;

/// Where a request comes from. What `X-Forwarded-For` says counts as far as those are trusted who wrote it: each proxy adds
/// at the end whom it got the request from, so it is read from there; the first that is no proxy of ours is the client.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let is_proxy = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
    let mut client = plain(peer);
    if !is_proxy(client) {
        return client;
    }
    let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
    // Whatever a client has written before them: what our proxies have added is read.
    for hop in hops.map(|hop| std::str::from_utf8(hop).unwrap_or_default()).take(MOST_HOPS) {
        let Some(address) = read_hop(hop.trim()) else { break };
        client = address;
        if !is_proxy(client) {
            break;
        }
    }
    client
}

/// Whether the client's connection was encrypted, as `X-Forwarded-Proto` says it. Only a trusted proxy is believed.
pub fn is_over_tls(peer: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> bool {
    let said = headers.get_all(FORWARDED_PROTO).iter().filter_map(|value| value.to_str().ok());
    let says_so = |line: &str| line.split(',').any(|scheme| scheme.trim().eq_ignore_ascii_case("https"));
    proxies.iter().any(|network| network.contains(peer)) && said.into_iter().any(says_so)
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`.
fn read_hop(text: &str) -> Option<IpAddr> {
    let by_socket = || text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(by_socket).or_else(in_brackets).map(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_are_read_and_contain_what_they_say() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        assert!(network("10.0.0.0/8").contains(address("10.200.3.4")));
        assert!(!network("10.0.0.0/8").contains(address("11.0.0.1")));
        assert!(network("10.0.0.0/8").contains(address("::ffff:10.1.2.3")), "version 4 in version 6");
        assert!(network("0.0.0.0/0").contains(address("8.8.8.8")));
        assert!(!network("0.0.0.0/0").contains(address("2001:db8::1")));
        assert!(network("::/0").contains(address("2001:db8::1")));
        assert_eq!(network("10.1.2.3/8").to_string(), "10.0.0.0/8");
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "localhost"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_customer_of_version_6_is_one_however_many_addresses_it_uses() {
        assert_eq!(Network::of_one(address("2001:db8::1")), Network::of_one(address("2001:db8::ffff:1")));
        assert_ne!(Network::of_one(address("2001:db8::1")), Network::of_one(address("2001:db8:0:1::1")));
        assert_ne!(Network::of_one(address("10.0.0.1")), Network::of_one(address("10.0.0.2")));
        assert_eq!(Network::of_one(address("::ffff:10.0.0.1")), Network::of_one(address("10.0.0.1")));
    }

    fn client(peer: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let proxies: Vec<Network> = proxies.iter().map(|text| text.parse().unwrap()).collect();
        client_address(address(peer), &headers, &proxies).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        assert_eq!(client("203.0.113.9", &["1.2.3.4"], &[]), "203.0.113.9");
        assert_eq!(client("203.0.113.9", &["1.2.3.4"], &["10.0.0.0/8"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["1.2.3.4"], &["10.0.0.0/8"]), "1.2.3.4");
        // What the client wrote itself stands before what the proxy added.
        assert_eq!(client("10.0.0.1", &["9.9.9.9, 1.2.3.4"], &["10.0.0.0/8"]), "1.2.3.4");
        assert_eq!(client("10.0.0.1", &["9.9.9.9", "1.2.3.4, 10.0.0.7"], &["10.0.0.0/8"]), "1.2.3.4");
        assert_eq!(client("10.0.0.1", &[], &["10.0.0.0/8"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["junk"], &["10.0.0.0/8"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, junk, 10.0.0.3"], &["10.0.0.0/8"]), "10.0.0.3");
        assert_eq!(client("10.0.0.1", &["[2001:db8::1]:443"], &["10.0.0.0/8"]), "2001:db8::1");
    }
}
