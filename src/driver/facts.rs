//! What this machine allows, as far as it limits a load.
//!
//! In: files below `/proc`, or a copy of them. Out: numbers, none where a file says nothing. Never: changes a setting, or takes what it
//! cannot read for a limit.

use std::fs;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use taken::Ports;

mod taken;

pub use taken::{Taken, Way};

/// Where the kernel tells of itself.
pub(super) const PROC: &str = "/proc";

/// `CAP_IPC_LOCK`: who has it may lock any amount of memory.
const IPC_LOCK: u32 = 14;

/// Limits of this machine and this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// First and last port that the kernel gives to connections.
    pub ports: Option<(u16, u16)>,
    /// Ports in that range that it gives to none.
    pub reserved: u64,
    /// Of each way that was asked about: local ports that it cannot have.
    pub taken: Vec<(Way, Taken)>,
    /// Where a port in `TIME_WAIT` can be used again.
    pub reuse: Reuse,
    /// Sockets that may be in `TIME_WAIT`; beyond that one ends at once.
    pub most_resting: Option<u64>,
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
    /// Reads them below `root`, which is `/proc`; `ways` are those that a load goes.
    #[must_use]
    pub fn read(root: &Path, ways: &[Way]) -> Facts {
        let range = port_range(root);
        let ports = range.map(|(low, high)| low..=high);
        let reserved = ports.as_ref().map(|ports| reserved(root, ports));
        let reuse = Reuse::read(root);
        let taken = ports.iter().zip(&reserved).flat_map(|(ports, reserved)| {
            let again = |to| reuse.is_for(to);
            taken::taken(root, ways, ports, reserved, again)
        });
        let taken = ways.iter().copied().zip(taken).collect();
        let pair = |used, most| Some((number(root, used)?, number(root, most)?));
        Facts {
            ports: range,
            reserved: reserved.map_or(0, |reserved| reserved.count()),
            taken,
            reuse,
            most_resting: number(root, "sys/net/ipv4/tcp_max_tw_buckets"),
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
    pub fn here(ways: &[Way]) -> Facts {
        Facts::read(PROC.as_ref(), ways)
    }
}

/// Where a port in `TIME_WAIT` can be used again, a second after it came to be so (`net.ipv4.tcp_tw_reuse`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Nowhere.
    Never,
    /// Towards this machine's loopback addresses, as Linux has it by default.
    #[default]
    Loopback,
    /// Towards every address.
    Always,
}

impl Reuse {
    fn read(root: &Path) -> Reuse {
        // The kernel tells an old segment from a new one by its time stamp.
        let stamps = number(root, "sys/net/ipv4/tcp_timestamps");
        match (number(root, "sys/net/ipv4/tcp_tw_reuse"), stamps) {
            (_, Some(0)) | (Some(0), _) => Reuse::Never,
            (Some(1), _) => Reuse::Always,
            _ => Reuse::Loopback,
        }
    }

    /// It can, towards `to`.
    #[must_use]
    pub fn is_for(self, to: IpAddr) -> bool {
        match self {
            Reuse::Never => false,
            Reuse::Loopback => to.to_canonical().is_loopback(),
            Reuse::Always => true,
        }
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

/// Those of `ports` that `8080,9000-9010` names.
fn reserved(root: &Path, ports: &RangeInclusive<u16>) -> Ports {
    let text = fs::read_to_string(root.join("sys/net/ipv4/ip_local_reserved_ports"));
    let text = text.unwrap_or_default();
    let mut all = Ports::new();
    let spans = text.trim().split(',').filter_map(|span| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
    });
    for (first, last) in spans {
        let inside = first.max(*ports.start())..=last.min(*ports.end());
        inside.for_each(|port| all.insert(port));
    }
    all
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
