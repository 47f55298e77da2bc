//! How a worker's loop goes: how long it is at work at a stretch, and how late it sees things.
//!
//! In: the ticks that an engine is told anyway, by any driver. Out: counts, and histograms of ticks. Never: reads a clock, allocates after
//! it was made, or judges.
//!
//! A *turn* begins with the first tick that an engine hears of after it has asked to wait (a completion's stamp, or the time it is
//! asked at), and ends with the time at which it asks to wait again. What the driver does between waking and its first stamp is
//! outside, some microseconds. A turn in which the system took the core away is longer by that.

use hdrhistogram::Histogram;

use crate::clock::Tick;
use crate::driver::{Sent, Stamp};

use super::Engine;

/// Longest length that the histograms tell apart from longer ones: 2^40 ticks, minutes on any counter.
const LONGEST: u64 = 1 << 40;

/// How one worker's loop went. Lengths are in ticks.
#[derive(Clone, Debug)]
pub struct LoopHealth {
    /// Length of each turn.
    pub turns: Histogram<u64>,
    /// From the time that a wait was to end to the first tick heard of after it. Waits that a completion ended before are not in it.
    pub wake_lateness: Histogram<u64>,
    /// From the kernel's stamp of a read to the driver's; empty where the kernel stamps nothing.
    pub receive_delay: Histogram<u64>,
    /// From just before to just after the write of each request that one write took whole: its first byte left in between.
    pub send_bracket: Histogram<u64>,
    /// Sum of all turns.
    pub busy: u64,
    /// Reads handed to the engine.
    pub reads: u64,
    /// Turns with a read.
    pub read_turns: u64,
    /// Events of streams in finished exchanges.
    pub events: u64,
    first: Tick,
    last: Tick,
    /// [`Tick::NEVER`] between turns.
    turn_start: Tick,
    /// Reads before this turn.
    reads_before: u64,
    /// When the wait is to end; [`Tick::NEVER`] when nothing is awaited.
    awaited: Tick,
}

impl Default for LoopHealth {
    fn default() -> LoopHealth {
        LoopHealth::new()
    }
}

impl LoopHealth {
    /// A loop that has not begun. Allocates all that it will ever need.
    #[must_use]
    pub fn new() -> LoopHealth {
        // The bounds are constants with 1 < 2 * high and at most five digits, which is all that the constructor asks.
        let empty = Histogram::new_with_bounds(1, LONGEST, 2).expect("constant bounds are valid");
        LoopHealth {
            turns: empty.clone(),
            wake_lateness: empty.clone(),
            receive_delay: empty.clone(),
            send_bracket: empty,
            busy: 0,
            reads: 0,
            read_turns: 0,
            events: 0,
            first: Tick::NEVER,
            last: Tick(0),
            turn_start: Tick::NEVER,
            reads_before: 0,
            awaited: Tick::NEVER,
        }
    }

    /// Ticks between the first and the last thing that the loop heard of.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.last.since(self.first)
    }

    /// Something happened at `tick`.
    #[inline]
    pub(super) fn awake(&mut self, tick: Tick) {
        if self.turn_start != Tick::NEVER {
            return;
        }
        if tick >= self.awaited {
            self.wake_lateness
                .saturating_record(tick.since(self.awaited));
        }
        // A completion of the turn before, taken along while something was sent, does not lengthen this one.
        self.turn_start = tick.max(self.last);
        self.first = self.first.min(tick);
    }

    /// A read came.
    #[inline]
    pub(super) fn received(&mut self, stamp: Stamp) {
        self.awake(stamp.tick);
        self.reads += 1;
        if stamp.kernel != Tick::NEVER {
            let delay = stamp.tick.since(stamp.kernel);
            self.receive_delay.saturating_record(delay);
        }
    }

    /// A request went out.
    #[inline]
    pub(super) fn sent(&mut self, sent: &Sent) {
        if sent.writes == 1 && sent.error.is_none() {
            self.send_bracket
                .saturating_record(sent.last.since(sent.first));
        }
    }

    /// The engine asked at `now` to wait until `until`, or, with [`Tick::NEVER`], for completions only.
    #[inline]
    pub(super) fn asleep(&mut self, now: Tick, until: Tick) {
        let length = now.since(self.turn_start);
        self.turns.saturating_record(length);
        self.busy += length;
        self.read_turns += u64::from(self.reads > self.reads_before);
        self.reads_before = self.reads;
        self.last = self.last.max(now);
        self.turn_start = Tick::NEVER;
        // A time that has come already is not waited for.
        self.awaited = if until > now { until } else { Tick::NEVER };
    }
}

impl Engine {
    /// How its loop went.
    #[must_use]
    pub fn health(&self) -> &LoopHealth {
        &self.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tick: u64, kernel: Tick) -> Stamp {
        Stamp {
            tick: Tick(tick),
            kernel,
        }
    }

    #[test]
    fn a_turn_is_from_its_first_stamp_to_the_wait() {
        let mut health = LoopHealth::new();
        health.awake(Tick(100));
        health.asleep(Tick(110), Tick::NEVER);
        health.received(read(150, Tick(145)));
        health.received(read(160, Tick::NEVER));
        health.awake(Tick(170));
        health.asleep(Tick(190), Tick::NEVER);
        assert_eq!((health.turns.len(), health.turns.max()), (2, 40));
        assert_eq!((health.busy, health.length()), (50, 90));
        assert_eq!((health.reads, health.read_turns), (2, 1));
        let delay = &health.receive_delay;
        assert_eq!((delay.len(), delay.max()), (1, 5));
        assert!(health.wake_lateness.is_empty(), "no time was awaited");
    }

    #[test]
    fn a_stamp_of_the_turn_before_does_not_lengthen_a_turn() {
        let mut health = LoopHealth::new();
        health.awake(Tick(100));
        health.asleep(Tick(200), Tick(500));
        health.received(read(150, Tick::NEVER));
        health.asleep(Tick(210), Tick(500));
        assert_eq!((health.busy, health.length()), (110, 110));
        assert!(health.wake_lateness.is_empty());
    }

    #[test]
    fn only_a_wait_that_lasted_is_late() {
        let mut health = LoopHealth::new();
        // (asked at, until, woken at, lateness)
        for (now, until, woken, late) in [
            (100, 200, 203, Some(3)),
            (300, 400, 350, None),
            (400, 400, 450, None),
            (500, 700, 700, Some(0)),
            (800, u64::MAX, 900, None),
        ] {
            let before = health.wake_lateness.len();
            health.awake(Tick(now));
            health.asleep(Tick(now), Tick(until));
            health.awake(Tick(woken));
            health.asleep(Tick(woken), Tick::NEVER);
            let count = health.wake_lateness.len() - before;
            assert_eq!(count, u64::from(late.is_some()), "{now}");
            if let Some(late) = late {
                assert!(health.wake_lateness.count_at(late) > 0, "{now}");
            }
        }
    }

    #[test]
    fn a_bracket_needs_a_single_good_write() {
        let sent = |writes, error| Sent {
            first: Tick(10),
            last: Tick(17),
            writes,
            error,
        };
        let mut health = LoopHealth::new();
        health.sent(&sent(2, None));
        health.sent(&sent(1, Some(crate::driver::CloseReason::Io)));
        assert!(health.send_bracket.is_empty());
        health.sent(&sent(1, None));
        assert_eq!(health.send_bracket.max(), 7);
    }

    #[test]
    fn a_stamp_before_the_kernels_is_no_delay() {
        let mut health = LoopHealth::new();
        health.received(read(150, Tick(155)));
        assert_eq!(health.receive_delay.max(), 0);
        assert_eq!(LoopHealth::new().length(), 0);
    }
}
