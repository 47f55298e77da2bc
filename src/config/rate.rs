//! Rates that change, and what gaps follow them.
//!
//! In: a ramp, a series file. Out: a curve of requests per second. Never: a time that has come.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::error::Problems;
use super::lex::Settings;
use super::plan::Arrivals;
use crate::clock::Nanos;

/// The law of the gaps between arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gaps {
    /// All alike.
    Even,
    /// Exponential: a Poisson process.
    Exponential,
    /// Gamma with mean 1 / rate; a shape of 1 is exponential, above it more even, below it burstier.
    Gamma {
        /// The shape k, above 0; the scale is 1 / (rate * k).
        shape: f64,
    },
}

/// What becomes of arrivals that could not be sent in time (`--late-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// They are sent as soon as possible, and keep their due times.
    #[default]
    Send,
    /// Those that are late by more than [`LatePolicy::BOUND`] are left out, and counted.
    Skip,
}

impl LatePolicy {
    /// The lateness from which on an arrival is left out: where AIPerf moves its schedule to now.
    pub const BOUND: Nanos = Nanos::from_millis(10);
}

/// Requests per second over time: straight lines between points, the first and the last rate held before and after them.
#[derive(Clone, Debug, PartialEq)]
pub struct RateCurve {
    points: Vec<RatePoint>,
}

/// A rate at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePoint {
    /// Seconds after the phase's start.
    pub seconds: f64,
    /// Requests per second.
    pub rate: f64,
}

/// How many requests a second are due.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestRate {
    /// As many throughout.
    Steady(f64),
    /// It changes.
    Changing(Arc<RateCurve>),
}

impl RequestRate {
    /// The highest, in requests per second.
    #[must_use]
    pub fn most(&self) -> f64 {
        match self {
            RequestRate::Steady(rate) => *rate,
            RequestRate::Changing(curve) => curve.most(),
        }
    }

    /// The one held at the end, in requests per second.
    #[must_use]
    pub fn last(&self) -> f64 {
        match self {
            RequestRate::Steady(rate) => *rate,
            RequestRate::Changing(curve) => curve.last(),
        }
    }

    /// Its course over time, where it has one.
    #[must_use]
    pub fn curve(&self) -> Option<&Arc<RateCurve>> {
        match self {
            RequestRate::Steady(_) => None,
            RequestRate::Changing(curve) => Some(curve),
        }
    }
}

impl Arrivals {
    /// Even gaps of 1 / `rate` seconds.
    #[must_use]
    pub fn constant(rate: f64) -> Arrivals {
        Arrivals::steady(Gaps::Even, rate)
    }

    /// Exponential gaps with a mean of 1 / `rate` seconds.
    #[must_use]
    pub fn poisson(rate: f64) -> Arrivals {
        Arrivals::steady(Gaps::Exponential, rate)
    }

    /// `rate` requests per second throughout.
    #[must_use]
    pub fn steady(gaps: Gaps, rate: f64) -> Arrivals {
        let rate = RequestRate::Steady(rate);
        Arrivals::Rated { gaps, rate }
    }

    /// A rate that changes.
    #[must_use]
    pub fn changing(gaps: Gaps, curve: impl Into<Arc<RateCurve>>) -> Arrivals {
        let rate = RequestRate::Changing(curve.into());
        Arrivals::Rated { gaps, rate }
    }
}

impl RateCurve {
    /// From a tenth of a second's share of the ramp (as AIPerf begins, `rate * 0.1 / length`, but never above `rate`) to `rate` in a
    /// straight line of `length` seconds. AIPerf climbs in steps of 0.1 s; this is the line through them.
    #[must_use]
    pub fn ramp(rate: f64, length: f64) -> RateCurve {
        let first = rate * (0.1 / length).min(1.0);
        RateCurve::through(vec![
            RatePoint {
                seconds: 0.0,
                rate: first,
            },
            RatePoint {
                seconds: length,
                rate,
            },
        ])
    }

    /// A curve through `points`, which are in order of time; at least one.
    #[must_use]
    pub fn through(mut points: Vec<RatePoint>) -> RateCurve {
        if let Some(&first) = points.first()
            && first.seconds > 0.0
        {
            points.insert(
                0,
                RatePoint {
                    seconds: 0.0,
                    ..first
                },
            );
        }
        assert!(!points.is_empty(), "a curve has a point");
        RateCurve { points }
    }

    /// This curve after a ramp of `length` seconds to its first rate.
    #[must_use]
    pub fn after_ramp(self, length: f64) -> RateCurve {
        let mut ramped = RateCurve::ramp(self.points[0].rate, length).points;
        let later = self.points.into_iter().skip(1);
        ramped.extend(later.map(|point| RatePoint {
            seconds: point.seconds + length,
            ..point
        }));
        RateCurve { points: ramped }
    }

    /// Its points, the first at 0 s.
    #[must_use]
    pub fn points(&self) -> &[RatePoint] {
        &self.points
    }

    /// The highest rate.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.points
            .iter()
            .map(|point| point.rate)
            .fold(0.0, f64::max)
    }

    /// The rate held at the end.
    #[must_use]
    pub fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.rate)
    }

    /// The series of a file: a JSON list of `{"time_s": ..., "qps": ...}`, or an object that has it as `points`.
    ///
    /// # Errors
    ///
    /// What is wrong, with the file's name and the number of the point.
    pub fn read(path: &Path) -> Result<RateCurve, String> {
        let name = format!("--request-rate-series {}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| {
            format!(
                "{name}: line {} column {}: not JSON: {e}",
                e.line(),
                e.column()
            )
        })?;
        let list = match &value {
            Value::Object(object) => object.get("points").and_then(Value::as_array),
            other => other.as_array(),
        };
        let wanted = "a list of at least 2 points such as {\"time_s\": 0, \"qps\": 5}";
        let list = list.filter(|list| list.len() >= 2).ok_or_else(|| {
            format!("{name}: expected {wanted}, or an object that has it as \"points\"")
        })?;
        let mut points: Vec<RatePoint> = Vec::with_capacity(list.len());
        for (place, item) in list.iter().enumerate() {
            let field = |key: &str| {
                let number = item.get(key).and_then(Value::as_f64);
                number.filter(|n| *n >= 0.0 && *n <= 1e12).ok_or_else(|| {
                    format!("{name}: point {place}: \"{key}\" is not a number of at least 0")
                })
            };
            let point = RatePoint {
                seconds: field("time_s")?,
                rate: field("qps")?,
            };
            if points
                .last()
                .is_some_and(|last| last.seconds >= point.seconds)
            {
                return Err(format!(
                    "{name}: point {place}: its \"time_s\" is not above that of the point before"
                ));
            }
            points.push(point);
        }
        let curve = RateCurve::through(points);
        if curve.most() <= 0.0 {
            return Err(format!(
                "{name}: every \"qps\" is 0, so nothing would be sent"
            ));
        }
        Ok(curve)
    }
}

/// `--request-rate-series`, read; or what is wrong with it.
pub(super) fn series(settings: &Settings) -> Option<Result<RateCurve, String>> {
    let path = settings.text("--request-rate-series")?;
    Some(RateCurve::read(Path::new(path)))
}

/// Flags of one phase's rate.
pub(super) struct Names {
    pub(super) rate: &'static str,
    pub(super) pattern: &'static str,
    pub(super) ramp: &'static str,
}

/// Of the profiling phase.
pub(super) const PROFILING: Names = Names {
    rate: "--request-rate",
    pattern: "--arrival-pattern",
    ramp: "--request-rate-ramp-duration",
};

/// Of the warmup, which takes over what it is not given.
pub(super) const WARMUP: Names = Names {
    rate: "--warmup-request-rate",
    pattern: "--warmup-arrival-pattern",
    ramp: "--warmup-request-rate-ramp-duration",
};

/// When the requests of a phase are due. Without a rate the loop is closed whatever the pattern; with one, every pattern but `constant` and
/// `gamma` is taken for `poisson`, as in AIPerf, and `--arrival-smoothness` without a pattern means `gamma`.
/// `series` is that of `--request-rate-series`.
pub(super) fn arrivals(settings: &Settings, names: &Names, series: Option<&RateCurve>) -> Arrivals {
    let of =
        |name: &'static str, other: &'static str| settings.number(name).or(settings.number(other));
    // A series is no rate of a warmup that has its own.
    let own_rate = names.rate == WARMUP.rate && settings.given(names.rate);
    let series = series.filter(|_| !own_rate).cloned();
    let rate = of(names.rate, PROFILING.rate);
    if rate.is_none() && series.is_none() {
        return Arrivals::ClosedLoop;
    }
    let pattern = settings
        .choice(names.pattern)
        .or(settings.choice(PROFILING.pattern));
    let shape = settings.number("--arrival-smoothness");
    let gaps = match (pattern, shape) {
        (Some("constant"), _) => Gaps::Even,
        (Some("gamma"), shape) => Gaps::Gamma {
            shape: shape.unwrap_or(1.0),
        },
        (None, Some(shape)) => Gaps::Gamma { shape },
        _ => Gaps::Exponential,
    };
    let ramp = of(names.ramp, PROFILING.ramp);
    let curve = match (series, rate, ramp) {
        (Some(series), _, Some(length)) => Some(series.after_ramp(length)),
        (Some(series), _, None) => Some(series),
        (None, Some(rate), Some(length)) => Some(RateCurve::ramp(rate, length)),
        _ => None,
    };
    match curve {
        Some(curve) => Arrivals::changing(gaps, curve),
        None => Arrivals::steady(gaps, rate.unwrap_or(1.0)),
    }
}

/// Flags that do not go together.
pub(super) fn check(settings: &Settings, problems: &mut Problems) {
    let given = |name: &str| settings.given(name);
    let series = given("--request-rate-series");
    if series && given("--request-rate") {
        problems
            .push("--request-rate and --request-rate-series exclude each other; give one of them");
    }
    if given(PROFILING.ramp) && !series && !given(PROFILING.rate) {
        problems.push(format!("{} needs --request-rate or --request-rate-series: it says how long that rate takes to grow", PROFILING.ramp));
    }
    let warm = given(WARMUP.rate) || given(PROFILING.rate) || series;
    if given(WARMUP.ramp) && !warm {
        problems.push(format!(
            "{} needs --warmup-request-rate: it says how long that rate takes to grow",
            WARMUP.ramp
        ));
    }
    // Users are never late against the rate: each counts on from a turn that was.
    if given("--late-policy") && !warm {
        problems.push(if given("--fixed-schedule") {
            "--late-policy cannot be used with --fixed-schedule: a turn that is left out changes those behind it, so late ones are sent and their lateness is reported"
        } else {
            "--late-policy needs --request-rate: without a rate no arrival is late"
        });
    }
    if given("--arrival-smoothness") {
        let pattern = settings.choice(PROFILING.pattern);
        if !warm {
            problems.push(format!(
                "{} needs --request-rate: it shapes the gaps between arrivals",
                settings.spelling("--arrival-smoothness")
            ));
        } else if pattern.is_some_and(|pattern| pattern != "gamma") {
            problems.push(format!(
                "{} shapes the gaps of --arrival-pattern gamma, not of {}; leave one of them out",
                settings.spelling("--arrival-smoothness"),
                pattern.unwrap_or_default()
            ));
        }
    }
}

/// `--late-policy`.
pub(super) fn late_policy(settings: &Settings) -> LatePolicy {
    match settings.choice("--late-policy") {
        Some("skip") => LatePolicy::Skip,
        _ => LatePolicy::Send,
    }
}
