//! Absolute times of arrivals.
//!
//! In: a law and a rate, the seed, the worker's place among the workers. Out: the ticks of its own arrivals, one after the other.
//! Never: depends on when something was sent, or differs between one worker and several.

use std::sync::Arc;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, Gamma};
use sha2::{Digest, Sha256};

use crate::clock::{Nanos, Rate, Tick};
use crate::config::{self, Gaps, PhaseKind, RateCurve, RequestRate};

/// The arrivals of one worker. All workers draw the same stream of gaps and keep every `stride`th arrival, so their union is
/// the schedule of a single worker to the tick. Arrival 0 comes one gap after the start.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    law: Law,
    curve: Option<Cursor>,
    clock: Rate,
    start: Tick,
    /// Arrivals from one of this worker to its next, at least 1.
    stride: u64,
    /// When the worker's current arrival is due.
    due: Tick,
}

/// How far the arrivals have come: seconds at a steady rate, arrivals that the rate promises by then at one that changes. A rate that
/// changes is a steady one on a clock that runs with the rate, so that each law stays what it is (time rescaling).
#[derive(Clone, Debug)]
enum Law {
    /// The `count`th arrival is at `count / rate`: a quotient has no drift, a running sum would.
    Even { rate: f64, count: u64 },
    /// Random gaps with mean `1 / rate`. The sum is kept as a float, not in ticks, so that rounding does not add up.
    Random {
        gap: Gap,
        rate: f64,
        elapsed: f64,
        random: Box<ChaCha12Rng>,
    },
}

/// The law of gaps whose mean is 1.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Exponential,
    /// Shape k and scale 1/k.
    Gamma(Gamma<f64>),
}

impl Arrivals {
    /// The arrivals `index`, `index + stride`, ... of the plan; `None` where requests are not due at a rate.
    pub(super) fn new(
        plan: &config::PhasePlan,
        seed: u64,
        (index, stride): (u64, u64),
        clock: Rate,
        start: Tick,
    ) -> Option<Arrivals> {
        let (gaps, rate) = match &plan.arrivals {
            config::Arrivals::ClosedLoop
            | config::Arrivals::Users(_)
            | config::Arrivals::FixedSchedule => return None,
            config::Arrivals::Rated { gaps, rate } => (*gaps, rate),
        };
        // On the clock that runs with a changing rate, one arrival a unit.
        let steady = match rate {
            RequestRate::Steady(rate) => *rate,
            RequestRate::Changing(_) => 1.0,
        };
        let mut arrivals = Arrivals {
            law: Law::new(gaps, steady, seed, plan.kind),
            curve: rate.curve().map(Cursor::new),
            clock,
            start,
            stride,
            due: start,
        };
        arrivals.move_on(index + 1);
        Some(arrivals)
    }

    /// Goes to this worker's next arrival.
    pub(super) fn advance(&mut self) {
        self.move_on(self.stride);
    }

    /// When the current arrival is due; [`Tick::NEVER`] if the rate fell to 0 for good before.
    pub(super) fn due(&self) -> Tick {
        self.due
    }

    fn move_on(&mut self, steps: u64) {
        let reached = self.law.move_on(steps);
        let seconds = match &mut self.curve {
            Some(curve) => curve.time_of(reached),
            None => reached,
        };
        self.due = if seconds.is_finite() {
            self.start
                .plus(self.clock.ticks(Nanos::from_seconds(seconds)))
        } else {
            Tick::NEVER
        };
    }
}

impl Law {
    fn new(gaps: Gaps, rate: f64, seed: u64, kind: PhaseKind) -> Law {
        let (gap, name) = match gaps {
            Gaps::Even => return Law::Even { rate, count: 0 },
            Gaps::Exponential => (Gap::Exponential, "timing.request.poisson_interval"),
            Gaps::Gamma { shape } => match Gamma::new(shape, shape.recip()) {
                Ok(gamma) => (Gap::Gamma(gamma), "timing.request.gamma_interval"),
                // Not a number above 0, which the command line refuses: the limit of ever more even gaps.
                Err(_) => return Law::Even { rate, count: 0 },
            },
        };
        // Phases of one run must not repeat each other's gaps.
        let name = match kind {
            PhaseKind::Profiling => name.to_owned(),
            PhaseKind::Warmup => format!("{name}.warmup"),
        };
        Law::Random {
            gap,
            rate,
            elapsed: 0.0,
            random: Box::new(named_stream(seed, &name)),
        }
    }

    /// What the arrival `steps` further on has reached.
    fn move_on(&mut self, steps: u64) -> f64 {
        match self {
            Law::Even { rate, count } => {
                *count += steps;
                *count as f64 / *rate
            }
            Law::Random {
                gap,
                rate,
                elapsed,
                random,
            } => {
                for _ in 0..steps {
                    *elapsed += gap.draw(random) / *rate;
                }
                *elapsed
            }
        }
    }
}

impl Gap {
    fn draw(&self, random: &mut ChaCha12Rng) -> f64 {
        match self {
            Gap::Exponential => {
                // Inverse transform of u in [0, 1) with 53 bits: one draw a gap, whatever its value.
                let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                -(-uniform).ln_1p()
            }
            Gap::Gamma(gamma) => gamma.sample(random),
        }
    }
}

/// Where a rate that changes has promised how many arrivals; asked for ever later ones.
#[derive(Clone, Debug)]
struct Cursor {
    curve: Arc<RateCurve>,
    /// Points passed.
    passed: usize,
    /// Arrivals promised up to the last of those.
    promised: f64,
}

impl Cursor {
    fn new(curve: &Arc<RateCurve>) -> Cursor {
        Cursor {
            curve: Arc::clone(curve),
            passed: 1,
            promised: 0.0,
        }
    }

    /// Seconds after the start at which the integral of the rate is `arrivals`; infinite if it never is.
    fn time_of(&mut self, arrivals: f64) -> f64 {
        let points = self.curve.points();
        while let Some(next) = points.get(self.passed) {
            let from = points[self.passed - 1];
            let length = next.seconds - from.seconds;
            let area = length * f64::midpoint(from.rate, next.rate);
            // Reached at the segment's very end counts: if the rate is 0 from there on, that is when it was due.
            if area > 0.0 && self.promised + area >= arrivals {
                let slope = (next.rate - from.rate) / length;
                return from.seconds + crossing(from.rate, slope, arrivals - self.promised);
            }
            self.promised += area;
            self.passed += 1;
        }
        let last = points[self.passed - 1];
        last.seconds + (arrivals - self.promised) / last.rate
    }
}

/// The smallest x of `rate * x + slope * x² / 2 = area`, in the form that loses no digits whether the slope is 0 or the rate is.
fn crossing(rate: f64, slope: f64, area: f64) -> f64 {
    if area <= 0.0 {
        return 0.0;
    }
    let discriminant = (rate * rate + 2.0 * slope * area).max(0.0);
    2.0 * area / (rate + discriminant.sqrt())
}

/// The random stream called `name`: its seed is the first eight bytes, big-endian, of SHA-256("`seed`:`name`"), so that drawing
/// more from one stream never shifts another.
pub(super) fn named_stream(seed: u64, name: &str) -> ChaCha12Rng {
    let digest = Sha256::digest(format!("{seed}:{name}"));
    let first = digest
        .iter()
        .take(8)
        .fold(0_u64, |sum, &b| sum << 8 | u64::from(b));
    ChaCha12Rng::seed_from_u64(first)
}
