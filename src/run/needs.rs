//! What a plan needs of the machine, and whether it is there.
//!
//! In: a plan with its addresses, cores. Out: notes, or a refusal, before anything is sent. Never: a guess at what only the load can
//! show: a rate without a limit on open sessions may need any number.

use std::net::SocketAddr;

use crate::config::{Arrivals, DriverKind, Plan, UrlStrategy};
use crate::driver::{Driver, Facts, Finding, Needs, judge, make_room};

use super::RunError;
use super::cores::Cores;

/// Descriptors of a worker, or of a thread of the built-in server, beside its connections.
const FILES_PER_THREAD: u64 = 4;

/// Open files are allowed for the plan's connections; asked before the built-in server opens any.
pub(super) fn open_files(plan: &Plan, cores: &Cores) -> Result<(), RunError> {
    // The built-in server holds the other end of each connection in this process.
    let ends = if plan.endpoint.built_in_server { 2 } else { 1 };
    let threads = (cores.workers.len() + cores.server.len()).saturating_sub(1) as u64;
    make_room(connections(plan) * ends + FILES_PER_THREAD * threads)?;
    Ok(())
}

/// Holds the plan against the machine's other limits; says what is near one. `addresses` are those of each URL.
pub(super) fn check(
    plan: &Plan,
    addresses: &[Vec<SocketAddr>],
    cores: &Cores,
) -> Result<Vec<String>, RunError> {
    let needs = of(plan, addresses, cores.workers.len());
    let destinations: Vec<SocketAddr> = needs.destinations.iter().map(|&(to, _)| to).collect();
    let mut warnings = Vec::new();
    for finding in judge(&needs, &Facts::here(&destinations)) {
        match finding {
            Finding::Refusal(text) => return Err(RunError::Limits(text)),
            Finding::Warning(text) => warnings.push(text),
        }
    }
    Ok(warnings)
}

/// The most connections at once, as far as the plan bounds them.
fn connections(plan: &Plan) -> u64 {
    let phases = plan.phases.iter().map(|phase| {
        let slots = match &phase.arrivals {
            Arrivals::Users(users) => phase.concurrency.or(usize::try_from(users.users).ok()),
            _ => phase.concurrency,
        };
        slots.unwrap_or(1).max(phase.slots.pre_connect) as u64
    });
    phases.max().unwrap_or(1)
}

fn of(plan: &Plan, addresses: &[Vec<SocketAddr>], workers: usize) -> Needs {
    let connections = connections(plan);
    let endpoint = &plan.endpoint;
    let weights = match &endpoint.url_strategy {
        UrlStrategy::RoundRobin => vec![1; addresses.len()],
        UrlStrategy::Weighted(weights) => weights.iter().map(|&weight| u64::from(weight)).collect(),
    };
    let all: u64 = weights.iter().sum::<u64>().max(1);
    let mut destinations: Vec<(SocketAddr, u64)> = Vec::new();
    for (to, weight) in addresses.iter().zip(weights) {
        // The first address is used as long as it answers.
        let Some(&to) = to.first() else { continue };
        let share = (connections * weight).div_ceil(all);
        match destinations.iter_mut().find(|(other, _)| *other == to) {
            Some((_, count)) => *count = (*count + share).min(connections),
            None => destinations.push((to, share)),
        }
    }
    let slots = plan.phases.iter().map(|phase| &phase.slots);
    Needs {
        connections,
        destinations,
        both_ends: endpoint.built_in_server,
        at_once: slots
            .clone()
            .any(|s| s.concurrency_ramp.is_none() && s.pre_connect == 0),
        locked: match plan.workers.driver {
            DriverKind::Portable => 0,
            DriverKind::Auto | DriverKind::Ring => workers as u64 * Driver::locked_bytes(),
        },
    }
}
