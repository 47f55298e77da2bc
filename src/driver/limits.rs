//! Whether this machine can carry a load.
//!
//! In: what a run needs, and what the machine allows. Out: refusals and warnings, each with the number that is needed and how to set it.
//! Never: asks the machine, or lets a run begin that must fail for a limit.

use std::net::SocketAddr;

use super::facts::Facts;

/// Part of a limit that is near it: nine tenths.
const NEAR: (u64, u64) = (9, 10);

/// The lowest port that may be given to connections.
const LOWEST_PORT: u64 = 1_024;

/// One past the highest port.
const PORTS_END: u64 = 65_536;

/// What a run needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The most connections at once.
    pub connections: u64,
    /// Of those, the most to each destination.
    pub destinations: Vec<(SocketAddr, u64)>,
    /// Both ends of each connection are in this process.
    pub both_ends: bool,
    /// All connections are opened at once.
    pub at_once: bool,
    /// Bytes of memory that the workers' rings lock.
    pub locked: u64,
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
    for &(to, connections) in &needs.destinations {
        findings.extend(ports(to, connections, facts));
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

fn ports(to: SocketAddr, connections: u64, facts: &Facts) -> Option<Finding> {
    let (low, high) = facts.ports?;
    let held = facts.held.iter().find(|(other, _)| *other == to);
    let held = held.map_or(0, |&(_, count)| count);
    let range = u64::from(high - low) + 1;
    let free = range.saturating_sub(facts.reserved + held);
    weigh(connections, free, || {
        let remedy = match (PORTS_END - LOWEST_PORT)
            .checked_sub(connections + facts.reserved + held)
        {
            Some(_) => {
                let first =
                    (u64::from(high) + 1).saturating_sub(connections + facts.reserved + held);
                let (first, last) = if first >= LOWEST_PORT {
                    (first.min(u64::from(low)), u64::from(high))
                } else {
                    (LOWEST_PORT, PORTS_END - 1)
                };
                format!(
                    "sysctl -w net.ipv4.ip_local_port_range=\"{first} {last}\", or give the server more addresses with several --url"
                )
            }
            None => "no range holds so many: give the server more addresses with several --url"
                .to_owned(),
        };
        format!(
            "{connections} connections to {to} need as many local ports, and {free} are free ({low} to {high}, less {held} in use and {} reserved): {remedy}",
            facts.reserved
        )
    })
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
