//! The client's own part of a run: its driver, and what the driver went through.
//!
//! In: the plan's wishes, and what workers left. Out: a driver, and the report about it. Never: a second choice that is not said.

use crate::clock::Nanos;
use crate::config::{Arrivals, DriverKind, PhaseKind, Plan, StampKind, WorkerPlan};
use crate::driver::{Choice, Driver, RingTally, StampSource};
use crate::metric::Summary;
use crate::metric::health::{Health, RingFacts, ScheduleLag, judge};
use crate::report::{ClientReport, HealthReport};

use super::cores::Cores;
use super::{Run, RunError};

/// The driver that the plan asks for and the kernel allows, and whose stamps it takes.
pub(super) fn driver(plan: &WorkerPlan) -> Result<(Driver, StampSource), RunError> {
    let choice = match plan.driver {
        DriverKind::Auto => Choice::Auto,
        DriverKind::Ring => Choice::Ring,
        DriverKind::Portable => Choice::Portable,
    };
    let driver = Driver::choose(choice).map_err(RunError::Ring)?;
    let stamps = match (plan.stamps, driver.has_kernel_stamps()) {
        (Some(StampKind::Kernel), false) => return Err(RunError::Stamps(driver.reason())),
        (Some(StampKind::User), _) | (None, false) => StampSource::User,
        (Some(StampKind::Kernel) | None, true) => StampSource::Kernel,
    };
    Ok((driver, stamps))
}

/// What the client did, for the report.
pub(super) fn report(plan: &Plan, cores: &Cores, run: &Run, profiling: &Summary) -> ClientReport {
    let counts = &run.workers.counts;
    let mut notes = cores.notes.clone();
    if run.overflowed > 0 {
        notes.push(format!(
            "{} finished requests waited on a worker because the recorder was behind; none was lost",
            run.overflowed
        ));
    }
    for reason in &run.workers.stepped_down {
        notes.push(format!(
            "a worker could not open its ring ({reason}) and ran on the portable driver, with user-space stamps"
        ));
    }
    // In a closed loop that only time ends, there is no number that could be missed.
    let open_loop = plan
        .phases
        .iter()
        .any(|p| p.arrivals != Arrivals::ClosedLoop);
    let counted = plan
        .phases
        .iter()
        .any(|p| p.stop.requests.or(p.stop.sessions).is_some());
    let (timer, timer_grain_ns) = run.driver.timer();
    let mut facts = vec![
        ("Timer", timer.to_owned()),
        ("Stamps", stamps(run.stamps).to_owned()),
        ("Connections opened", counts.connects.to_string()),
        (
            "Requests sent again on a new connection",
            counts.resent.to_string(),
        ),
    ];
    facts.extend(ring_facts(&run.workers.tally));
    ClientReport {
        driver: run.driver.name(),
        driver_reason: run.driver.reason(),
        workers: cores.workers.len(),
        cpus: cores.workers.iter().flatten().copied().collect(),
        timer_grain_ns,
        clock_drift_ppm: run.calibration.drift_ppm(),
        clock_error_ns: run.calibration.error().0,
        unsent: (counted || open_loop).then_some(counts.unsent),
        sent: counts.sent,
        overflow_count: run.overflowed,
        coalesced_count: run.recorded.coalesced,
        health: health(plan, run, profiling),
        notes,
        facts: facts
            .into_iter()
            .map(|(label, value)| (label.to_owned(), value))
            .collect(),
    }
}

/// What was measured of the client, judged.
fn health(plan: &Plan, run: &Run, profiling: &Summary) -> HealthReport {
    let tally = &run.workers.tally;
    let health = Health {
        workers: run
            .workers
            .health
            .iter()
            .map(|(_, worker)| *worker)
            .collect(),
        machine: run.machine.clone(),
        ring: RingFacts {
            reads: tally.reads,
            unstamped: tally.unstamped,
            exhausted: tally.exhausted,
            overflows: tally.overflows,
            steps: tally.steps,
        },
        // A worker that lost its ring stamps by itself.
        kernel_stamps: run.stamps == StampSource::Kernel && run.workers.stepped_down.is_empty(),
        window: Nanos(0),
        spins: false,
        timer_grain: Nanos(run.driver.timer().1),
        clock_error: run.calibration.error(),
        mapping_error: run.mapping_error,
        content_events: run.recorded.content_events,
        shared_events: run.recorded.coalesced,
        streams: run.recorded.streams,
        first_shared: run.recorded.first_shared,
        schedule_lag: schedule_lag(plan, profiling),
    };
    HealthReport {
        verdict: judge(&health),
        health,
    }
}

/// How late requests were sent. In a closed loop, and with a cap, the wait for a slot is in it.
fn schedule_lag(plan: &Plan, profiling: &Summary) -> Option<ScheduleLag> {
    let stats = profiling.row("credit_to_start_latency")?.stats;
    let phase = plan.phases.iter().find(|p| p.kind == PhaseKind::Profiling);
    let by_rate =
        phase.is_some_and(|p| p.arrivals != Arrivals::ClosedLoop && p.concurrency.is_none());
    Some(ScheduleLag {
        p50_ms: stats.p50?,
        p99_ms: stats.p99?,
        max_ms: stats.max?,
        is_ours: by_rate,
    })
}

fn stamps(source: StampSource) -> &'static str {
    match source {
        StampSource::User => "user space, after each read and before any parsing",
        StampSource::Kernel => {
            "arrivals by the kernel, on receipt of a read's newest segment; sends and connects in user space"
        }
    }
}

/// What happened on the rings; nothing is said of what did not.
fn ring_facts(tally: &RingTally) -> Vec<(&'static str, String)> {
    let facts = [
        ("Reads without the kernel's stamp", tally.unstamped),
        ("Receives armed again", tally.rearms),
        ("Receives without a free buffer", tally.exhausted),
        ("Completion queue overflows", tally.overflows),
        ("Completions of nobody's operation", tally.stale),
        ("Steps of the wall clock", tally.steps),
    ];
    facts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(label, count)| (label, count.to_string()))
        .collect()
}
