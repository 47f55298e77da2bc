//! The rate at which requests were to be sent, and at which they were.
//!
//! In: when each request was due and sent, how many were left out, the phase's start. Out: two rates. Never: a rate of a closed loop, which asks for none.

use crate::metric::PhaseFrame;
use crate::metric::Stats;
use crate::metric::request::index;
use crate::record::Record;

/// Sums over the requests of a phase. Times are wall-clock nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentRate {
    count: u64,
    left_out_count: u64,
    last_due_ns: u64,
    last_sent_ns: u64,
}

impl SentRate {
    pub(super) fn add(&mut self, record: &Record) {
        let sent_ns = record.wall_start_ns;
        self.count += 1;
        self.last_sent_ns = self.last_sent_ns.max(sent_ns);
        let due_ns = sent_ns.saturating_sub(record.lateness.0);
        self.last_due_ns = self.last_due_ns.max(due_ns);
    }

    pub(super) fn merge(&mut self, other: SentRate) {
        self.count += other.count;
        self.left_out_count += other.left_out_count;
        self.last_sent_ns = self.last_sent_ns.max(other.last_sent_ns);
        self.last_due_ns = self.last_due_ns.max(other.last_due_ns);
    }

    /// `count` more were asked for and left out; the last of them was due at `last_due_ns`.
    pub(super) fn left_out(&mut self, count: u64, last_due_ns: u64) {
        self.left_out_count += count;
        self.last_due_ns = self.last_due_ns.max(last_due_ns);
    }

    /// Sets `asked_request_rate`, requests asked for, those left out as well, over the time from the phase's start to when the last of them was due, and
    /// `achieved_request_rate`, those sent over the time to when the last of them was. Arrival 0 comes one gap after the start, so that a constant rate is asked
    /// for exactly; what a random law drew is in both alike.
    pub(super) fn fill(self, frame: Option<PhaseFrame>, rows: &mut [Option<Stats>]) {
        let Some(frame) = frame.filter(|frame| !frame.closed_loop && self.count > 0) else {
            return;
        };
        let rate = |count: u64, until_ns: u64| {
            let length_ns = until_ns.saturating_sub(frame.start_ns);
            (length_ns > 0).then(|| Stats::scalar(count as f64 * 1e9 / length_ns as f64))
        };
        let asked = self.count + self.left_out_count;
        rows[index!("asked_request_rate")] = rate(asked, self.last_due_ns);
        rows[index!("achieved_request_rate")] = rate(self.count, self.last_sent_ns);
    }
}
