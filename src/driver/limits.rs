//! Whether this machine can carry a load.
//!
//! In: what a run needs, and what the machine allows. Out: refusals and warnings, each with the number that is needed and how to set it.
//! Never: asks the machine, or lets a run begin that must fail for a limit.

use std::net::{IpAddr, SocketAddr};

use super::facts::{Facts, Way};

mod ports;

/// Part of a limit that is near it: nine tenths.
const NEAR: (u64, u64) = (9, 10);

/// What a run needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// The most connections at once.
    pub connections: u64,
    /// Where they go.
    pub destinations: Vec<Destination>,
    /// Addresses of this machine that they come from, in turn; the system chooses when empty.
    pub sources: Vec<IpAddr>,
    /// Ports that the workers listen on for themselves, which no connection gets then: to begin with the kernel's stamps each keeps one.
    pub own_ports: u64,
    /// Both ends of each connection are in this process.
    pub both_ends: bool,
    /// All connections are opened at once.
    pub at_once: bool,
    /// Bytes of memory that the workers' rings lock.
    pub locked: u64,
}

impl Needs {
    /// Every way that connections go.
    #[must_use]
    pub fn ways(&self) -> Vec<Way> {
        let all = self.destinations.iter();
        all.flat_map(|destination| self.ways_to(destination.to))
            .collect()
    }

    /// The ways to one server.
    fn ways_to(&self, to: SocketAddr) -> Vec<Way> {
        let same = |from: &&IpAddr| from.is_ipv4() == to.is_ipv4();
        let from: Vec<_> = self.sources.iter().filter(same).copied().collect();
        if from.is_empty() {
            return vec![Way { from: None, to }];
        }
        let from = from.into_iter().map(Some);
        from.map(|from| Way { from, to }).collect()
    }
}

/// A server's address, and what a run does there.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    /// The address.
    pub to: SocketAddr,
    /// The most connections to it at once.
    pub connections: u64,
    /// Each request has a connection of its own, which the client closes; `None` where connections are kept.
    pub closing: Option<Closing>,
}

/// Connections that are closed, each of which leaves its port in `TIME_WAIT`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Closing {
    /// The most a second, where something bounds them.
    pub per_second: Option<f64>,
    /// In all, likewise.
    pub count: Option<u64>,
}

/// A limit that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The run cannot go well.
    Refusal(String),
    /// It can, but little more fits; or it goes another way.
    Warning(String),
}

/// Holds `needs` against `facts`.
#[must_use]
pub fn judge(needs: &Needs, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for destination in &needs.destinations {
        findings.extend(ports::judge(needs, destination, facts));
    }
    findings.extend(tracked(needs, facts));
    findings.extend(files(needs, facts));
    findings.extend(locked(needs, facts));
    findings.extend(backlog(needs, facts));
    findings
}

/// `needed` of `free`: too many, near it, or fine.
fn weigh(needed: u64, free: u64, text: impl FnOnce() -> String) -> Option<Finding> {
    if needed > free {
        Some(Finding::Refusal(text()))
    } else if needed * NEAR.1 > free * NEAR.0 {
        Some(Finding::Warning(text()))
    } else {
        None
    }
}

fn tracked(needs: &Needs, facts: &Facts) -> Option<Finding> {
    let (count, most) = facts.tracked?;
    let text = || {
        let needed = count + needs.connections;
        format!(
            "{} connections need as many entries in the firewall's table, which has {count} of {most}: sysctl -w net.netfilter.nf_conntrack_max={needed}",
            needs.connections
        )
    };
    match weigh(needs.connections, most.saturating_sub(count), text) {
        // An empty table is one that no rule fills: it may stay so.
        Some(Finding::Refusal(text)) if count == 0 => Some(Finding::Warning(text)),
        finding => finding,
    }
}

fn files(needs: &Needs, facts: &Facts) -> Option<Finding> {
    let (open, most) = facts.files?;
    let needed = needs.connections * if needs.both_ends { 2 } else { 1 };
    weigh(needed, most.saturating_sub(open), || {
        format!(
            "this run needs {needed} open files, and the whole machine has {open} open of {most}: sysctl -w fs.file-max={}",
            open + needed
        )
    })
}

fn locked(needs: &Needs, facts: &Facts) -> Option<Finding> {
    let most = facts.lockable?;
    (needs.locked > most).then(|| {
        Finding::Warning(format!(
            "the workers' rings need {} KiB of locked memory where the kernel counts it, and {} KiB are allowed: ulimit -l {}; else they get smaller rings, or the portable driver",
            needs.locked.div_ceil(1_024),
            most / 1_024,
            needs.locked.div_ceil(1_024)
        ))
    })
}

fn backlog(needs: &Needs, facts: &Facts) -> Option<Finding> {
    let most = facts.backlog?;
    (needs.both_ends && needs.at_once && needs.connections > most).then(|| {
        Finding::Warning(format!(
            "{} connections are opened at once, and a listener keeps {most} waiting: sysctl -w net.core.somaxconn={}, or use --concurrency-ramp-duration",
            needs.connections, needs.connections
        ))
    })
}

#[cfg(test)]
#[path = "limits/tests.rs"]
mod tests;
