//! What a phase does, said back.
//!
//! In: a phase and the plan it belongs to. Out: its item of `input_config`. Never: a setting of the whole run.

use serde_json::{Value, json};

use crate::clock::Nanos;
use crate::config::fixed_schedule::FixedSchedule;
use crate::config::plan::{Arrivals, PhaseKind, PhasePlan, Plan};
use crate::config::rate::{Gaps, LatePolicy};

pub(super) fn config(phase: &PhasePlan, plan: &Plan) -> Value {
    let (arrivals, rate, smoothness) = match &phase.arrivals {
        Arrivals::ClosedLoop => ("concurrency", None, None),
        Arrivals::Rated { gaps, rate } => match gaps {
            Gaps::Even => ("constant", Some(rate.last()), None),
            Gaps::Exponential => ("poisson", Some(rate.last()), None),
            Gaps::Gamma { shape } => ("gamma", Some(rate.last()), Some(*shape)),
        },
        Arrivals::Users(plan) => ("user_centric", Some(plan.rate), None),
        Arrivals::FixedSchedule => ("fixed_schedule", None, None),
    };
    let curve = match &phase.arrivals {
        Arrivals::Rated { rate, .. } => rate.curve().map(|curve| {
            let points = curve.points().iter();
            let points = points.map(|p| json!({"time_s": p.seconds, "qps": p.rate}));
            Value::Array(points.collect())
        }),
        _ => None,
    };
    let seconds = |length: Option<Nanos>| length.map(|length| json!(length.seconds()));
    let ramp = |length: Option<Nanos>| length.map(|l| json!({ "duration": l.seconds() }));
    let connections = phase.slots.pre_connect;
    let pre_connect = (connections > 0).then(|| json!(connections));
    let warmup = phase.kind == PhaseKind::Warmup;
    let users = match &phase.arrivals {
        Arrivals::Users(plan) => Some(json!(plan.users)),
        _ => None,
    };
    let asked = plan.cancellation.filter(|_| !warmup);
    let cancelled =
        asked.map(|asked| json!({"rate": asked.percent, "delay": asked.delay.seconds()}));
    let schedule = plan.dataset.fixed_schedule;
    let schedule = schedule.filter(|_| phase.arrivals == Arrivals::FixedSchedule);
    let offset = |of: fn(FixedSchedule) -> Option<u64>| schedule.and_then(of).map(|ms| json!(ms));
    let pairs = [
        ("name", Some(json!(phase.kind.name()))),
        ("kind", Some(json!(phase.kind.name()))),
        ("type", Some(json!(arrivals))),
        ("exclude_from_results", warmup.then(|| json!(true))),
        ("auto_offset", schedule.map(|s| json!(s.auto_offset))),
        ("start_offset", offset(|s| s.start_ms)),
        ("end_offset", offset(|s| s.end_ms)),
        ("seamless", phase.seamless.then(|| json!(true))),
        ("requests", phase.stop.requests.map(|n| json!(n))),
        ("sessions", phase.stop.sessions.map(|n| json!(n))),
        ("duration", seconds(phase.stop.duration)),
        ("concurrency", phase.concurrency.map(|n| json!(n))),
        ("users", users),
        ("concurrency_ramp", ramp(phase.slots.concurrency_ramp)),
        ("prefill_concurrency", phase.slots.prefill.map(|n| json!(n))),
        ("prefill_ramp", ramp(phase.slots.prefill_ramp)),
        ("pre_connect", pre_connect),
        ("rate", rate.map(|rate| json!(rate))),
        ("smoothness", smoothness.map(|shape| json!(shape))),
        ("rate_points", curve),
        (
            "late_policy",
            (phase.late == LatePolicy::Skip).then(|| json!("skip")),
        ),
        ("grace_period", seconds(phase.grace)),
        ("cancellation", cancelled),
    ];
    let pairs = pairs.into_iter();
    Value::Object(
        pairs
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect(),
    )
}
