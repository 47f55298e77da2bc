//! Moments that the kernel stamped, as ticks.
//!
//! In: wall-clock nanoseconds of receive stamps (`CLOCK_REALTIME`, all that the kernel offers for TCP). Out: the ticks at which
//! they were taken. Never: maps a stamp across a step of the wall clock; such a stamp is given up, and the step is counted.
//!
//! The offset between the two clocks is measured anew every 10 ms, as the tightest of eight brackets. Before each batch of stamps
//! is mapped one more look tells how far the wall clock has run off since, or whether it was set. The largest of those distances
//! and half a bracket (some 50 ns) are the error that is reported; at the kernel's fastest slew, 500 parts in a million, it is 5 us.

use super::{Clock, Nanos, Rate, Tick};

/// The offset is measured again after this long.
const FIT_EVERY: Nanos = Nanos::from_millis(10);

/// Brackets of a fit; the tightest counts.
const BRACKETS: usize = 8;

/// A wall clock that is this much off what was expected has been set, not slewed.
const STEP_LEAST: Nanos = Nanos(100_000);

/// Allowed besides: twice the fastest slew that the kernel does.
const SLEW_PARTS: f64 = 1e-3;

/// After the wall clock was set back its times come again. Bytes that wait unread for longer than this are not looked for among
/// those that may have come before.
const REPEAT_MOST: Nanos = Nanos::from_millis(1_000);

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

/// How wall-clock nanoseconds map to ticks, without a clock of its own: looks are taken by a function.
///
/// ```
/// use tokenring::clock::{Rate, Tick, WallBracket, WallMap};
/// let bracket = |tick, wall_ns| WallBracket { before: Tick(tick), wall_ns, after: Tick(tick) };
/// let mut map = WallMap::new(Rate::NANOS, bracket(1_000, 7_000_000));
/// assert_eq!(map.tick(6_999_900), Tick(900));
/// assert!(!map.look(Tick(2_000), || bracket(2_000, 99_000_000)), "the clock was set");
/// assert_eq!(map.tick(99_000_500), Tick(2_500), "and is mapped anew");
/// assert_eq!(map.tick(7_000_500), Tick::NEVER, "what came before it is not");
/// ```
#[derive(Clone, Debug)]
pub struct WallMap {
    rate: Rate,
    anchor: WallBracket,
    next_fit: Tick,
    /// Stamps that map to before this may be of before a step.
    trusted_from: Tick,
    /// The largest error seen, in ticks.
    error: u64,
    steps: u64,
}

impl WallMap {
    /// A map through `anchor`.
    #[must_use]
    pub fn new(rate: Rate, anchor: WallBracket) -> WallMap {
        let mut map = WallMap {
            rate,
            anchor,
            next_fit: Tick(0),
            trusted_from: Tick(0),
            error: 0,
            steps: 0,
        };
        map.renew(anchor);
        map
    }

    /// To be called once for each batch of stamps, before the first is mapped: whether the wall clock ran steadily since the last
    /// look. If not, no stamp of this batch can be trusted, and the next batch is mapped by a new offset. `take` reads the clocks,
    /// once or several times; `now` is the counter.
    pub fn look(&mut self, now: Tick, mut take: impl FnMut() -> WallBracket) -> bool {
        let due = now >= self.next_fit;
        let bracket = if due { tightest(&mut take) } else { take() };
        let steady = self.agrees(&bracket);
        if !steady {
            self.steps += 1;
            // Times between the new and the old one come a second time, and cannot be told apart.
            let expected = self.mapped(bracket.wall_ns);
            let back = bracket.before.since(expected);
            let back = back.min(self.rate.ticks(REPEAT_MOST));
            self.trusted_from = bracket.after.plus(back);
        } else if !due {
            let off = self.half_width().saturating_add(self.off(&bracket));
            self.error = self.error.max(off);
        }
        if due {
            self.renew(bracket);
        } else if !steady {
            self.renew(tightest(&mut take));
        }
        steady
    }

    /// The tick of a wall-clock moment, before or after the last look; [`Tick::NEVER`] when it may be a stamp of before the clock was
    /// set.
    #[must_use]
    pub fn tick(&self, wall_ns: u64) -> Tick {
        let mapped = self.mapped(wall_ns);
        if mapped < self.trusted_from {
            Tick::NEVER
        } else {
            mapped
        }
    }

    /// The tick of the stamp of a read that was seen complete at `completed`: not after that, since the mapping may be off by a little;
    /// [`Tick::NEVER`] when it would lie far after it, or may be of before the clock was set.
    #[must_use]
    pub fn stamp(&self, wall_ns: u64, completed: Tick) -> Tick {
        let mapped = self.tick(wall_ns);
        if mapped.since(completed) > self.rate.ticks(STEP_LEAST) {
            Tick::NEVER
        } else {
            mapped.min(completed)
        }
    }

    /// The largest error of a stamp so far: half the bracket that it was mapped by, and how far the wall clock had run off since.
    #[must_use]
    pub fn error(&self) -> Nanos {
        self.rate.nanos(self.error)
    }

    /// Steps of the wall clock seen so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The map goes through `anchor` from here on.
    fn renew(&mut self, anchor: WallBracket) {
        self.anchor = anchor;
        self.next_fit = anchor.after.plus(self.rate.ticks(FIT_EVERY));
        self.error = self.error.max(self.half_width());
    }

    fn half_width(&self) -> u64 {
        self.anchor.width().div_ceil(2)
    }

    fn mapped(&self, wall_ns: u64) -> Tick {
        let middle = self.anchor.middle();
        if wall_ns >= self.anchor.wall_ns {
            middle.plus(self.rate.ticks(Nanos(wall_ns - self.anchor.wall_ns)))
        } else {
            let back = self.rate.ticks(Nanos(self.anchor.wall_ns - wall_ns));
            Tick(middle.0.saturating_sub(back))
        }
    }

    /// Ticks by which `bracket` lies beside where this map expects it, for certain: one that is itself wide proves only what is
    /// beyond its width.
    fn off(&self, bracket: &WallBracket) -> u64 {
        let expected = self.mapped(bracket.wall_ns);
        let early = expected.since(bracket.after);
        early.max(bracket.before.since(expected))
    }

    /// Whether `bracket` lies where this map expects it: false after a step of the wall clock, forward or back.
    fn agrees(&self, bracket: &WallBracket) -> bool {
        let elapsed = self.rate.nanos(bracket.after.since(self.anchor.before));
        let allowed = STEP_LEAST.0 as f64 + SLEW_PARTS * elapsed.0 as f64;
        self.rate.nanos(self.off(bracket)).0 as f64 <= allowed
    }
}

/// Maps receive stamps on this machine's clocks.
#[derive(Debug)]
pub struct KernelClock {
    clock: Clock,
    map: WallMap,
}

impl KernelClock {
    /// Measures the offset.
    #[must_use]
    pub fn new(clock: &Clock) -> KernelClock {
        let anchor = tightest(&mut || one_bracket(clock));
        KernelClock {
            map: WallMap::new(clock.rate(), anchor),
            clock: clock.clone(),
        }
    }

    /// To be called once for each batch of stamps, before the first is mapped: whether the wall clock ran steadily since the last
    /// call. If not, no stamp of this batch can be trusted, and the next batch is mapped by a new offset.
    pub fn is_steady(&mut self) -> bool {
        let clock = &self.clock;
        self.map.look(clock.now(), || one_bracket(clock))
    }

    /// The tick of a receive stamp; [`Tick::NEVER`] when it may have been taken before the wall clock was set.
    #[must_use]
    pub fn tick(&self, wall_ns: u64) -> Tick {
        self.map.tick(wall_ns)
    }

    /// The same for a read that was seen complete at `completed`. The stamp cannot lie after that: what the mapping is off by must not
    /// make it so, and one that lies far after it was taken before the wall clock was set back.
    #[must_use]
    pub fn stamp(&self, wall_ns: u64, completed: Tick) -> Tick {
        self.map.stamp(wall_ns, completed)
    }

    /// The largest error of a stamp so far.
    #[must_use]
    pub fn error(&self) -> Nanos {
        self.map.error()
    }

    /// Steps of the wall clock seen so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.map.steps()
    }
}

fn tightest(take: &mut impl FnMut() -> WallBracket) -> WallBracket {
    let mut best = take();
    for _ in 1..BRACKETS {
        let next = take();
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
mod tests;
