//! The steady state: the part of a phase in which its load stood at what was asked for.
//!
//! In: when each request held its slot, a few of its values. Out: the longest interval in which at least 95 % of the target were in flight,
//! and metrics of it. Never: guesses a target, or keeps a reply's chunks.
//!
//! The target is the concurrency: in the closed loop what is to be in flight all the time; with a rate the cap, so that a steady state is one
//! in which the cap held the load back. A rate without a cap has no target.
//!
//! A request is in flight from its start to its end; in the closed loop already from when its slot came free, since the moments that the client
//! takes to send the next request on a slot are no change of the load. Dips of less than a millisecond, or of a thousandth of the longest
//! request, end nothing: that is how well ends and starts can be told from each other.
//!
//! Latencies are of the valid requests that lie in the interval whole, from start to end. This favours short ones when the interval is
//! not much longer than a request: see its length. Throughput is of what happened in it, whoever it belongs to: tokens that
//! arrived, counted as if each reply decoded at an even rate between its first and its last content event, and requests that ended.

use super::registry::METRICS;
use super::request::index;
use super::series::Item;
use super::{PhaseFrame, Row, Stats, Window, arrival, quantile};
use crate::record::{Chunk, Record};

/// In percent of the target.
pub const LEVEL_PERCENT: u64 = 95;

/// Dips shorter than this end nothing.
const DIP_NS: u64 = 1_000_000;

/// Dips shorter than the longest request divided by this end nothing.
const DIP_DIVISOR: u64 = 1_000;

/// A phase's steady state.
#[derive(Clone, Debug, PartialEq)]
pub enum Steady {
    /// There was one.
    State(SteadyState),
    /// There was none, for this reason.
    Absent(String),
}

/// The longest interval at the target, and its metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct SteadyState {
    /// The interval.
    pub window: Window,
    /// Its part of the phase's benchmark duration, 0 to 1.
    pub share: f64,
    /// What was to be in flight.
    pub target: u64,
    /// What was in flight at least.
    pub level: u64,
    /// `request_latency`, `time_to_first_token`, `inter_token_latency`, `output_token_throughput`, `request_throughput` and
    /// `request_count`, as far as they have values.
    pub rows: Vec<Row>,
}

/// Requests on the time line.
#[derive(Debug)]
pub(super) struct Track {
    moments: Vec<Moment>,
}

/// Values of one request, by the place of their metric in [`VALUES`]; not a number where there is none.
pub(super) type Values = [f64; 3];

/// Metrics of the steady state that have a value for each request.
const VALUES: [usize; 3] = [
    index!("request_latency"),
    index!("time_to_first_token"),
    index!("inter_token_latency"),
];

/// One of them. 80 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The slot came free, in the closed loop; else the start.
    due_ns: u64,
    start_ns: u64,
    end_ns: u64,
    /// First and last content event; without one, the start.
    first_ns: u64,
    last_ns: u64,
    tokens: f64,
    valid: bool,
    values: Values,
}

/// Notes `value` if the metric at `index` is one of the steady state's.
pub(super) fn note(values: &mut Values, index: usize, value: f64) {
    if let Some(place) = VALUES.iter().position(|&wanted| wanted == index) {
        values[place] = value;
    }
}

impl Moment {
    pub(super) fn of(record: &Record, values: Values) -> Moment {
        let start_ns = record.wall_start_ns;
        let after = |nanos: u64| start_ns.saturating_add(nanos);
        let at = |chunk: Option<&Chunk>| after(chunk.map_or(0, |chunk| chunk.at.0));
        Moment {
            due_ns: start_ns.saturating_sub(record.lateness.0),
            start_ns,
            end_ns: after(record.end.0),
            first_ns: at(record.chunks.first()),
            last_ns: at(record.chunks.last()),
            tokens: arrival::token_count(record),
            valid: record.is_success(),
            values,
        }
    }
}

impl Item for Moment {
    type Words = [u64; 10];

    fn words(self) -> [u64; 10] {
        let [latency, first_token, inter_token] = self.values.map(f64::to_bits);
        [
            self.due_ns,
            self.start_ns,
            self.end_ns,
            self.first_ns,
            self.last_ns,
            self.tokens.to_bits(),
            self.valid.into(),
            latency,
            first_token,
            inter_token,
        ]
    }

    fn of(words: [u64; 10]) -> Moment {
        let [
            due_ns,
            start_ns,
            end_ns,
            first_ns,
            last_ns,
            tokens,
            valid,
            values @ ..,
        ] = words;
        Moment {
            due_ns,
            start_ns,
            end_ns,
            first_ns,
            last_ns,
            tokens: f64::from_bits(tokens),
            valid: valid != 0,
            values: values.map(f64::from_bits),
        }
    }
}

impl Track {
    pub(super) fn of(moments: Vec<Moment>) -> Track {
        Track { moments }
    }

    /// The steady state of a phase whose requests filled `measured`.
    pub(super) fn steady(mut self, frame: &PhaseFrame, measured: Window) -> Steady {
        let Some(target) = frame.concurrency else {
            return Steady::Absent(
                "there is no --concurrency, which would say how many requests should be in flight"
                    .to_owned(),
            );
        };
        // The order in which records came decides no sum.
        self.moments
            .sort_unstable_by_key(|m| (m.start_ns, m.end_ns));
        let level = (target * LEVEL_PERCENT).div_ceil(100).max(1);
        let (longest, most) = self.longest(frame, level);
        let Some(window) = longest else {
            return Steady::Absent(format!(
                "never {level} requests in flight, {LEVEL_PERCENT} % of --concurrency {target}; the most were {most}"
            ));
        };
        let whole = measured.length().seconds();
        Steady::State(SteadyState {
            window,
            share: (window.length().seconds() / whole).min(1.0),
            target,
            level,
            rows: self.rows(window),
        })
    }

    /// The longest interval with at least `level` in flight, the first one of several, and the most that ever were.
    fn longest(&self, frame: &PhaseFrame, level: u64) -> (Option<Window>, u64) {
        let mut changes: Vec<(u64, i64)> = Vec::with_capacity(2 * self.moments.len());
        let mut dip_ns = DIP_NS;
        for moment in &self.moments {
            let begin = if frame.closed_loop {
                moment.due_ns.max(frame.start_ns)
            } else {
                moment.start_ns
            };
            changes.push((begin.min(moment.end_ns), 1));
            changes.push((moment.end_ns, -1));
            let length = moment.end_ns - moment.start_ns;
            dip_ns = dip_ns.max(length / DIP_DIVISOR);
        }
        changes.sort_unstable();
        let (mut now, mut most) = (0_u64, 0);
        let mut current: Option<Window> = None;
        let mut longest: Option<Window> = None;
        for same in changes.chunk_by(|a, b| a.0 == b.0) {
            let at = same[0].0;
            let was = now >= level;
            let change: i64 = same.iter().map(|change| change.1).sum();
            now = now.saturating_add_signed(change);
            most = most.max(now);
            match (was, now >= level) {
                (false, true) => {
                    // A short dip is passed over.
                    let goes_on = current.filter(|open| at - open.end_ns < dip_ns);
                    current = goes_on.or(Some(Window {
                        start_ns: at,
                        end_ns: at,
                    }));
                }
                (true, false) => {
                    if let Some(open) = &mut current {
                        open.end_ns = at;
                        if longest.is_none_or(|longest| longest.length() < open.length()) {
                            longest = Some(*open);
                        }
                    }
                }
                _ => {}
            }
        }
        (longest.filter(|window| window.length().0 > 0), most)
    }

    fn rows(&self, window: Window) -> Vec<Row> {
        let lies_in = |m: &&Moment| m.start_ns >= window.start_ns && m.end_ns <= window.end_ns;
        let inside: Vec<&Moment> = self
            .moments
            .iter()
            .filter(lies_in)
            .filter(|m| m.valid)
            .collect();
        let mut rows = Vec::with_capacity(6);
        for (place, &index) in VALUES.iter().enumerate() {
            let mut values: Vec<f64> = inside.iter().map(|m| m.values[place]).collect();
            rows.extend(quantile::distribution(&mut values).map(|stats| row(index, stats)));
        }
        let seconds = window.length().seconds();
        let tokens: f64 = self.moments.iter().map(|m| m.tokens_in(window)).sum();
        let ended = |m: &&Moment| m.valid && (window.start_ns..=window.end_ns).contains(&m.end_ns);
        let ended = self.moments.iter().filter(ended).count() as f64;
        let mut scalar = |index, value| rows.push(row(index, Stats::scalar(value)));
        scalar(index!("output_token_throughput"), tokens / seconds);
        scalar(index!("request_throughput"), ended / seconds);
        scalar(index!("request_count"), inside.len() as f64);
        rows
    }
}

impl Moment {
    /// Its tokens that arrived in `window`: the first with the first content event, the others evenly up to the last.
    fn tokens_in(&self, window: Window) -> f64 {
        if self.tokens <= 0.0 || self.last_ns < window.start_ns || self.first_ns > window.end_ns {
            return 0.0;
        }
        let decoding = self.last_ns - self.first_ns;
        if decoding == 0 {
            return self.tokens;
        }
        let first = self.tokens.min(1.0);
        let before = if self.first_ns >= window.start_ns {
            first
        } else {
            0.0
        };
        let from = self.first_ns.max(window.start_ns);
        let to = self.last_ns.min(window.end_ns);
        let part = to.saturating_sub(from) as f64 / decoding as f64;
        before + (self.tokens - first) * part
    }
}

fn row(index: usize, stats: Stats) -> Row {
    Row {
        metric: &METRICS[index],
        stats,
    }
}
