//! Receive windows: how long reads that are ready may be left.
//!
//! In: what was read, and when the kernel had received it. Out: the length of the next window; 0 to read at once. Never: a window that
//! could merge two of a stream's reads into one, or that holds up a request noticeably.
//!
//! The kernel's stamps do not hang on when a read is taken, so that one wake-up may take the reads of a whole window. A window is at
//! most a quarter of the shortest gap between the reads of a stream, a hundredth of a reply, and [`MOST`]; it ends with the next time
//! that the engine waits for. It pays from [`LEAST_READS`] on. When more events share a read than without windows, it is halved.

use crate::clock::{Nanos, Rate, Tick};
use crate::engine::Arrived;

use super::waiting::Window;

/// The longest window.
const MOST: Nanos = Nanos::from_millis(1);

/// A shorter one is none.
const LEAST: Nanos = Nanos(50_000);

/// With fewer reads in a window it costs more than it saves.
const LEAST_READS: f64 = 5.0;

/// Reads that end a window early: half as many as there are buffers at first. Rather the clock should end it: a core that is woken by
/// the packet that fills the window soon waits for that packet's socket, which the waking core still holds.
pub(super) const READS_MOST: u32 = 128;

/// Lengths are chosen anew this often.
const PERIOD: Nanos = Nanos::from_millis(50);

/// A share of events is told from fewer only by chance.
const EVENTS_LEAST: u64 = 50;

/// Events may share a read this much more often than without windows.
const SHARED_MORE: f64 = 0.005;

/// Periods without a window, after windows have proved to merge reads; twice as many each further time, up to [`REST_MOST`].
const REST: u32 = 20;

/// See [`REST`].
const REST_MOST: u32 = 320;

/// In a period that showed no harm the ceiling grows by this part.
const GROWTH: u64 = 16;

/// A window is at most this part of the shortest gap.
const PART_OF_GAP: u64 = 4;

/// A window is at most this part of a reply.
const PART_OF_REPLY: u64 = 100;

/// One new gap moves a stream's smoothed one by this part: a single hiccup of the server decides nothing.
const SMOOTHING: u64 = 8;

/// The gaps between the reads of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    last: Tick,
    smoothed: Option<u64>,
}

impl Default for Gaps {
    fn default() -> Self {
        Gaps {
            last: Tick::NEVER,
            smoothed: None,
        }
    }
}

impl Gaps {
    /// A request goes out: what comes next answers it, so the time until then is no gap.
    pub(super) fn request(&mut self) {
        self.last = Tick::NEVER;
    }

    /// The smoothed gap after a read of `arrival`.
    fn read(&mut self, arrival: Tick) -> Option<u64> {
        let last = std::mem::replace(&mut self.last, arrival);
        if last == Tick::NEVER {
            return None;
        }
        let gap = arrival.since(last);
        let before = self.smoothed.unwrap_or(gap);
        self.smoothed = Some(before - before / SMOOTHING + gap / SMOOTHING);
        self.smoothed
    }
}

/// The windows of one worker.
#[derive(Debug)]
pub(super) struct Windows {
    rate: Rate,
    wish: Window,
    /// What the windows may be by their effect on shared reads, in ticks.
    ceiling: u64,
    /// Periods that are still to pass without windows, and how many it will be next time.
    rest: u32,
    next_rest: u32,
    /// Length now, in ticks.
    length: u64,
    began: Tick,
    reads: u64,
    reads_per_tick: f64,
    /// The shortest smoothed gap of a stream, in this period and in the one before.
    shortest: u64,
    shortest_before: u64,
    /// What had arrived when the period began.
    seen: Arrived,
    /// Share of events that share their read anyway.
    baseline: f64,
    longest: u64,
    count: u64,
}

impl Windows {
    /// Windows as wished, from `now` on.
    pub(super) fn new(rate: Rate, wish: Window, now: Tick) -> Windows {
        Windows {
            rate,
            wish,
            ceiling: rate.ticks(MOST),
            rest: 0,
            next_rest: REST,
            length: 0,
            began: now,
            reads: 0,
            reads_per_tick: 0.0,
            shortest: u64::MAX,
            shortest_before: u64::MAX,
            seen: Arrived::default(),
            baseline: 0.0,
            longest: 0,
            count: 0,
        }
    }

    /// A read that the kernel had received at `arrival`, on the connection of `gaps`.
    pub(super) fn read(&mut self, gaps: &mut Gaps, arrival: Tick) {
        self.reads += 1;
        if let Some(gap) = gaps.read(arrival) {
            self.shortest = self.shortest.min(gap);
        }
    }

    /// How many ticks from `now` on reads may be left, when the engine waits for the time in `left` ticks; 0 to read at once.
    pub(super) fn open(&mut self, now: Tick, left: u64, arrived: &Arrived) -> u64 {
        let window = match self.wish {
            Window::Fixed(length) => self.rate.ticks(length).min(left),
            Window::Auto => {
                if now.since(self.began) >= self.rate.ticks(PERIOD) {
                    self.choose(now, arrived);
                }
                let window = self.length.min(left);
                let enough = window as f64 * self.reads_per_tick >= LEAST_READS;
                if enough { window } else { 0 }
            }
        };
        if window > 0 {
            self.count += 1;
            self.longest = self.longest.max(window);
        }
        window
    }

    /// Windows so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The longest so far.
    pub(super) fn longest(&self) -> Nanos {
        self.rate.nanos(self.longest)
    }

    fn choose(&mut self, now: Tick, arrived: &Arrived) {
        self.reads_per_tick = self.reads as f64 / now.since(self.began) as f64;
        let shortest = self.shortest.min(self.shortest_before);
        self.judge(arrived);
        self.began = now;
        self.reads = 0;
        self.shortest_before = std::mem::replace(&mut self.shortest, u64::MAX);
        self.seen = *arrived;
        let reply = arrived.reply_ticks.unwrap_or(u64::MAX);
        let length = self
            .ceiling
            .min(shortest / PART_OF_GAP)
            .min(reply / PART_OF_REPLY);
        let known = shortest < u64::MAX && self.rest == 0;
        let pays = length as f64 * self.reads_per_tick >= LEAST_READS;
        let long_enough = length >= self.rate.ticks(LEAST);
        self.length = if known && pays && long_enough {
            length
        } else {
            0
        };
        self.rest = self.rest.saturating_sub(1);
    }

    /// Whether the period's windows have made events share reads.
    fn judge(&mut self, arrived: &Arrived) {
        let events = arrived.events.saturating_sub(self.seen.events);
        if events < EVENTS_LEAST {
            return;
        }
        let share = arrived.shared.saturating_sub(self.seen.shared) as f64 / events as f64;
        if self.length > 0 && share > self.baseline + SHARED_MORE {
            self.ceiling = self.length / 2;
            if self.ceiling < self.rate.ticks(LEAST) {
                self.ceiling = self.rate.ticks(LEAST) * 2;
                self.rest = self.next_rest;
                self.next_rest = (self.next_rest * 2).min(REST_MOST);
            }
            return;
        }
        if self.length == 0 {
            self.baseline = share;
        } else {
            self.next_rest = REST;
        }
        let wider = self.ceiling + self.ceiling / GROWTH;
        self.ceiling = wider.min(self.rate.ticks(MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// A machine on which a tick is a nanosecond.
    struct Bench {
        windows: Windows,
        gaps: Vec<Gaps>,
        arrived: Arrived,
        now: u64,
    }

    impl Bench {
        fn new(wish: Window, streams: usize) -> Bench {
            Bench {
                windows: Windows::new(Rate::NANOS, wish, Tick(0)),
                gaps: vec![Gaps::default(); streams],
                arrived: Arrived::default(),
                now: 0,
            }
        }

        /// Every stream is read each `gap`, for `length`; `shared` of a thousand events share their read. Returns the last window.
        fn run(&mut self, gap: u64, length: u64, shared: u64) -> u64 {
            let step = gap / self.gaps.len() as u64;
            let end = self.now + length;
            let (mut stream, mut window) = (0, 0);
            while self.now < end {
                self.now += step;
                stream = (stream + 1) % self.gaps.len();
                self.windows.read(&mut self.gaps[stream], Tick(self.now));
                self.arrived.events += 1;
                let share = self.arrived.events * shared / 1_000;
                self.arrived.shared = self.arrived.shared.max(share);
                window = self.windows.open(Tick(self.now), 20 * MS, &self.arrived);
            }
            window
        }
    }

    #[test]
    fn a_window_is_as_long_as_costs_nothing() {
        // Streams, gap between a stream's reads, and the window that comes of it.
        for (streams, gap, expected) in [
            (1_000, 20 * MS, MS),
            (100, 10 * MS, MS),
            // A quarter of the gap.
            (200, 2 * MS, 500 * US),
            // Under five reads in a millisecond.
            (50, 20 * MS, 0),
            (1, 20 * MS, 0),
            // A quarter of the gap would be too short to be one.
            (20, 150 * US, 0),
        ] {
            let mut bench = Bench::new(Window::Auto, streams);
            let window = bench.run(gap, 400 * MS, 0);
            assert!(
                window.abs_diff(expected) <= expected / 50,
                "{streams} x {gap}: {window}"
            );
        }
    }

    #[test]
    fn the_next_due_time_ends_it() {
        let mut bench = Bench::new(Window::Auto, 1_000);
        bench.run(20 * MS, 200 * MS, 0);
        let arrived = bench.arrived;
        let mut open = |left| bench.windows.open(Tick(bench.now), left, &arrived);
        assert_eq!(open(300 * US), 300 * US);
        assert_eq!(open(20 * US), 0, "one read would come in it");
    }

    #[test]
    fn one_fast_stream_among_slow_ones_decides() {
        let mut bench = Bench::new(Window::Auto, 1_000);
        let mut fast = Gaps::default();
        let mut window = 0;
        for _ in 0..200 {
            window = bench.run(20 * MS, 2 * MS, 0);
            bench.windows.read(&mut fast, Tick(bench.now));
        }
        assert!(window.abs_diff(500 * US) < 20 * US, "{window}");
    }

    #[test]
    fn short_replies_are_not_held_up() {
        let mut bench = Bench::new(Window::Auto, 1_000);
        bench.arrived.reply_ticks = Some(30 * MS);
        assert_eq!(bench.run(10 * MS, 300 * MS, 0), 300 * US);
    }

    #[test]
    fn a_request_s_wait_is_no_gap() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.read(Tick(0)), None);
        assert_eq!(gaps.read(Tick(10)), Some(10));
        gaps.request();
        assert_eq!(gaps.read(Tick(9_000)), None);
        assert_eq!(gaps.read(Tick(9_018)), Some(11), "an eighth of the way");
    }

    #[test]
    fn shared_reads_shorten_it_and_peace_brings_it_back() {
        let mut bench = Bench::new(Window::Auto, 1_000);
        assert_eq!(bench.run(20 * MS, 300 * MS, 0), MS);
        let shortened = bench.run(20 * MS, 100 * MS, 20);
        assert!(shortened > 0 && shortened < MS, "{shortened}");
        // It goes on rising: no windows at all.
        let mut share = 20;
        for _ in 0..10 {
            share += 60;
            bench.run(20 * MS, 60 * MS, share);
        }
        assert_eq!(bench.windows.length, 0);
        // It was not the windows: the share stays, and becomes what there is without them.
        assert!(bench.run(20 * MS, 6_000 * MS, 0) > 0);
    }

    #[test]
    fn a_server_that_sends_bursts_anyway_is_no_reason() {
        let mut bench = Bench::new(Window::Auto, 1_000);
        assert_eq!(bench.run(20 * MS, 300 * MS, 500), MS);
    }

    #[test]
    fn a_fixed_one_is_fixed() {
        let mut bench = Bench::new(Window::Fixed(Nanos(250_000)), 3);
        assert_eq!(bench.run(20 * MS, 100 * MS, 900), 250 * US);
        assert_eq!(bench.windows.longest(), Nanos(250_000));
        let mut none = Bench::new(Window::Fixed(Nanos(0)), 1_000);
        assert_eq!(none.run(20 * MS, 300 * MS, 0), 0);
        assert_eq!(none.windows.count(), 0);
    }
}
