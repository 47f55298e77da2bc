//! Moments that the kernel stamped, as ticks.
//!
//! In: wall-clock nanoseconds of receive stamps (`CLOCK_REALTIME`, all that the kernel offers for TCP). Out: the ticks at which
//! they were taken. Never: maps a stamp across a step of the wall clock; such a stamp is given up, and the step is counted.
//!
//! The offset between the two clocks is measured anew every 50 ms, as the tightest of eight brackets. Before each batch of stamps
//! is mapped one more look tells whether the wall clock was set since the last one. What is left is half a bracket (some 50 ns)
//! and what the wall clock is slewed by in 50 ms: at the kernel's fastest, 500 parts in a million, 25 us.

use super::{Clock, Nanos, Rate, Tick};

/// The offset is measured again after this long.
const FIT_EVERY: Nanos = Nanos::from_millis(50);

/// Brackets of a fit; the tightest counts.
const BRACKETS: usize = 8;

/// A wall clock that is this much off what was expected has been set, not slewed.
const STEP_LEAST: Nanos = Nanos(100_000);

/// Allowed besides: twice the fastest slew that the kernel does.
const SLEW_PARTS: f64 = 1e-3;

/// One reading of the wall clock between two of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallBracket {
    /// The counter just before.
    pub before: Tick,
    /// Nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The counter just after.
    pub after: Tick,
}

impl WallBracket {
    fn width(&self) -> u64 {
        self.after.since(self.before)
    }

    fn middle(&self) -> Tick {
        self.before.plus(self.width() / 2)
    }
}

/// How wall-clock nanoseconds map to ticks, without a clock of its own.
///
/// ```
/// use tokenring::clock::{Rate, Tick, WallBracket, WallMap};
/// let bracket = |tick, wall_ns| WallBracket { before: Tick(tick), wall_ns, after: Tick(tick) };
/// let mut map = WallMap::new(Rate::NANOS, bracket(1_000, 7_000_000));
/// assert_eq!(map.tick(6_999_900), Tick(900));
/// assert!(!map.agrees(&bracket(2_000, 99_000_000)), "the clock was set");
/// ```
#[derive(Clone, Debug)]
pub struct WallMap {
    rate: Rate,
    anchor: WallBracket,
}

impl WallMap {
    /// A map through `anchor`.
    #[must_use]
    pub fn new(rate: Rate, anchor: WallBracket) -> WallMap {
        WallMap { rate, anchor }
    }

    /// The map goes through `anchor` from here on.
    pub fn renew(&mut self, anchor: WallBracket) {
        self.anchor = anchor;
    }

    /// The tick of a wall-clock moment, before or after the anchor.
    #[must_use]
    pub fn tick(&self, wall_ns: u64) -> Tick {
        let middle = self.anchor.middle();
        if wall_ns >= self.anchor.wall_ns {
            middle.plus(self.rate.ticks(Nanos(wall_ns - self.anchor.wall_ns)))
        } else {
            let back = self.rate.ticks(Nanos(self.anchor.wall_ns - wall_ns));
            Tick(middle.0.saturating_sub(back))
        }
    }

    /// Whether `bracket` lies where this map expects it: false after a step of the wall clock, forward or back. A bracket that is
    /// itself wide proves a step only beyond its width.
    #[must_use]
    pub fn agrees(&self, bracket: &WallBracket) -> bool {
        let expected = self.tick(bracket.wall_ns);
        let off = expected
            .since(bracket.after)
            .max(bracket.before.since(expected));
        let elapsed = self.rate.nanos(bracket.after.since(self.anchor.before));
        let allowed = STEP_LEAST.0 as f64 + SLEW_PARTS * elapsed.0 as f64;
        self.rate.nanos(off).0 as f64 <= allowed
    }

    /// How far off a stamp can be that this map is used for, as `bracket`, a later reading, shows: what the wall clock gained or
    /// lost in the time that a map is used, and half of the wider bracket.
    #[must_use]
    pub fn error(&self, bracket: &WallBracket) -> Nanos {
        let (expected, seen) = (self.tick(bracket.wall_ns), bracket.middle());
        let off = expected.since(seen).max(seen.since(expected));
        let elapsed = seen.since(self.anchor.middle()).max(1);
        let used = (self.rate.ticks(FIT_EVERY) as f64 / elapsed as f64).min(1.0);
        let half = self.anchor.width().max(bracket.width()) / 2;
        let off = self.rate.nanos(off).0 as f64 * used;
        Nanos::from_seconds(off / 1e9) + self.rate.nanos(half)
    }
}

/// Maps receive stamps on this machine's clocks.
#[derive(Debug)]
pub struct KernelClock {
    clock: Clock,
    map: WallMap,
    next_fit: Tick,
    steps: u64,
    error: Nanos,
}

impl KernelClock {
    /// Measures the offset.
    #[must_use]
    pub fn new(clock: &Clock) -> KernelClock {
        let anchor = tightest(clock);
        KernelClock {
            map: WallMap::new(clock.rate(), anchor),
            next_fit: next_fit(clock, anchor),
            clock: clock.clone(),
            steps: 0,
            error: clock.rate().nanos(anchor.width() / 2),
        }
    }

    /// To be called once for each batch of stamps, before the first is mapped: whether the wall clock ran steadily since the last
    /// call. If not, no stamp of this batch can be trusted, and the next batch is mapped by a new offset.
    pub fn is_steady(&mut self) -> bool {
        let due = self.clock.now() >= self.next_fit;
        let bracket = if due {
            tightest(&self.clock)
        } else {
            one_bracket(&self.clock)
        };
        let steady = self.map.agrees(&bracket);
        if !steady {
            self.steps += 1;
        }
        if due && steady {
            self.error = self.error.max(self.map.error(&bracket));
        }
        if due || !steady {
            let anchor = if due { bracket } else { tightest(&self.clock) };
            self.map.renew(anchor);
            self.next_fit = next_fit(&self.clock, anchor);
        }
        steady
    }

    /// The tick of a receive stamp.
    #[must_use]
    pub fn tick(&self, wall_ns: u64) -> Tick {
        self.map.tick(wall_ns)
    }

    /// Steps of the wall clock seen so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Largest error of a mapped stamp, as far as the fits showed; see [`WallMap::error`].
    #[must_use]
    pub fn error(&self) -> Nanos {
        self.error
    }
}

fn next_fit(clock: &Clock, anchor: WallBracket) -> Tick {
    anchor.after.plus(clock.rate().ticks(FIT_EVERY))
}

fn tightest(clock: &Clock) -> WallBracket {
    let mut best = one_bracket(clock);
    for _ in 1..BRACKETS {
        let next = one_bracket(clock);
        if next.width() < best.width() {
            best = next;
        }
    }
    best
}

fn one_bracket(clock: &Clock) -> WallBracket {
    WallBracket {
        before: clock.now(),
        wall_ns: wall_ns(),
        after: clock.now(),
    }
}

/// `CLOCK_REALTIME`, the clock of the kernel's receive stamps.
#[cfg(unix)]
fn wall_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A counter of 2.4 GHz beside a wall clock that is slewed, and set once.
    struct Machine {
        slew: f64,
        step_at: u64,
        step_ns: i64,
    }

    const GHZ: f64 = 2.4;

    impl Machine {
        fn rate() -> Rate {
            Rate::new(1.0 / GHZ)
        }

        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a test's numbers"
        )]
        fn wall(&self, tick: u64) -> u64 {
            let ran = tick as f64 / GHZ * (1.0 + self.slew);
            let wall = 1_700_000_000_000_000_000 + ran as u64;
            if tick >= self.step_at {
                wall.saturating_add_signed(self.step_ns)
            } else {
                wall
            }
        }

        fn bracket(&self, tick: u64, width: u64) -> WallBracket {
            WallBracket {
                before: Tick(tick),
                wall_ns: self.wall(tick + width / 2),
                after: Tick(tick + width),
            }
        }
    }

    const MS: u64 = 2_400_000;

    #[test]
    fn a_step_is_seen_and_a_slew_is_not() {
        for (slew, step_ns, steps) in [
            (0.0, 0, false),
            (5e-4, 0, false),
            (-5e-4, 0, false),
            (0.0, 300_000, true),
            (0.0, -300_000, true),
            (5e-4, -3_600_000_000_000, true),
            (0.0, 37_000_000_000, true),
        ] {
            let machine = Machine {
                slew,
                step_at: 70 * MS,
                step_ns,
            };
            let mut map = WallMap::new(Machine::rate(), machine.bracket(0, 100));
            assert!(map.agrees(&machine.bracket(20 * MS, 100)));
            map.renew(machine.bracket(50 * MS, 100));
            assert!(map.agrees(&machine.bracket(69 * MS, 100)));
            let after = machine.bracket(71 * MS, 100);
            assert_eq!(map.agrees(&after), !steps, "{slew} {step_ns}");
            // After the new fit the steadily running clock is trusted again, and stamps map to their ticks.
            map.renew(after);
            assert!(map.agrees(&machine.bracket(90 * MS, 100)));
            let mapped = map.tick(machine.wall(90 * MS)).0;
            assert!(mapped.abs_diff(90 * MS) < MS / 50, "{mapped}");
        }
    }

    #[test]
    fn the_error_is_the_slew_and_half_a_bracket() {
        // (slew, later bracket's width in ticks, ms after the first, error in ns). A map is used for 50 ms, whoever looks.
        for (slew, width, after, expected) in [
            (0.0, 240, 50, 50),
            (0.0, 4_800, 50, 1_000),
            (5e-4, 240, 50, 25_050),
            (-5e-4, 240, 25, 12_550),
            (5e-4, 240, 5_000, 25_050),
        ] {
            let machine = Machine {
                slew,
                step_at: u64::MAX,
                step_ns: 0,
            };
            let map = WallMap::new(Machine::rate(), machine.bracket(0, 240));
            let error = map.error(&machine.bracket(after * MS, width)).0;
            assert!(error.abs_diff(expected) < 60, "{slew} {after}: {error}");
        }
    }

    #[test]
    fn a_wide_bracket_accuses_nobody() {
        let machine = Machine {
            slew: 0.0,
            step_at: u64::MAX,
            step_ns: 0,
        };
        let map = WallMap::new(Machine::rate(), machine.bracket(0, 100));
        // Preempted for 8 ms between the two readings; the wall clock was read at one end.
        for read_at in [10 * MS, 18 * MS] {
            let bracket = WallBracket {
                before: Tick(10 * MS),
                wall_ns: machine.wall(read_at),
                after: Tick(18 * MS),
            };
            assert!(map.agrees(&bracket));
        }
    }

    #[test]
    fn this_machine_maps_its_own_wall_clock() {
        let clock = Clock::new();
        let mut kernel = KernelClock::new(&clock);
        let end = clock.now().plus(clock.rate().ticks(FIT_EVERY) * 3);
        let (mut looks, mut worst) = (0, u64::MAX);
        while clock.now() < end {
            // A clock set by others in mid-test is no failure.
            if kernel.is_steady() {
                looks += 1;
                let bracket = tightest(&clock);
                let mapped = kernel.tick(bracket.wall_ns);
                let off = mapped.0.abs_diff(bracket.middle().0);
                worst = worst.min(clock.rate().nanos(off).0);
            }
        }
        assert!(looks > 100, "{looks}");
        assert!(worst < 20_000, "{worst} ns off at best");
    }

    proptest! {
        /// The error is at most half the anchor's bracket, and what the slew makes of the distance.
        #[test]
        fn stamps_map_within_the_bound(
            slew in -5e-4..5e-4f64, width in 0u64..20_000, distance in -50i64..50, at in 200u64..100_000,
        ) {
            let machine = Machine { slew, step_at: u64::MAX, step_ns: 0 };
            let map = WallMap::new(Machine::rate(), machine.bracket(at * MS, width));
            let tick = (at * MS).saturating_add_signed(distance * 2_400_000);
            let off = map.tick(machine.wall(tick)).0.abs_diff(tick) as f64;
            let bound = width as f64 / 2.0 + 5e-4 * (distance.unsigned_abs() * MS) as f64 + 1_000.0;
            prop_assert!(off <= bound, "{off} ticks off, {bound} allowed");
        }
    }
}
