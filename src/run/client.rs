//! The client's own part of a run: its driver, and what the driver went through.
//!
//! In: the plan's wishes, and what workers left. Out: a driver, and the report about it. Never: a second choice that is not said.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::clock::{Calibration, Clock, Nanos, Rate};
use crate::config::{
    Arrivals, DriverKind, LatePolicy, NetworkPlan, PhaseKind, Plan, StampKind, WaitKind,
};
use crate::driver::{
    Choice, Driver, GivenBuffers, RingTally, SocketOptions, StampSource, WaitMode, Waiting, Window,
    priority,
};
use crate::engine::{Arrived, Counts, Leftover};
use crate::metric::Summary;
use crate::metric::health::{Health, RingFacts, ScheduleLag, judge};
use crate::report::{ClientReport, HealthReport};

use super::cores::Cores;
use super::feeder::FedTally;
use super::names;
use super::{Run, RunError};

/// How workers reach the kernel in a run.
#[derive(Clone)]
pub(super) struct Reach {
    /// The driver that the plan asks for and the kernel allows.
    pub(super) driver: Driver,
    /// Whose stamps it takes.
    pub(super) stamps: StampSource,
    /// How it waits.
    pub(super) waiting: Waiting,
    /// Workers have real-time priority, for which all is prepared.
    pub(super) realtime: bool,
    /// What sockets are like.
    pub(super) sockets: Arc<SocketOptions>,
    /// What the kernel made of their sizes.
    buffers: GivenBuffers,
}

/// How the plan's workers reach the kernel, and servers at `addresses`.
pub(super) fn reach(plan: &Plan, addresses: &[SocketAddr]) -> Result<Reach, RunError> {
    let (plan, network) = (&plan.workers, &plan.endpoint.network);
    let unix = network.unix_socket.is_some();
    let sockets = names::socket_options(network)?;
    let buffers = sockets.try_out(if unix { &[] } else { addresses })?;
    let choice = match plan.driver {
        DriverKind::Auto => Choice::Auto,
        DriverKind::Ring => Choice::Ring,
        DriverKind::Portable => Choice::Portable,
    };
    let driver = Driver::choose(choice).map_err(RunError::Ring)?;
    let stamps = match (plan.stamps, driver.has_kernel_stamps()) {
        (Some(StampKind::Kernel), false) => return Err(RunError::Stamps(driver.reason())),
        (Some(StampKind::Kernel), true) if unix => return Err(RunError::UnixStamps),
        (None, true) if unix => StampSource::User,
        (Some(StampKind::User), _) | (None, false) => StampSource::User,
        (Some(StampKind::Kernel) | None, true) => StampSource::Kernel,
    };
    let waiting = Waiting {
        mode: match plan.wait.mode {
            WaitKind::Sleep => WaitMode::Sleep,
            WaitKind::Hybrid => WaitMode::Hybrid,
            WaitKind::Spin => WaitMode::Spin,
        },
        spin: plan.wait.spin,
        window: plan.wait.window.map_or(Window::Auto, Window::Fixed),
    };
    if !driver.can_wait(waiting.mode) {
        return Err(RunError::Spin(driver.reason()));
    }
    if plan.wait.realtime {
        priority::prepare()?;
    }
    Ok(Reach {
        driver,
        stamps,
        waiting,
        realtime: plan.wait.realtime,
        sockets: Arc::new(sockets),
        buffers,
    })
}

/// What the client did, for the report.
pub(super) fn report(plan: &Plan, cores: &Cores, run: &Run, profiling: &Summary) -> ClientReport {
    let counts = &run.workers.counts;
    // As `sent`, of profiling. In a closed loop that only time ends, there is no number that could be missed.
    let phase = plan.profiling();
    let open_loop = phase.arrivals != Arrivals::ClosedLoop;
    let counted = phase.stop.requests.or(phase.stop.sessions).is_some();
    let skips = phase.late == LatePolicy::Skip;
    let reach = &run.reach;
    let (timer, timer_grain_ns) = reach.driver.timer();
    let mut facts = vec![
        ("Timer", timer.to_owned()),
        ("Waiting", waiting(reach)),
        ("Stamps", stamps(reach.stamps).to_owned()),
        ("Clock", clock(&run.clock, &run.calibration)),
        ("Connections opened", connections(counts)),
        (
            "Requests sent again on a new connection",
            counts.resent.to_string(),
        ),
    ];
    if run.workers.tally.mapping_error_ns > 0 {
        facts.push((
            "Kernel stamps mapped to the clock",
            format!("within {} ns", run.workers.tally.mapping_error_ns),
        ));
    }
    if counts.idle_closed > 0 {
        let text = counts.idle_closed.to_string();
        facts.push(("Idle connections closed", text));
    }
    if let Some(told) = &run.names {
        facts.push(("Names looked up again", told.clone()));
    }
    facts.extend(used_addresses(plan, run));
    facts.extend(buffers(&plan.endpoint.network, reach.buffers));
    if let Some(fed) = &run.fed {
        let made = format!("{}, {} of them not ready in time", fed.made, fed.late);
        facts.push(("Bodies made during the run", made));
    }
    let warmup = counts.warmup;
    if unsent(warmup) + warmup.skipped > 0 {
        let (unsent, skipped) = (unsent(warmup), warmup.skipped);
        facts.push((
            "Of the warmup",
            format!("{unsent} unsent, {skipped} left out because late"),
        ));
    }
    let rate = run.clock.rate();
    facts.extend(windows(&run.workers.tally, &run.workers.arrived, rate));
    facts.extend(ring_facts(&run.workers.tally));
    ClientReport {
        driver: reach.driver.name(),
        driver_reason: reach.driver.reason(),
        workers: cores.workers.len(),
        cpus: cores.workers.iter().flatten().copied().collect(),
        timer_grain_ns,
        clock_drift_ppm: run.calibration.drift_ppm(),
        clock_error_ns: run.calibration.error().0,
        unsent: (counted || open_loop).then_some(unsent(counts.profiling)),
        skipped: skips.then_some(counts.profiling.skipped),
        sent: counts.sent,
        overflow_count: run.recorded.backlog.overflowed,
        coalesced_count: run.recorded.coalesced,
        health: health(plan, run, profiling),
        notes: notes(plan, cores, run),
        facts: facts
            .into_iter()
            .map(|(label, value)| (label.to_owned(), value))
            .collect(),
    }
}

fn unsent(leftover: Leftover) -> u64 {
    u64::try_from(leftover.unsent).unwrap_or(0)
}

/// What the reader should know of how the client did its work.
fn notes(plan: &Plan, cores: &Cores, run: &Run) -> Vec<String> {
    let mut notes = cores.notes.clone();
    if plan.endpoint.streaming_refused {
        notes.push(format!(
            "--streaming was left out: replies of --endpoint-type {} cannot be streamed",
            plan.endpoint.kind.name()
        ));
    }
    let backlog = run.recorded.backlog;
    if backlog.overflowed > 0 {
        notes.push(format!(
            "{} finished requests waited on a worker because the recorder was behind, by up to {} requests in {:.1} MiB; none was lost",
            backlog.overflowed,
            backlog.most_requests,
            backlog.most_bytes as f64 / f64::from(1 << 20)
        ));
    }
    notes.extend(run.fed.as_ref().and_then(late_bodies));
    notes.extend(run.fed.as_ref().and_then(|fed| fed.note.clone()));
    for reason in &run.workers.stepped_down {
        notes.push(format!(
            "a worker could not open its ring ({reason}) and ran on the portable driver"
        ));
    }
    notes.extend(failed_ahead(&run.workers.counts));
    notes.extend(small_buffers(&plan.endpoint.network, run.reach.buffers));
    notes
}

/// Which of a name's addresses were used.
fn used_addresses(plan: &Plan, run: &Run) -> Option<(&'static str, String)> {
    let endpoint = &plan.endpoint;
    if endpoint.network.unix_socket.is_some() {
        return None;
    }
    let named = run.workers.used.iter().filter_map(|used| {
        let url = endpoint.urls.get(used.target)?;
        let host = match &endpoint.network.proxy {
            Some(proxy) => &proxy.host,
            None => &url.host,
        };
        let literal = host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip == used.address.ip());
        (!literal).then(|| format!("{host} at {}", used.address))
    });
    let named: BTreeSet<String> = named.collect();
    let text = named.into_iter().collect::<Vec<_>>().join(", ");
    (!text.is_empty()).then_some(("Addresses used", text))
}

/// What was asked of sockets' buffers, and given.
fn buffers(network: &NetworkPlan, given: GivenBuffers) -> Vec<(&'static str, String)> {
    let fact = |label, asked: Option<usize>, given: Option<usize>| {
        let (asked, given) = (asked?, given?);
        Some((label, format!("{given} bytes, of {asked} asked for")))
    };
    [
        fact(
            "Receive buffer of a socket (the kernel doubles, and has a bound)",
            network.receive_buffer_bytes,
            given.receive_bytes,
        ),
        fact(
            "Send buffer of a socket (the kernel doubles, and has a bound)",
            network.send_buffer_bytes,
            given.send_bytes,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A buffer that is smaller than asked for.
fn small_buffers(network: &NetworkPlan, given: GivenBuffers) -> Option<String> {
    let less = |asked: Option<usize>, given: Option<usize>| {
        asked.zip(given).is_some_and(|(asked, given)| given < asked)
    };
    let receive = less(network.receive_buffer_bytes, given.receive_bytes);
    let send = less(network.send_buffer_bytes, given.send_bytes);
    let flag = match (receive, send) {
        (true, _) => {
            "--so-rcvbuf: the kernel gave less than was asked for; net.core.rmem_max bounds it"
        }
        (false, true) => {
            "--so-sndbuf: the kernel gave less than was asked for; net.core.wmem_max bounds it"
        }
        (false, false) => return None,
    };
    Some(flag.to_owned())
}

/// Requests that were made after their time.
fn late_bodies(fed: &FedTally) -> Option<String> {
    (fed.late > 0).then(|| {
        format!(
            "{} bodies were not ready in time, by up to {:.1} ms, and were sent late: the feeder needs a core that no worker has, or --stream-input never",
            fed.late,
            fed.latest.millis()
        )
    })
}

/// Connections opened, and how many of them before their phase.
fn connections(counts: &Counts) -> String {
    let mut text = counts.connects.to_string();
    if counts.opened_ahead > 0 {
        text += &format!(", {} of them before a phase", counts.opened_ahead);
    }
    if counts.attempts > counts.connects {
        text += &format!(", in {} attempts", counts.attempts);
    }
    text
}

/// What became of connections that should have been open before the start and were not.
pub(super) fn failed_ahead(counts: &Counts) -> Option<String> {
    let why = counts.fault_ahead?.message();
    let (failed, opened) = (counts.failed_ahead, counts.opened_ahead);
    Some(format!(
        "--pre-connect: {failed} of {} connections could not be opened before the start ({}); requests opened their own",
        failed + opened,
        why.trim_end_matches('.')
    ))
}

/// What ticks are read from, what a reading costs, and how the system's own clock ran beside it.
fn clock(clock: &Clock, calibration: &Calibration) -> String {
    // In tenths; adding 0 makes a plain zero of a negative one.
    let slew = (calibration.slew_ppm() * 10.0).round() / 10.0 + 0.0;
    format!(
        "{}, {:.0} ns a reading; lengths right to {} ns; CLOCK_MONOTONIC ran {slew:+.1} ppm beside it",
        clock.source(),
        clock.reading_ns(),
        calibration.error().0,
    )
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
        backlog: run.recorded.backlog,
        kernel_stamps: run.reach.stamps == StampSource::Kernel,
        window: Nanos(tally.window_ns),
        spins: run.reach.waiting.mode != WaitMode::Sleep,
        timer_grain: Nanos(run.reach.driver.timer().1),
        clock_error: run.calibration.error(),
        mapping_error: Nanos(tally.mapping_error_ns),
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

/// How late requests were sent: the metric of that name, and of its parts the client's own.
fn schedule_lag(plan: &Plan, profiling: &Summary) -> Option<ScheduleLag> {
    let stats = profiling.row("schedule_lag")?.stats;
    let phase = plan.phases.iter().find(|p| p.kind == PhaseKind::Profiling);
    let by_rate = phase.is_some_and(|p| p.arrivals != Arrivals::ClosedLoop);
    let client = profiling.row("client_lag").filter(|_| by_rate);
    Some(ScheduleLag {
        p50_ms: stats.p50?,
        p99_ms: stats.p99?,
        max_ms: stats.max?,
        client_p99_ms: client.and_then(|row| row.stats.p99),
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

fn waiting(reach: &Reach) -> String {
    let priority = if reach.realtime {
        ", with real-time priority (SCHED_FIFO) and locked memory"
    } else {
        ""
    };
    let spin = reach.waiting.spin.0 / 1_000;
    match reach.waiting.mode {
        WaitMode::Sleep => format!("asleep{priority}"),
        WaitMode::Hybrid => format!("asleep, spinning {spin} us before a send{priority}"),
        // A real-time thread that never sleeps starves its core, so the kernel stops it: by its real-time share or its fair server, 5 % each.
        WaitMode::Spin if reach.realtime => {
            format!(
                "spinning{priority}, which the kernel interrupts for up to 50 ms a second where others wait for the core"
            )
        }
        WaitMode::Spin => format!("spinning{priority}"),
    }
}

/// What receive windows did, and what they added to the client's own time.
fn windows(tally: &RingTally, arrived: &Arrived, rate: Rate) -> Vec<(&'static str, String)> {
    if tally.windows == 0 {
        return Vec::new();
    }
    let micros = |ticks| rate.nanos(ticks).0 as f64 / 1e3;
    let mean = arrived.held_ticks / arrived.replies.max(1);
    vec![
        (
            "Receive windows",
            format!(
                "{}, up to {} us",
                tally.windows,
                tally.window_ns.div_ceil(1_000)
            ),
        ),
        (
            "Ends of replies read late",
            format!(
                "mean {:.0} us, at most {:.0} us: so much later the next request of a closed loop starts",
                micros(mean),
                micros(arrived.held_longest)
            ),
        ),
    ]
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
        ("Sockets without SO_BUSY_POLL (refused)", tally.unpolled),
        ("Sockets not let go of at the end", tally.held),
    ];
    facts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(label, count)| (label, count.to_string()))
        .collect()
}
