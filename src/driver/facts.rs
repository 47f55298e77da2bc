//! What this machine allows, as far as it limits a load.
//!
//! In: files below `/proc`, or a copy of them. Out: numbers, none where a file says nothing. Never: changes a setting, or takes what it
//! cannot read for a limit.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Where the kernel tells of itself.
pub(super) const PROC: &str = "/proc";

/// `CAP_IPC_LOCK`: who has it may lock any amount of memory.
const IPC_LOCK: u32 = 14;

/// Sockets in `TIME_WAIT`, as `/proc/net/tcp` writes it.
const TIME_WAIT: &str = "06";

/// Limits of this machine and this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// First and last port that the kernel gives to connections.
    pub ports: Option<(u16, u16)>,
    /// Ports in that range that it gives to none.
    pub reserved: u64,
    /// Of a destination: local ports that are in use towards it.
    pub held: Vec<(SocketAddr, u64)>,
    /// Connections in the firewall's table, and the most it holds.
    pub tracked: Option<(u64, u64)>,
    /// Bytes of memory that this process may lock; none where nothing limits it.
    pub lockable: Option<u64>,
    /// The most connections that a listener of this machine keeps waiting.
    pub backlog: Option<u64>,
    /// Open files of the whole machine, and the most it allows.
    pub files: Option<(u64, u64)>,
}

impl Facts {
    /// Reads them below `root`, which is `/proc`; `destinations` are addresses that a load goes to.
    #[must_use]
    pub fn read(root: &Path, destinations: &[SocketAddr]) -> Facts {
        let ports = port_range(root);
        let held = destinations
            .iter()
            .map(|&to| (to, ports_held(root, to, ports)));
        let pair = |used, most| Some((number(root, used)?, number(root, most)?));
        Facts {
            ports,
            reserved: reserved(root, ports),
            held: held.collect(),
            tracked: pair(
                "sys/net/netfilter/nf_conntrack_count",
                "sys/net/netfilter/nf_conntrack_max",
            ),
            lockable: lockable(root),
            backlog: number(root, "sys/net/core/somaxconn"),
            files: pair("sys/fs/file-nr", "sys/fs/file-max"),
        }
    }

    /// Those of this process, now.
    #[must_use]
    pub fn here(destinations: &[SocketAddr]) -> Facts {
        Facts::read(PROC.as_ref(), destinations)
    }
}

/// First and last port that the kernel gives to connections.
pub(super) fn port_range(root: &Path) -> Option<(u16, u16)> {
    let text = fs::read_to_string(root.join("sys/net/ipv4/ip_local_port_range")).ok()?;
    let mut words = text.split_whitespace().map(str::parse);
    let (low, high) = (words.next()?.ok()?, words.next()?.ok()?);
    (low <= high).then_some((low, high))
}

/// The first number of a file.
fn number(root: &Path, path: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// `8080,9000-9010`.
fn reserved(root: &Path, ports: Option<(u16, u16)>) -> u64 {
    let text = fs::read_to_string(root.join("sys/net/ipv4/ip_local_reserved_ports"));
    let (Ok(text), Some((low, high))) = (text, ports) else {
        return 0;
    };
    let spans = text.trim().split(',').filter_map(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
    });
    let inside = spans.map(|(first, last)| {
        let (first, last) = (first.max(low), last.min(high));
        u64::from((last + 1).saturating_sub(first))
    });
    inside.sum()
}

/// Local ports of the range that are in use towards `to`. On this machine itself a port in `TIME_WAIT` can be used again.
fn ports_held(root: &Path, to: SocketAddr, ports: Option<(u16, u16)>) -> u64 {
    let (file, remote) = match to.ip() {
        IpAddr::V4(ip) => ("net/tcp", words(&ip.octets())),
        IpAddr::V6(ip) => ("net/tcp6", words(&ip.octets())),
    };
    let remote = format!("{remote}:{:04X}", to.port());
    let (Ok(text), Some((low, high))) = (fs::read_to_string(root.join(file)), ports) else {
        return 0;
    };
    let held = text.lines().skip(1).filter(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (Some(local), Some(other), Some(state)) = (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        let port = local
            .rsplit_once(':')
            .and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        other == remote
            && port.is_some_and(|port| (low..=high).contains(&port))
            && !(state == TIME_WAIT && to.ip().is_loopback())
    });
    held.count() as u64
}

/// An address as the kernel prints it: words of four bytes, each as this machine reads it.
fn words(octets: &[u8]) -> String {
    let words = octets.chunks_exact(4).map(|word| {
        let word = [word[0], word[1], word[2], word[3]];
        format!("{:08X}", u32::from_ne_bytes(word))
    });
    words.collect()
}

/// What may be locked; none for those that nothing limits.
fn lockable(root: &Path) -> Option<u64> {
    let status = fs::read_to_string(root.join("self/status")).ok()?;
    let held = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(held.trim(), 16).ok()?;
    if held >> IPC_LOCK & 1 == 1 {
        return None;
    }
    let limits = fs::read_to_string(root.join("self/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}
