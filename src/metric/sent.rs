//! The rate at which requests were to be sent, and at which they were.
//!
//! In: when each request was due and sent, the phase's start. Out: two rates. Never: a rate of a closed loop, which asks for none.

use crate::metric::PhaseFrame;
use crate::metric::Stats;
use crate::metric::request::index;
use crate::record::Record;

/// Sums over the requests of a phase. Times are wall-clock nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentRate {
    count: u64,
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
        self.last_sent_ns = self.last_sent_ns.max(other.last_sent_ns);
        self.last_due_ns = self.last_due_ns.max(other.last_due_ns);
    }

    /// Sets `asked_request_rate`, requests over the time from the phase's start to when the last of them was due, and
    /// `achieved_request_rate`, the same to when it was sent. Arrival 0 comes one gap after the start, so that a constant rate is asked
    /// for exactly; what a random law drew is in both alike.
    pub(super) fn fill(self, frame: Option<PhaseFrame>, rows: &mut [Option<Stats>]) {
        let Some(frame) = frame.filter(|frame| !frame.closed_loop && self.count > 0) else {
            return;
        };
        let rate = |until_ns: u64| {
            let length_ns = until_ns.saturating_sub(frame.start_ns);
            (length_ns > 0).then(|| Stats::scalar(self.count as f64 * 1e9 / length_ns as f64))
        };
        rows[index!("asked_request_rate")] = rate(self.last_due_ns);
        rows[index!("achieved_request_rate")] = rate(self.last_sent_ns);
    }
}
