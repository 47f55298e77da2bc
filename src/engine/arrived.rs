//! What came in, for a driver that decides how promptly to read.
//!
//! In: reads as they are parsed. Out: counts and one smoothed length. Never: a look at the time.

use crate::clock::Tick;
use crate::driver::Stamp;

/// One new length moves the smoothed one by this part.
const SMOOTHING: u64 = 8;

/// Counts over the life of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Events of reads in mid-stream: neither a reply's first read nor one that ended it or its stream.
    pub events: u64,
    /// Of those, events that shared their read with another.
    pub shared: u64,
    /// Smoothed ticks from a request's start to the end of its reply; `None` before the first.
    pub reply_ticks: Option<u64>,
    /// Replies whose end has been read.
    pub replies: u64,
    /// Ticks from the arrival of a reply's last bytes to their reading, summed over replies. In the closed loop the next request
    /// starts so much later.
    pub held_ticks: u64,
    /// The longest of them.
    pub held_longest: u64,
}

impl Arrived {
    /// Adds another engine's; the smoothed length becomes the shorter one.
    pub fn add(&mut self, other: &Arrived) {
        self.events += other.events;
        self.shared += other.shared;
        self.reply_ticks = [self.reply_ticks, other.reply_ticks]
            .into_iter()
            .flatten()
            .min();
        self.replies += other.replies;
        self.held_ticks += other.held_ticks;
        self.held_longest = self.held_longest.max(other.held_longest);
    }

    /// A read in mid-stream completed `events` events.
    pub(super) fn in_stream(&mut self, events: usize) {
        let events = events as u64;
        self.events += events;
        self.shared += if events > 1 { events } else { 0 };
    }

    /// A read ended the reply to a request that had started at `start`.
    pub(super) fn reply(&mut self, start: Tick, stamp: Stamp) {
        let ticks = stamp.arrival().since(start);
        let before = self.reply_ticks.unwrap_or(ticks);
        self.reply_ticks = Some(before - before / SMOOTHING + ticks / SMOOTHING);
        let held = stamp.tick.since(stamp.arrival());
        self.replies += 1;
        self.held_ticks += held;
        self.held_longest = self.held_longest.max(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_smoothed_and_late_reads_add_up() {
        let mut arrived = Arrived::default();
        let stamp = |kernel, tick| Stamp {
            kernel: Tick(kernel),
            tick: Tick(tick),
        };
        arrived.reply(Tick(100), stamp(900, 910));
        assert_eq!(arrived.reply_ticks, Some(800));
        arrived.reply(Tick(1_000), stamp(2_600, 2_630));
        assert_eq!(arrived.reply_ticks, Some(900), "an eighth of the way");
        let (held, longest) = (arrived.held_ticks, arrived.held_longest);
        assert_eq!((arrived.replies, held, longest), (2, 40, 30));
        for events in [0, 1, 1, 3] {
            arrived.in_stream(events);
        }
        assert_eq!((arrived.events, arrived.shared), (5, 3));
    }
}
