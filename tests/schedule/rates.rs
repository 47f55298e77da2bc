//! Arrivals at a rate: the law of their gaps, rates that change, and what becomes of late ones.
//!
//! In: laws, curves, numbers of workers. Out: due times that must follow the law, whoever carries them. Never: a clock.

use std::sync::Arc;

use tokenring::clock::{Rate, Tick};
use tokenring::config::{Arrivals, Gaps, LatePolicy, PhaseKind, PhasePlan, RateCurve, RatePoint};
use tokenring::schedule::{Schedule, Shard, Verdict};

use super::{SECOND, dues, plan, requests};

const COUNT: u32 = 20_000;

fn curve(points: &[(f64, f64)]) -> Arc<RateCurve> {
    let points = points.iter();
    let points = points.map(|&(seconds, rate)| RatePoint { seconds, rate });
    Arc::new(RateCurve::through(points.collect()))
}

/// Arrivals that `curve` promises within `seconds`, by adding up a hundred thousand slices.
fn promised(curve: &RateCurve, seconds: f64) -> f64 {
    let rate = |at: f64| {
        let points = curve.points();
        let next = points.iter().position(|p| p.seconds > at);
        match next {
            Some(next) => {
                let (a, b) = (points[next - 1], points[next]);
                a.rate + (b.rate - a.rate) * (at - a.seconds) / (b.seconds - a.seconds)
            }
            None => curve.last(),
        }
    };
    let slices = 100_000;
    let width = seconds / f64::from(slices);
    (0..slices)
        .map(|i| rate((f64::from(i) + 0.5) * width) * width)
        .sum()
}

/// Kolmogorov-Smirnov distance of `values` from the law with this distribution function.
pub(crate) fn distance(mut values: Vec<f64>, law: impl Fn(f64) -> f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len() as f64;
    values
        .iter()
        .enumerate()
        .fold(0.0_f64, |worst, (i, value)| {
            let law = law(*value);
            worst.max(law - i as f64 / n).max((i + 1) as f64 / n - law)
        })
}

/// Gamma distribution of shape `k`, a whole number, and mean 1: 1 - exp(-kx) * sum of (kx)^i / i! below k.
fn erlang(k: u32, x: f64) -> f64 {
    let y = f64::from(k) * x;
    let mut term = 1.0;
    let mut sum = 0.0;
    for i in 0..k {
        sum += term;
        term *= y / f64::from(i + 1);
    }
    1.0 - (-y).exp() * sum
}

/// Between one of `dues` and the next, the first counted from 0, in the unit that `time` makes of seconds.
pub(crate) fn gaps(dues: &[Tick], time: impl Fn(f64) -> f64) -> Vec<f64> {
    let times = dues.iter().map(|due| time(due.0 as f64 / 1e9));
    let mut before = 0.0;
    times
        .map(|at| at - std::mem::replace(&mut before, at))
        .collect()
}

#[test]
fn gamma_gaps_follow_their_law_for_any_number_of_workers() {
    let critical = 1.63 / f64::from(COUNT).sqrt();
    let rate = 400.0;
    for k in [1_u32, 2, 5, 20] {
        let arrivals = Arrivals::steady(
            Gaps::Gamma {
                shape: f64::from(k),
            },
            rate,
        );
        let alone = dues(arrivals.clone(), 7, 1, u64::from(COUNT));
        for workers in [2, 3] {
            assert_eq!(dues(arrivals.clone(), 7, workers, u64::from(COUNT)), alone);
        }
        let off = distance(gaps(&alone, |t| t * rate), |x| erlang(k, x));
        assert!(off < critical, "shape {k}: {off}");
        let other = distance(gaps(&alone, |t| t * rate), |x| erlang(k + k.div_ceil(5), x));
        assert!(
            other > critical,
            "shape {k} is told from its neighbour: {other}"
        );
    }
}

#[test]
fn bursty_gamma_gaps_have_the_right_mean_and_spread() {
    let shape = 0.25;
    let dues = dues(
        Arrivals::steady(Gaps::Gamma { shape }, 100.0),
        3,
        2,
        u64::from(COUNT),
    );
    let gaps = gaps(&dues, |t| t * 100.0);
    let n = f64::from(COUNT);
    let mean = gaps.iter().sum::<f64>() / n;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / n;
    // The variance of a gamma law with mean 1 is 1/k; four standard errors of both.
    assert!((mean - 1.0).abs() < 4.0 * 2.0 / n.sqrt(), "{mean}");
    assert!((variance * shape - 1.0).abs() < 0.3, "{variance}");
}

#[test]
fn a_changing_rate_is_a_steady_one_on_its_own_clock() {
    for curve in [
        Arc::new(RateCurve::ramp(500.0, 20.0)),
        curve(&[
            (0.0, 10.0),
            (5.0, 900.0),
            (6.0, 0.0),
            (7.0, 0.0),
            (9.0, 300.0),
        ]),
        Arc::new(
            RateCurve::through(vec![
                RatePoint {
                    seconds: 2.0,
                    rate: 50.0,
                },
                RatePoint {
                    seconds: 12.0,
                    rate: 1_500.0,
                },
            ])
            .after_ramp(3.0),
        ),
    ] {
        let arrivals = |gaps| Arrivals::changing(gaps, Arc::clone(&curve));
        let even = dues(arrivals(Gaps::Even), 0, 1, 2_000);
        for number in [1, 10, 100, 500, 2_000_u32] {
            let at = even[number as usize - 1].0 as f64 / 1e9;
            let off = promised(&curve, at) - f64::from(number);
            assert!(off.abs() < 0.01, "arrival {number} at {at}: {off}");
        }
        for shape in [1_u32, 4] {
            let law = match shape {
                1 => Gaps::Exponential,
                shape => Gaps::Gamma {
                    shape: f64::from(shape),
                },
            };
            let random = dues(arrivals(law), 11, 1, u64::from(COUNT));
            for workers in [2, 3] {
                let dealt = dues(arrivals(law), 11, workers, u64::from(COUNT));
                assert_eq!(dealt, random);
            }
            // Every tenth is enough for the slow integral: gaps of ten are of a shape ten times as large.
            let tenth: Vec<Tick> = random.iter().skip(9).step_by(10).copied().collect();
            let few = gaps(&tenth[..200], |t| promised(&curve, t) / 10.0);
            let critical = 1.63 / (few.len() as f64).sqrt();
            let off = distance(few.clone(), |x| erlang(10 * shape, x));
            assert!(off < critical, "shape {shape}: {off}");
            let other = distance(few, |x| erlang(10 * (5 - shape), x));
            assert!(
                other > critical,
                "shape {shape} is told from another: {other}"
            );
        }
    }
}

/// The area of the first segment is 8 to the last digit: its eighth arrival is its own, and no later segment's.
#[test]
fn an_arrival_due_as_the_rate_falls_to_nothing_does_not_wait_until_it_rises() {
    let curve = curve(&[(0.0, 8.0), (2.0, 0.0), (4.0, 0.0), (5.0, 16.0)]);
    let gaps = Gaps::Even;
    for workers in [1, 2, 3] {
        let arrivals = Arrivals::changing(gaps, Arc::clone(&curve));
        let dues = dues(arrivals, 0, workers, 9);
        assert_eq!(dues[7], Tick(2 * SECOND), "{workers} workers");
        assert!(dues[8] > Tick(4 * SECOND), "{workers} workers");
    }
}

#[test]
fn a_rate_that_ends_at_nothing_sends_nothing_more() {
    let curve = curve(&[(0.0, 10.0), (2.0, 0.0)]);
    let plan = plan(Arrivals::changing(Gaps::Even, curve), None, requests(1_000));
    let mut schedule = Schedule::new(&plan, 0, Shard { index: 0, count: 1 }, Rate::NANOS, Tick(0));
    let mut sent = 0;
    loop {
        match schedule.next(Tick(100 * SECOND)) {
            Verdict::Send(_) => sent += 1,
            other => {
                assert_eq!(other, Verdict::WaitUntil(Tick::NEVER));
                break;
            }
        }
    }
    assert_eq!(sent, 10, "the area is 10");
}

#[test]
fn warmup_and_profiling_draw_gaps_of_their_own() {
    let first = |kind| {
        let plan = PhasePlan {
            kind,
            ..plan(Arrivals::poisson(5.0), None, requests(9))
        };
        let shard = Shard { index: 0, count: 1 };
        Schedule::new(&plan, 1, shard, Rate::NANOS, Tick(0)).next(Tick(0))
    };
    assert_ne!(first(PhaseKind::Warmup), first(PhaseKind::Profiling));
}

/// After a stall of a second at 100 requests a second.
#[test]
fn late_arrivals_are_sent_or_left_out_and_counted() {
    for (late, sent, skipped) in [(LatePolicy::Send, 150, 0), (LatePolicy::Skip, 52, 98)] {
        for workers in [1, 2, 3] {
            let plan = PhasePlan {
                late,
                ..plan(Arrivals::constant(100.0), None, requests(150))
            };
            let (mut sums, mut lags) = ((0, 0), Vec::new());
            for index in 0..workers {
                let shard = Shard {
                    index,
                    count: workers,
                };
                let mut schedule = Schedule::new(&plan, 0, shard, Rate::NANOS, Tick(0));
                let mut now = Tick(SECOND);
                loop {
                    match schedule.next(now) {
                        Verdict::Send(intent) => lags.push(now.since(intent.due)),
                        Verdict::WaitUntil(due) => now = due,
                        _ => break,
                    }
                }
                let counts = schedule.counts();
                sums.0 += counts.sent_requests;
                sums.1 += counts.skipped;
                assert_eq!(schedule.unsent_arrivals(now), 0);
            }
            assert_eq!(sums, (sent, skipped), "{late:?}, {workers} workers");
            let worst = lags.into_iter().max().unwrap_or(0);
            let bound = if late == LatePolicy::Skip {
                LatePolicy::BOUND.0
            } else {
                SECOND
            };
            assert!(worst <= bound, "{worst}");
        }
    }
}
