//! Absolute times of arrivals.
//!
//! In: a rate, the seed, the worker's place among the workers. Out: the ticks of its own arrivals, one after the other.
//! Never: depends on when something was sent, or differs between one worker and several.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

use crate::clock::{Nanos, Rate, Tick};
use crate::config;

/// The arrivals of one worker. All workers draw the same stream of gaps and keep every `stride`th arrival, so their union is
/// the schedule of a single worker to the tick. Arrival 0 comes one gap after the start.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    law: Law,
    clock: Rate,
    start: Tick,
    /// Arrivals from one of this worker to its next, at least 1.
    stride: u64,
    /// When the worker's current arrival is due.
    due: Tick,
}

/// Where the next arrival is found. Times are seconds after the start.
#[derive(Clone, Debug)]
enum Law {
    /// The `count`th arrival is at `count / rate`: a quotient has no drift, a running sum would.
    Constant { rate: f64, count: u64 },
    /// Exponential gaps with mean `1 / rate`. The sum is kept in seconds, not ticks, so that rounding does not add up.
    Poisson {
        rate: f64,
        elapsed: f64,
        random: Box<ChaCha12Rng>,
    },
}

impl Arrivals {
    /// The arrivals `index`, `index + stride`, ... of the plan; `None` in the closed loop.
    pub(super) fn new(
        plan: config::Arrivals,
        seed: u64,
        (index, stride): (u64, u64),
        clock: Rate,
        start: Tick,
    ) -> Option<Arrivals> {
        let law = match plan {
            config::Arrivals::ClosedLoop | config::Arrivals::FixedSchedule => return None,
            config::Arrivals::Constant { rate } => Law::Constant { rate, count: 0 },
            config::Arrivals::Poisson { rate } => Law::Poisson {
                rate,
                elapsed: 0.0,
                random: Box::new(named_stream(seed, "timing.request.poisson_interval")),
            },
        };
        let mut arrivals = Arrivals {
            law,
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

    /// When the current arrival is due.
    pub(super) fn due(&self) -> Tick {
        self.due
    }

    fn move_on(&mut self, steps: u64) {
        let seconds = self.law.move_on(steps);
        self.due = self
            .start
            .plus(self.clock.ticks(Nanos::from_seconds(seconds)));
    }
}

impl Law {
    /// Seconds after the start of the arrival `steps` further on.
    fn move_on(&mut self, steps: u64) -> f64 {
        match self {
            Law::Constant { rate, count } => {
                *count += steps;
                *count as f64 / *rate
            }
            Law::Poisson {
                rate,
                elapsed,
                random,
            } => {
                for _ in 0..steps {
                    // Inverse transform of u in [0, 1) with 53 bits: one draw a gap, whatever its value.
                    let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                    *elapsed += -(-uniform).ln_1p() / *rate;
                }
                *elapsed
            }
        }
    }
}

/// The random stream called `name`: its seed is the first eight bytes, big-endian, of SHA-256("`seed`:`name`"), so that drawing
/// more from one stream never shifts another.
fn named_stream(seed: u64, name: &str) -> ChaCha12Rng {
    let digest = Sha256::digest(format!("{seed}:{name}"));
    let first = digest
        .iter()
        .take(8)
        .fold(0_u64, |sum, &b| sum << 8 | u64::from(b));
    ChaCha12Rng::seed_from_u64(first)
}
