//! In: machines whose wall clocks are slewed and set, at any place relative to their reads. Out: stamps that map to their ticks, or
//! are given up. Never: a real clock, but for one test of this machine's.

use super::*;
use proptest::prelude::*;

const GHZ: f64 = 2.4;
const MICRO: u64 = 2_400;
const MILLI: u64 = 1_000 * MICRO;

/// A counter of 2.4 GHz beside a wall clock that runs too fast or slow, and is set at some ticks.
#[derive(Clone, Debug, Default)]
struct Machine {
    slew: f64,
    /// (tick, nanoseconds that the wall clock is moved by)
    steps: Vec<(u64, i64)>,
}

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
        let set = self.steps.iter().filter(|(at, _)| tick >= *at);
        let moved = set.map(|(_, step_ns)| step_ns).sum();
        (1_700_000_000_000_000_000 + ran as u64).saturating_add_signed(moved)
    }

    fn bracket(&self, tick: u64, width: u64) -> WallBracket {
        WallBracket {
            before: Tick(tick),
            wall_ns: self.wall(tick + width / 2),
            after: Tick(tick + width),
        }
    }

    fn map(&self, tick: u64) -> WallMap {
        WallMap::new(Machine::rate(), self.bracket(tick, 100))
    }

    /// A look at `tick`, each of whose readings takes 100 ticks.
    fn look(&self, map: &mut WallMap, tick: u64) -> bool {
        let mut now = tick;
        map.look(Tick(tick), || {
            let bracket = self.bracket(now, 100);
            now += 100;
            bracket
        })
    }
}

#[test]
fn a_step_is_seen_and_a_slew_is_not() {
    for (slew, step_ns, steps) in [
        (0.0, 0, 0),
        (5e-4, 0, 0),
        (-5e-4, 0, 0),
        (0.0, 300_000, 1),
        (0.0, -300_000, 1),
        (5e-4, -3_600_000_000_000, 1),
        (0.0, 37_000_000_000, 1),
    ] {
        let machine = Machine {
            slew,
            steps: vec![(7 * MILLI, step_ns)],
        };
        let mut map = machine.map(0);
        assert!(machine.look(&mut map, 2 * MILLI));
        assert!(machine.look(&mut map, 6 * MILLI));
        let place = format!("{slew} {step_ns}");
        assert_eq!(machine.look(&mut map, 8 * MILLI), steps == 0, "{place}");
        assert_eq!(map.steps(), steps, "{place}");
        // After the new fit the steadily running clock is trusted again, and stamps map to their ticks.
        assert!(machine.look(&mut map, 9 * MILLI), "{place}");
        let seconds = 3_000 * MILLI;
        assert!(machine.look(&mut map, seconds), "{place}");
        let mapped = map.tick(machine.wall(seconds)).0;
        assert!(mapped.abs_diff(seconds) < 10 * MICRO, "{mapped}: {place}");
    }
}

/// Looks every millisecond, under a slew: the offset is measured anew every ten, and between two fits the clock runs off.
#[test]
fn the_error_is_what_the_clock_ran_off_between_two_fits() {
    for (slew, least, most) in [(0.0, 20, 30), (5e-4, 4_000, 5_100), (-1e-4, 800, 1_100)] {
        let machine = Machine {
            slew,
            ..Machine::default()
        };
        let mut map = machine.map(0);
        assert_eq!(map.error(), Nanos(21), "half of 100 ticks");
        for turn in 1..40 {
            assert!(machine.look(&mut map, turn * MILLI));
        }
        let error = map.error().0;
        assert!((least..most).contains(&error), "{slew}: {error}");
    }
    // A long sleep adds nothing: what comes after it is mapped by a new offset.
    let machine = Machine {
        slew: 5e-4,
        ..Machine::default()
    };
    let mut map = machine.map(0);
    assert!(machine.look(&mut map, 9_000 * MILLI));
    assert_eq!(map.error(), Nanos(21));
}

#[test]
fn a_wide_bracket_accuses_nobody() {
    let machine = Machine::default();
    let map = machine.map(0);
    // Preempted for 8 ms between the two readings of the counter, once before and once after that of the wall clock.
    for read_at in [10 * MILLI, 18 * MILLI] {
        let bracket = WallBracket {
            before: Tick(10 * MILLI),
            wall_ns: machine.wall(read_at),
            after: Tick(18 * MILLI),
        };
        assert!(map.agrees(&bracket));
        // A nanosecond is two and a half ticks.
        assert!(map.off(&bracket) <= 3, "{}", map.off(&bracket));
    }
}

/// Bytes that waited in the socket while the clock was set are read in a later batch, which was steady.
#[test]
fn stamps_from_before_a_step_are_not_mapped_after_it() {
    for (step_ns, taken, read) in [
        (3_600_000_000_000, 4, 9),
        (-3_600_000_000_000, 4, 9),
        (3_000_000, 4, 9),
        // Set back by 3 ms: a stamp of 1 ms before looks like one of 2 ms after.
        (-3_000_000, 4, 9),
        (-3_000_000, 1, 20),
        (-200_000, 4, 6),
    ] {
        let machine = Machine {
            slew: 0.0,
            steps: vec![(5 * MILLI, step_ns)],
        };
        let mut map = machine.map(0);
        assert!(!machine.look(&mut map, 5 * MILLI + 10 * MICRO));
        assert!(machine.look(&mut map, read * MILLI));
        let stamp = map.stamp(machine.wall(taken * MILLI), Tick(read * MILLI));
        assert_eq!(stamp, Tick::NEVER, "{step_ns} ns, {taken} ms");
        // Long after it all is well.
        let late = 2_000 * MILLI;
        assert!(machine.look(&mut map, late + MILLI));
        let stamp = map.stamp(machine.wall(late), Tick(late + MILLI));
        assert!(stamp.0.abs_diff(late) < MICRO, "{stamp:?}");
    }
}

#[test]
fn this_machine_maps_its_own_wall_clock() {
    let clock = Clock::new();
    let mut kernel = KernelClock::new(&clock);
    let end = clock.now().plus(clock.rate().ticks(FIT_EVERY) * 10);
    let (mut looks, mut worst) = (0, u64::MAX);
    while clock.now() < end {
        // A clock set by others in mid-test is no failure.
        if kernel.is_steady() {
            looks += 1;
            let bracket = tightest(&mut || one_bracket(&clock));
            let mapped = kernel.stamp(bracket.wall_ns, bracket.after);
            let off = mapped.0.abs_diff(bracket.middle().0);
            worst = worst.min(clock.rate().nanos(off).0);
        }
    }
    assert!(looks > 100, "{looks}");
    assert!(worst < 20_000, "{worst} ns off at best");
    assert!(kernel.error().0 > 0, "no reading takes no time");
}

/// A read: (ticks after the one before, ticks that its bytes waited for the batch that it is in).
fn reads() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let wait = prop_oneof![6 => 0..500 * MICRO, 1 => 0..60 * MILLI];
    prop::collection::vec((MICRO..4 * MILLI, wait), 1..120)
}

/// A step that can be told from a slew.
fn step() -> impl Strategy<Value = i64> {
    let size = prop_oneof![300_000..5_000_000i64, 5_000_000..4_000_000_000_000i64];
    (size, any::<bool>()).prop_map(|(size, back)| if back { -size } else { size })
}

proptest! {
    /// The error is at most half the anchor's bracket, and what the slew makes of the distance.
    #[test]
    fn stamps_map_within_the_bound(
        slew in -5e-4..5e-4f64, width in 0u64..20_000, distance in -50i64..50, at in 200u64..100_000,
    ) {
        let machine = Machine { slew, ..Machine::default() };
        let map = WallMap::new(Machine::rate(), machine.bracket(at * MILLI, width));
        let tick = (at * MILLI).saturating_add_signed(distance * 2_400_000);
        let off = map.tick(machine.wall(tick)).0.abs_diff(tick) as f64;
        let bound = width as f64 / 2.0 + 5e-4 * (distance.unsigned_abs() * MILLI) as f64 + 1_000.0;
        prop_assert!(off <= bound, "{off} ticks off, {bound} allowed");
    }

    /// A clock that is slewed, and set once, at any place relative to the stamps, the batches and the looks: a stamp that is not given
    /// up is right, and none is given up but around the step.
    #[test]
    fn no_step_moves_a_stamp(
        slew in -5e-4..5e-4f64, at in 0u64..300 * MILLI, step_ns in step(), reads in reads(),
    ) {
        // Not at the counter's origin, before which nothing can be mapped.
        let origin = 4_000 * MILLI;
        let at = origin + at;
        let machine = Machine { slew, steps: vec![(at, step_ns)] };
        let mut map = machine.map(origin);
        let mut now = origin + 1_000;
        for (gap, waited) in reads {
            now += gap;
            let taken = now.saturating_sub(waited).max(origin);
            // The batch was seen complete before the look.
            let completed = now;
            let steady = machine.look(&mut map, now + 200);
            now += 2_000;
            let stamp = map.stamp(machine.wall(taken), Tick(completed));
            let far = at > completed + 2_000 || taken > at + 1_100 * MILLI || at == origin;
            prop_assert!(steady || !far, "a step at {at} was seen at {now}");
            if steady && stamp != Tick::NEVER {
                let off = stamp.0.abs_diff(taken);
                let slewed = 6e-4 * (waited + 10 * MILLI) as f64;
                prop_assert!(off as f64 <= slewed + 2_000.0, "{off} ticks off at {taken}, {step_ns} ns at {at}");
            }
            prop_assert!(!far || stamp != Tick::NEVER, "given up at {taken}, {step_ns} ns at {at}");
        }
        prop_assert!(map.steps() <= 1);
        prop_assert!(map.error() < Nanos(12_000), "{:?}", map.error());
    }
}
