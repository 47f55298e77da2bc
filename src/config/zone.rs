//! Addresses that mean something on one network interface only.
//!
//! In: text of an address, such as `fe80::1%eth0`. Out: the address, and the zone it is in (RFC 4007 section 11). Never: asks whether this
//! machine has such an interface.

use std::fmt;
use std::net::IpAddr;

/// The longest name of an interface in bytes (`IFNAMSIZ` of Linux is 16 with its end).
const NAME_MOST: usize = 15;

/// An IP address, and its zone where it has one.
#[derive(Clone, PartialEq, Eq)]
pub struct ZonedAddress {
    /// The address.
    pub ip: IpAddr,
    /// Name or number of the interface; only link-local addresses have one.
    pub zone: Option<String>,
}

impl fmt::Display for ZonedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "{}%{zone}", self.ip),
            None => self.ip.fmt(f),
        }
    }
}

/// As it is written.
impl fmt::Debug for ZonedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<IpAddr> for ZonedAddress {
    fn from(ip: IpAddr) -> ZonedAddress {
        ZonedAddress { ip, zone: None }
    }
}

impl ZonedAddress {
    /// Reads one; `None` when the text is no address, or has a zone that it cannot have.
    pub(super) fn read(text: &str) -> Option<ZonedAddress> {
        let (ip, zone) = apart(text);
        let address = ZonedAddress {
            ip: ip.parse().ok()?,
            zone: zone.map(str::to_owned),
        };
        let fits = zone.is_none_or(|zone| is_name(zone) && is_link_local(&address.ip));
        fits.then_some(address)
    }

    /// The same, in brackets or without.
    pub(super) fn written(text: &str) -> Option<ZonedAddress> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        ZonedAddress::read(bare.unwrap_or(text))
    }

    /// It is link-local, and nothing says on which interface.
    pub(super) fn lacks_zone(&self) -> bool {
        self.zone.is_none() && is_link_local(&self.ip)
    }
}

/// `fe80::/10` (RFC 4291 section 2.5.6). IPv4 has link-local addresses too, and no way to name an interface with them.
fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// What stands before the first `%`, and what behind it.
pub(super) fn apart(text: &str) -> (&str, Option<&str>) {
    match text.split_once('%') {
        Some((ip, zone)) => (ip, Some(zone)),
        None => (text, None),
    }
}

fn is_name(zone: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '%' | '[' | ']');
    (1..=NAME_MOST).contains(&zone.len()) && zone.chars().all(plain)
}

/// Takes what stands in the brackets of a URL apart: the address, and the zone behind `%25` (RFC 6874), or behind a bare `%` as people
/// write it. The error is the end of a sentence that begins with the URL.
pub(super) fn of_url(text: &str) -> Result<ZonedAddress, String> {
    let (ip, zone) = apart(text);
    let wrong = || Err(format!("has [{text}], which is no IPv6 address"));
    let Ok(IpAddr::V6(v6)) = ip.parse() else {
        return wrong();
    };
    let ip = IpAddr::V6(v6);
    let Some(zone) = zone else {
        return Ok(ip.into());
    };
    let zone = zone.strip_prefix("25").unwrap_or(zone);
    let decoded = super::url::percent_decoded(zone).and_then(|zone| String::from_utf8(zone).ok());
    let Some(zone) = decoded.filter(|zone| is_name(zone)) else {
        return Err(format!(
            "has [{text}], whose zone is no name or number of a network interface; write [fe80::1%25eth0]"
        ));
    };
    if !is_link_local(&ip) {
        return Err(format!(
            "has [{text}], and only link-local addresses (fe80::/10) have a zone; leave %25{zone} out"
        ));
    }
    Ok(ZonedAddress {
        ip,
        zone: Some(zone),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_zones_where_they_may() {
        for (text, ip, zone) in [
            ("fe80::1%eth0", "fe80::1", Some("eth0")),
            ("fe80::1%3", "fe80::1", Some("3")),
            ("febf::1%br-0.5", "febf::1", Some("br-0.5")),
            ("fe80::1", "fe80::1", None),
            ("10.0.0.1", "10.0.0.1", None),
        ] {
            let read = ZonedAddress::read(text).unwrap();
            assert_eq!(read.ip, ip.parse::<IpAddr>().unwrap(), "{text}");
            assert_eq!(read.zone.as_deref(), zone, "{text}");
            assert_eq!(read.to_string(), text);
        }
        for text in [
            "fe80::1%",
            "fe80::1%a/b",
            "fe80::1%sixteen-letters-",
            "fe80::1%a%b",
            "fec0::1%eth0",
            "::1%lo",
            "10.0.0.1%eth0",
            "eth0",
        ] {
            assert_eq!(ZonedAddress::read(text), None, "{text}");
        }
        assert!(ZonedAddress::read("fe80::1").unwrap().lacks_zone());
        assert!(!ZonedAddress::read("fe80::1%2").unwrap().lacks_zone());
        assert!(!ZonedAddress::read("169.254.0.1").unwrap().lacks_zone());
    }

    #[test]
    fn a_url_s_zone_stands_behind_a_percent_sign_that_is_escaped() {
        for (text, right) in [
            ("fe80::1%25eth0", Some("eth0")),
            ("fe80::1%eth0", Some("eth0")),
            ("fe80::1%252", Some("2")),
            ("fe80::1%25br%2D0", Some("br-0")),
            ("::1", None),
        ] {
            assert_eq!(of_url(text).unwrap().zone.as_deref(), right, "{text}");
        }
        for (text, why) in [
            ("fe80::1%25", "no name or number"),
            ("fe80::1%", "no name or number"),
            ("fe80::1%25a%zz", "no name or number"),
            ("fe80::1%25a%2Fb", "no name or number"),
            ("2001:db8::1%25eth0", "leave %25eth0 out"),
            ("10.0.0.1", "no IPv6 address"),
            ("fe80:::1%25eth0", "no IPv6 address"),
        ] {
            let error = of_url(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
