//! Flags of load and warmup become phases.
//!
//! In: settings. Out: [`PhasePlan`]s, and the last part of the artifact folder's name. Never: what is sent.

use super::error::Problems;
use super::lex::Settings;
use super::plan::{Arrivals, PhaseKind, PhasePlan, StopRule};
use crate::clock::Nanos;

/// Requests when no stop is given.
const REQUESTS_DEFAULT: u64 = 10;
/// Grace in seconds when a duration is given and no grace.
const GRACE_SECONDS_DEFAULT: f64 = 30.0;

/// Warmup (if asked for), then profiling.
pub(super) fn phases(
    settings: &Settings,
    fixed_schedule: bool,
    problems: &mut Problems,
) -> Vec<PhasePlan> {
    check(settings, problems);
    warmup(settings)
        .into_iter()
        .chain([profiling(settings, fixed_schedule)])
        .collect()
}

fn profiling(settings: &Settings, fixed_schedule: bool) -> PhasePlan {
    let rate = settings.number("--request-rate");
    let mut stop = StopRule {
        requests: settings.integer("--request-count"),
        sessions: settings.integer("--conversation-num"),
        duration: settings
            .number("--benchmark-duration")
            .map(Nanos::from_seconds),
    };
    // A fixed schedule has as many requests as its dataset.
    if stop == StopRule::default() && !fixed_schedule {
        stop.requests = Some(REQUESTS_DEFAULT);
    }
    let grace = settings
        .number("--benchmark-grace-period")
        .unwrap_or(GRACE_SECONDS_DEFAULT);
    PhasePlan {
        kind: PhaseKind::Profiling,
        arrivals: if fixed_schedule {
            Arrivals::FixedSchedule
        } else {
            arrivals(rate, settings.choice("--arrival-pattern"))
        },
        concurrency: settings
            .size("--concurrency")
            .or((rate.is_none() && !fixed_schedule).then_some(1)),
        stop,
        grace: stop.duration.and(finite(grace)),
    }
}

fn warmup(settings: &Settings) -> Option<PhasePlan> {
    let stop = StopRule {
        requests: settings.integer("--warmup-request-count"),
        sessions: settings.integer("--num-warmup-sessions"),
        duration: settings
            .number("--warmup-duration")
            .map(Nanos::from_seconds),
    };
    if stop == StopRule::default() {
        return None;
    }
    let rate = settings
        .number("--warmup-request-rate")
        .or(settings.number("--request-rate"));
    let pattern = settings
        .choice("--warmup-arrival-pattern")
        .or(settings.choice("--arrival-pattern"));
    Some(PhasePlan {
        kind: PhaseKind::Warmup,
        arrivals: arrivals(rate, pattern),
        concurrency: settings
            .size("--warmup-concurrency")
            .or(settings.size("--concurrency"))
            .or(rate.is_none().then_some(1)),
        stop,
        grace: settings.number("--warmup-grace-period").and_then(finite),
    })
}

/// Without a rate the loop is closed whatever the pattern; with one, every pattern but `constant` is taken for `poisson`, as in
/// AIPerf (`gamma` is refused before).
fn arrivals(rate: Option<f64>, pattern: Option<&str>) -> Arrivals {
    match (rate, pattern) {
        (None, _) => Arrivals::ClosedLoop,
        (Some(rate), Some("constant")) => Arrivals::Constant { rate },
        (Some(rate), _) => Arrivals::Poisson { rate },
    }
}

fn finite(seconds: f64) -> Option<Nanos> {
    seconds.is_finite().then(|| Nanos::from_seconds(seconds))
}

fn check(settings: &Settings, problems: &mut Problems) {
    for (flag, needs) in [
        ("--benchmark-grace-period", "--benchmark-duration"),
        ("--warmup-grace-period", "--warmup-duration"),
    ] {
        if settings.given(flag) && !settings.given(needs) {
            problems.push(format!(
                "{flag} needs {needs}: without it every request in flight is waited for"
            ));
        }
    }
    for flag in ["--arrival-pattern", "--warmup-arrival-pattern"] {
        if settings.choice(flag) == Some("gamma") {
            problems.push(format!(
                "{} gamma is an AIPerf pattern that tokenring does not do yet; use constant or poisson",
                settings.spelling(flag)
            ));
        }
    }
    for flag in [
        "--benchmark-duration",
        "--warmup-duration",
        "--benchmark-grace-period",
        "--warmup-grace-period",
    ] {
        super::endpoint::check_seconds(settings, flag, problems);
    }
}

/// `concurrency8`, `request_rate5.0`, or both with a hyphen.
pub(super) fn stimulus(phase: &PhasePlan) -> String {
    let concurrency = phase.concurrency.map(|n| format!("concurrency{n}"));
    let rate = match phase.arrivals {
        Arrivals::ClosedLoop => None,
        Arrivals::FixedSchedule => Some("fixed_schedule".to_owned()),
        Arrivals::Constant { rate } | Arrivals::Poisson { rate } => {
            Some(format!("request_rate{}", python_float(rate)))
        }
    };
    concurrency
        .into_iter()
        .chain(rate)
        .collect::<Vec<_>>()
        .join("-")
}

/// As Python prints a float: `10.0`, `0.5`, `1e-05`, `1e+16`.
fn python_float(number: f64) -> String {
    let plain = format!("{number:?}");
    let scientific = if (1e-4..1e16).contains(&number) {
        None
    } else {
        Some(format!("{number:e}"))
    };
    match scientific.as_deref().and_then(|text| text.split_once('e')) {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn floats_print_as_in_python() {
        for (number, text) in [
            (10.0, "10.0"),
            (0.5, "0.5"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1.5e16, "1.5e+16"),
            (1e15, "1000000000000000.0"),
        ] {
            assert_eq!(super::python_float(number), text);
        }
    }
}
