//! Which addresses the names of URLs have.
//!
//! In: the plan, the system's resolver. Out: addresses for each URL, in the order in which they are tried. Never: asks on a worker's thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use crate::config::{EndpointPlan, IpVersion, NetworkPlan, TargetUrl, ZonedAddress};
use crate::driver::SocketOptions;

use super::RunError;
use super::zones;

/// What sockets are to be like.
///
/// # Errors
///
/// A local address is on an interface that is not there.
pub(super) fn socket_options(plan: &NetworkPlan) -> Result<SocketOptions, RunError> {
    let local = plan.local_addresses.iter();
    let local = local.map(|address| zones::place(address, 0, "--local-address"));
    Ok(SocketOptions {
        unix_path: plan.unix_socket.clone(),
        local_addresses: local.collect::<Result<_, _>>()?,
        interface: plan.interface.clone(),
        nagle: plan.nagle,
        quick_ack: plan.quick_ack,
        receive_buffer_bytes: plan.receive_buffer_bytes,
        send_buffer_bytes: plan.send_buffer_bytes,
    })
}

/// Where connections for each URL go.
///
/// # Errors
///
/// A name has no address that may be used.
pub(super) fn addresses(endpoint: &EndpointPlan) -> Result<Vec<Vec<SocketAddr>>, RunError> {
    let network = &endpoint.network;
    if network.unix_socket.is_some() {
        // The drivers connect to the path, whatever address is asked for.
        let placeholder = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        return Ok(vec![vec![placeholder]; endpoint.urls.len()]);
    }
    let usable = socket_options(network)?;
    let urls = endpoint.urls.iter();
    urls.map(|url| of_url(network, &usable, url)).collect()
}

/// The same during the run, but for names that have no address any more: their lists are empty.
pub(super) fn still(endpoint: &EndpointPlan) -> Vec<Vec<SocketAddr>> {
    let network = &endpoint.network;
    let usable = socket_options(network);
    let of = |url| of_url(network, usable.as_ref().ok()?, url).ok();
    let urls = endpoint.urls.iter();
    urls.map(|url| of(url).unwrap_or_default()).collect()
}

fn of_url(
    network: &NetworkPlan,
    usable: &SocketOptions,
    url: &TargetUrl,
) -> Result<Vec<SocketAddr>, RunError> {
    let (host, zone, port, flag, shown) = match &network.proxy {
        Some(proxy) => (
            &proxy.host,
            &proxy.zone,
            proxy.port,
            "--proxy",
            proxy.shown(),
        ),
        None => (&url.host, &url.zone, url.port, "--url", url.base.clone()),
    };
    let refused = |source| RunError::Resolve {
        flag,
        url: shown.clone(),
        host: host.clone(),
        source,
    };
    let found = match given(network, host, zone.as_ref(), port) {
        Some((addresses, named)) => {
            let flag = named.unwrap_or(flag);
            let places = addresses.iter().map(|a| zones::place(a, port, flag));
            places.collect::<Result<Vec<_>, _>>()?
        }
        None => (host.as_str(), port)
            .to_socket_addrs()
            .map_err(refused)?
            .collect(),
    };
    let found = in_turn(&found);
    if found.is_empty() {
        return Err(refused(std::io::ErrorKind::NotFound.into()));
    }
    let version = network.ip_version;
    let found: Vec<_> = found
        .into_iter()
        .filter(|address| version.holds(&address.ip()))
        .collect();
    if found.is_empty() {
        let version = if version == IpVersion::V4 { 4 } else { 6 };
        return Err(RunError::IpVersion(host.clone(), version));
    }
    let found = usable.reachable(&found);
    if found.is_empty() {
        return Err(RunError::LocalAddress(host.clone()));
    }
    Ok(found)
}

/// Addresses that need no look-up: those of `--resolve`, which is then named too, or a literal one with its zone.
fn given(
    network: &NetworkPlan,
    host: &str,
    zone: Option<&String>,
    port: u16,
) -> Option<(Vec<ZonedAddress>, Option<&'static str>)> {
    let mut entries = network.resolve.iter();
    if let Some(entry) = entries.find(|entry| entry.is_for(host, port)) {
        return Some((entry.addresses.clone(), Some("--resolve")));
    }
    let ip = host.parse().ok()?;
    let zone = zone.cloned();
    Some((vec![ZonedAddress { ip, zone }], None))
}

/// The addresses of one name, once each, families in turn, IPv4 first: servers that listen on 127.0.0.1 alone are common, and a family
/// that is dead costs no more than one try (RFC 8305 section 4).
fn in_turn(found: &[SocketAddr]) -> Vec<SocketAddr> {
    let of = |wanted: fn(&IpAddr) -> bool| {
        let mut fitting: Vec<SocketAddr> = Vec::new();
        for address in found.iter().filter(|address| wanted(&address.ip())) {
            if !fitting.contains(address) {
                fitting.push(*address);
            }
        }
        fitting
    };
    let (mut v4, mut v6) = (
        of(IpAddr::is_ipv4).into_iter(),
        of(IpAddr::is_ipv6).into_iter(),
    );
    let mut all = Vec::with_capacity(found.len());
    loop {
        let (one, other) = (v4.next(), v6.next());
        if one.is_none() && other.is_none() {
            return all;
        }
        all.extend(one.into_iter().chain(other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Resolve;

    #[test]
    fn families_take_turns_and_ipv4_is_first() {
        let of = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let found = of(&[
            "[::1]:1",
            "[::2]:1",
            "[::3]:1",
            "1.1.1.1:1",
            "1.1.1.2:1",
            "[::1]:1",
        ]);
        let right = of(&["1.1.1.1:1", "[::1]:1", "1.1.1.2:1", "[::2]:1", "[::3]:1"]);
        assert_eq!(in_turn(&found), right);
        assert!(in_turn(&[]).is_empty());
    }

    #[test]
    fn an_address_that_is_given_takes_the_place_of_the_name_s_own() {
        let entry = |host: Option<&str>, port, ip: &str| Resolve {
            host: host.map(str::to_owned),
            port,
            addresses: vec![ip.parse::<IpAddr>().unwrap().into()],
        };
        let network = NetworkPlan {
            resolve: vec![
                entry(Some("No-Such.invalid"), 80, "127.0.0.9"),
                entry(None, 81, "::1"),
            ],
            ..NetworkPlan::default()
        };
        let found = |host: &str, port| given(&network, host, None, port);
        let one = |text: &str, flag| Some((vec![text.parse::<IpAddr>().unwrap().into()], flag));
        let resolve = Some("--resolve");
        assert_eq!(found("no-such.invalid", 80), one("127.0.0.9", resolve));
        assert_eq!(found("anything", 81), one("::1", resolve));
        assert_eq!(found("127.0.0.1", 80), one("127.0.0.1", None));
        assert_eq!(found("localhost", 80), None);
    }
}
