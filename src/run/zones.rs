//! Which network interface a zone is.
//!
//! In: an address with its zone, the kernel's list of addresses. Out: the address with the interface's number. Never: a guess: a zone that this
//! machine has not is refused by name.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use crate::config::ZonedAddress;

use super::RunError;

/// Linux: a line for each address of IPv6, with number and name of its interface.
const LIST: &str = "/proc/net/if_inet6";

/// Where `address` is with `port`; `flag` is what has named it.
///
/// # Errors
///
/// This machine has no such interface, or it has no IPv6.
pub(super) fn place(
    address: &ZonedAddress,
    port: u16,
    flag: &'static str,
) -> Result<SocketAddr, RunError> {
    let (IpAddr::V6(ip), Some(zone)) = (address.ip, &address.zone) else {
        return Ok(SocketAddr::new(address.ip, port));
    };
    let unknown = |known: String| RunError::Zone {
        flag,
        address: address.to_string(),
        zone: zone.clone(),
        known,
    };
    let Ok(list) = std::fs::read_to_string(LIST) else {
        // Elsewhere the system's own reading of `fe80::1%en0` knows the numbers.
        let mut found = (address.to_string(), port).to_socket_addrs().ok();
        let found = found.as_mut().and_then(Iterator::next);
        return found.ok_or_else(|| unknown("others".to_owned()));
    };
    let known = interfaces(&list);
    match known
        .iter()
        .find(|(number, name)| name == zone || number.to_string() == *zone)
    {
        Some(&(number, _)) => Ok(SocketAddrV6::new(ip, port, 0, number).into()),
        None => {
            let all = known
                .iter()
                .map(|(number, name)| format!("{name} ({number})"));
            Err(unknown(all.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Numbers and names, once each, in the order of the numbers.
fn interfaces(list: &str) -> Vec<(u32, &str)> {
    let lines = list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let number = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        Some((number, words.next_back()?))
    });
    let mut all: Vec<(u32, &str)> = lines.collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_once_each() {
        let list = "fd000000000000000000000000000002 04 40 00 82     eth0\n\
            fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n\
            00000000000000000000000000000001 01 80 10 80       lo\n\
            fe8000000000000000fc00fffe000002 1f 40 20 80    br-0\n\n";
        assert_eq!(interfaces(list), [(1, "lo"), (4, "eth0"), (31, "br-0")]);
    }

    #[test]
    fn an_interface_is_known_by_name_and_by_number() {
        let address = |zone: Option<&str>| ZonedAddress {
            ip: "fe80::1".parse().unwrap(),
            zone: zone.map(str::to_owned),
        };
        let of = |zone| place(&address(zone), 80, "--url");
        assert_eq!(of(None).unwrap(), "[fe80::1]:80".parse().unwrap());
        let error = of(Some("no-such-one")).unwrap_err().to_string();
        assert!(error.starts_with("--url fe80::1%no-such-one: "), "{error}");
        let Ok(by_name) = of(Some("lo")) else {
            // No Linux, or no IPv6.
            return;
        };
        assert_eq!(by_name, of(Some("1")).unwrap());
        assert_eq!(by_name.to_string(), "[fe80::1%1]:80");
    }
}
