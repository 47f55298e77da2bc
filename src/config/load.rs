//! Flags of load and warmup become phases.
//!
//! In: settings. Out: [`PhasePlan`]s, and the last part of the artifact folder's name. Never: what is sent.

use super::error::Problems;
use super::lex::Settings;
use super::plan::{Arrivals, PhaseKind, PhasePlan, StopRule};
use super::rate::{self, RateCurve};
use super::slots;
use super::users;
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
    // Only profiling tells what is wrong with it: a phase at another pace does not look at it.
    let series = rate::series(settings);
    let readable = series.as_ref().and_then(|series| series.as_ref().ok());
    let warmup = warmup(settings, readable);
    if settings.given("--warmup-seamless") && warmup.is_none() {
        problems.push("--warmup-seamless needs a warmup: give --warmup-request-count, --num-warmup-sessions or --warmup-duration");
    }
    let profiling = profiling(settings, fixed_schedule, series, problems);
    warmup.into_iter().chain([profiling]).collect()
}

fn profiling(
    settings: &Settings,
    fixed_schedule: bool,
    series: Option<Result<RateCurve, String>>,
    problems: &mut Problems,
) -> PhasePlan {
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
    // Flags of another pace are refused where the fixed schedule is read.
    let arrivals = if fixed_schedule {
        Arrivals::FixedSchedule
    } else if let Some(users) = users::users(settings, &stop, problems) {
        Arrivals::Users(users)
    } else {
        let series = series.transpose().unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        rate::arrivals(settings, &rate::PROFILING, series.as_ref())
    };
    let concurrency = settings
        .size("--concurrency")
        .or((arrivals == Arrivals::ClosedLoop).then_some(1));
    PhasePlan {
        kind: PhaseKind::Profiling,
        seamless: settings.given("--warmup-seamless"),
        arrivals,
        concurrency,
        slots: slots::profiling(settings, concurrency),
        late: rate::late_policy(settings),
        stop,
        grace: stop.duration.and(finite(grace)),
    }
}

fn warmup(settings: &Settings, series: Option<&RateCurve>) -> Option<PhasePlan> {
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
    let arrivals = rate::arrivals(settings, &rate::WARMUP, series);
    let concurrency = settings
        .size("--warmup-concurrency")
        .or(settings.size("--concurrency"))
        .or((arrivals == Arrivals::ClosedLoop).then_some(1));
    Some(PhasePlan {
        kind: PhaseKind::Warmup,
        seamless: false,
        arrivals,
        concurrency,
        slots: slots::warmup(settings, concurrency),
        late: rate::late_policy(settings),
        stop,
        grace: settings.number("--warmup-grace-period").and_then(finite),
    })
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
    slots::check(settings, problems);
    rate::check(settings, problems);
    for flag in [
        "--benchmark-duration",
        "--warmup-duration",
        "--benchmark-grace-period",
        "--warmup-grace-period",
    ] {
        super::endpoint::check_seconds(settings, flag, problems);
    }
}

/// `concurrency8`, `request_rate5.0`, or both with a hyphen; `user_centric-users15-qps1.0` with users.
pub(super) fn stimulus(phase: &PhasePlan) -> String {
    if let Arrivals::Users(plan) = &phase.arrivals {
        let rate = python_float(plan.rate);
        return format!("user_centric-users{}-qps{rate}", plan.users);
    }
    let concurrency = phase.concurrency.map(|n| format!("concurrency{n}"));
    let rate = match &phase.arrivals {
        Arrivals::ClosedLoop | Arrivals::Users(_) => None,
        Arrivals::FixedSchedule => Some("fixed_schedule".to_owned()),
        Arrivals::Rated { rate, .. } => Some(format!("request_rate{}", python_float(rate.last()))),
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
