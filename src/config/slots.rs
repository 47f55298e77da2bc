//! Limits on how much is open at once, and how they grow.
//!
//! In: settings. Out: a [`SlotPlan`] for each phase. Never: when a slot is free.

use super::error::Problems;
use super::lex::Settings;
use crate::clock::Nanos;

/// What a phase limits besides its open sessions, and how its limits begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotPlan {
    /// The session limit grows from 1 to its target over this time.
    pub concurrency_ramp: Option<Nanos>,
    /// Most requests that have not had their first content yet; at least 1.
    pub prefill: Option<usize>,
    /// The same growth for `prefill`.
    pub prefill_ramp: Option<Nanos>,
    /// Connections, over all workers, that are opened before the phase starts.
    pub pre_connect: usize,
}

/// The flags of one phase.
struct Names {
    concurrency: &'static str,
    ramp: &'static str,
    prefill: &'static str,
    prefill_ramp: &'static str,
}

const PROFILING: Names = Names {
    concurrency: "--concurrency",
    ramp: "--concurrency-ramp-duration",
    prefill: "--prefill-concurrency",
    prefill_ramp: "--prefill-concurrency-ramp-duration",
};

const WARMUP: Names = Names {
    concurrency: "--warmup-concurrency",
    ramp: "--warmup-concurrency-ramp-duration",
    prefill: "--warmup-prefill-concurrency",
    prefill_ramp: "--warmup-prefill-concurrency-ramp-duration",
};

/// Of profiling, whose sessions `concurrency` limits.
pub(super) fn profiling(settings: &Settings, concurrency: Option<usize>) -> SlotPlan {
    let seconds = |flag: &str| settings.number(flag).map(Nanos::from_seconds);
    SlotPlan {
        concurrency_ramp: seconds(PROFILING.ramp),
        prefill: settings.size(PROFILING.prefill),
        prefill_ramp: seconds(PROFILING.prefill_ramp),
        pre_connect: pre_connect(settings, concurrency),
    }
}

/// Of warmup: what is not given is as in profiling. A prefill limit that is only inherited is not above the warmup's own
/// concurrency, since it could not bind there.
pub(super) fn warmup(settings: &Settings, concurrency: Option<usize>) -> SlotPlan {
    let fallback = profiling(settings, concurrency);
    let seconds = |flag: &str| settings.number(flag).map(Nanos::from_seconds);
    let inherited = fallback
        .prefill
        .map(|most| most.min(concurrency.unwrap_or(usize::MAX)));
    SlotPlan {
        concurrency_ramp: seconds(WARMUP.ramp).or(fallback.concurrency_ramp),
        prefill: settings.size(WARMUP.prefill).or(inherited),
        prefill_ramp: seconds(WARMUP.prefill_ramp).or(fallback.prefill_ramp),
        pre_connect: fallback.pre_connect,
    }
}

fn pre_connect(settings: &Settings, concurrency: Option<usize>) -> usize {
    match settings.choice("--pre-connect") {
        Some(_) => concurrency.unwrap_or(0),
        None => settings.size("--pre-connect").unwrap_or(0),
    }
}

/// Flags that do not go together.
pub(super) fn check(settings: &Settings, problems: &mut Problems) {
    check_phase(settings, &PROFILING, None, problems);
    check_phase(settings, &WARMUP, Some(&PROFILING), problems);
    let given = settings.given("--pre-connect");
    if given && settings.choice("--connection-reuse-strategy") == Some("never") {
        problems.push("--pre-connect opens connections that requests then use, and --connection-reuse-strategy never gives each request one of its own; leave one of them out");
    }
    let unlimited = settings.given("--request-rate") && !settings.given("--concurrency");
    if settings.choice("--pre-connect").is_some() && unlimited {
        problems.push("--pre-connect auto opens as many connections as --concurrency, which is not given; give their number, such as --pre-connect 50");
    }
}

/// A phase's flags; what it does not give it has from `fallback`.
fn check_phase(
    settings: &Settings,
    names: &Names,
    fallback: Option<&Names>,
    problems: &mut Problems,
) {
    let given = |own: &'static str, theirs: fn(&Names) -> &'static str| {
        settings.given(own) || fallback.is_some_and(|names| settings.given(theirs(names)))
    };
    if settings.number(names.ramp).is_some() && !given(names.concurrency, |n| n.concurrency) {
        problems.push(format!(
            "{} needs {}: it says how long the limit on open sessions takes to grow from 1",
            names.ramp, names.concurrency
        ));
    }
    if settings.number(names.prefill_ramp).is_some() && !given(names.prefill, |n| n.prefill) {
        problems.push(format!(
            "{} needs {}: it says how long that limit takes to grow from 1",
            names.prefill_ramp, names.prefill
        ));
    }
    for flag in [names.ramp, names.prefill_ramp] {
        super::endpoint::check_seconds(settings, flag, problems);
    }
    let Some(prefill) = settings.size(names.prefill) else {
        return;
    };
    if !settings.switched("--streaming") {
        problems.push(format!(
            "{} needs --streaming: only a streamed reply shows when its first token came",
            names.prefill
        ));
    }
    let concurrency = settings
        .size(names.concurrency)
        .or(fallback.and_then(|names| settings.size(names.concurrency)));
    let rated = settings.given("--request-rate")
        || (fallback.is_some() && settings.given("--warmup-request-rate"));
    let most = concurrency.or((!rated && !settings.given(names.concurrency)).then_some(1));
    if let Some(most) = most.filter(|&most| prefill > most) {
        problems.push(format!(
            "{} {prefill} is above {} {most}: no more requests than open sessions can wait for a first token; give at most {most}",
            names.prefill, names.concurrency
        ));
    }
}
