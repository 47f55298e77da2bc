//! What a plan needs of the machine, and whether it is there.
//!
//! In: a plan with its addresses, cores. Out: notes, or a refusal, before anything is sent. Never: a guess at what only the load can
//! show: a rate without a limit on open sessions may need any number.

use std::net::SocketAddr;

use crate::config::{Arrivals, ConnectionReuse, DriverKind, PhasePlan, Plan, UrlStrategy};
use crate::driver::{Closing, Destination, Driver, Facts, Finding, Needs, judge, make_room};

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
    let mut warnings = Vec::new();
    for finding in judge(&needs, &Facts::here(&needs.ways())) {
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

/// Connections that are closed, where each request has its own, as far as the plan bounds them.
fn closing(plan: &Plan) -> Closing {
    let per_second = |phase: &PhasePlan| match &phase.arrivals {
        Arrivals::Rated { rate, .. } => Some(rate.most()),
        Arrivals::Users(users) => Some(users.rate),
        Arrivals::ClosedLoop | Arrivals::FixedSchedule => None,
    };
    let count = |phase: &PhasePlan| {
        let by_time = per_second(phase).zip(phase.stop.duration);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is positive, and the cast saturates"
        )]
        let by_time = by_time.map(|(rate, time)| (rate * time.0 as f64 / 1e9).ceil() as u64);
        phase.stop.requests.into_iter().chain(by_time).min()
    };
    let rates: Option<Vec<f64>> = plan.phases.iter().map(per_second).collect();
    Closing {
        per_second: rates.map(|rates| rates.into_iter().fold(0.0, f64::max)),
        count: plan.phases.iter().map(count).sum(),
    }
}

fn of(plan: &Plan, addresses: &[Vec<SocketAddr>], workers: usize) -> Needs {
    let connections = connections(plan);
    let endpoint = &plan.endpoint;
    let weights = match &endpoint.url_strategy {
        UrlStrategy::RoundRobin => vec![1; addresses.len()],
        UrlStrategy::Weighted(weights) => weights.iter().map(|&weight| u64::from(weight)).collect(),
    };
    let all: u64 = weights.iter().sum::<u64>().max(1);
    let closing = (endpoint.reuse == ConnectionReuse::Never).then(|| closing(plan));
    let mut destinations: Vec<Destination> = Vec::new();
    for (to, weight) in addresses.iter().zip(weights) {
        // The first address is used as long as it answers.
        let Some(&to) = to.first() else { continue };
        let share = |whole: u64| (whole * weight).div_ceil(all);
        let found = destinations.iter().position(|known| known.to == to);
        let index = found.unwrap_or(destinations.len());
        if found.is_none() {
            destinations.push(Destination {
                to,
                connections: 0,
                closing: closing.map(|_| Closing {
                    per_second: Some(0.0),
                    count: Some(0),
                }),
            });
        }
        let known = &mut destinations[index];
        known.connections = (known.connections + share(connections)).min(connections);
        if let (Some(sum), Some(whole)) = (&mut known.closing, closing) {
            let part = weight as f64 / all as f64;
            let per_second = whole.per_second.map(|rate| rate * part);
            sum.per_second = sum.per_second.zip(per_second).map(|(a, b)| a + b);
            sum.count = sum.count.zip(whole.count).map(|(a, b)| a + share(b));
        }
    }
    let slots = plan.phases.iter().map(|phase| &phase.slots);
    let sources = &endpoint.network.local_addresses;
    Needs {
        connections,
        destinations,
        sources: sources.iter().map(|source| source.ip).collect(),
        own_ports: if cfg!(target_os = "linux") {
            workers as u64
        } else {
            0
        },
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
