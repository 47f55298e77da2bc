//! Metrics of the run as a function of time.
//!
//! In: start, first token and end of every request. Out: step functions, weighted by time over the window. Never: needs the time
//! of each token.
//!
//! A request decodes its tokens after the first at an even rate: from its first content event to its last for the decode
//! throughput, to its last event of any kind for the total. AIPerf spreads the same tokens over each gap between content events,
//! which has the same mean and, on an even stream, the same percentiles; a burst shows there as a peak and here does not. Tokens
//! in flight grow with the events in steps; here their mean course is followed, so that its percentiles are those of the steps.
//! Requests that failed or were cut occupy the server too and count in `effective_concurrency`; they have no phases.

use super::quantile::finite;
use super::request::index;
use super::{Context, Stats, Window};
use crate::record::Record;

/// One request on the time line, wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start_ns: u64,
    /// First token; `None` when the reply was no stream or no success.
    first_ns: Option<u64>,
    /// Last content event.
    last_ns: u64,
    pub(super) end_ns: u64,
    input: u64,
    output: u64,
    /// Content events after the first.
    steps: u32,
}

impl Span {
    pub(super) fn of(record: &Record, context: &Context) -> Span {
        let after = |nanos: u64| record.wall_start_ns.saturating_add(nanos);
        let valid = record.is_success() && !record.cancelled;
        let first = record.chunks.first().map(|chunk| chunk.at.0);
        let last_chunk = record.chunks.last().map_or(0, |chunk| chunk.at.0);
        let end = match record.last_response {
            Some(last) if valid => last.0,
            _ => record.end.0,
        };
        Span {
            start_ns: record.wall_start_ns,
            first_ns: first
                .filter(|_| valid && context.streaming && record.streamed)
                .map(|first| after(first.min(end))),
            last_ns: after(last_chunk.min(end)),
            end_ns: after(end),
            input: record.tokens.input.filter(|_| valid).unwrap_or(0),
            output: record
                .tokens
                .output_sequence_length()
                .filter(|_| valid)
                .unwrap_or(0),
            steps: u32::try_from(record.chunks.len().saturating_sub(1)).unwrap_or(u32::MAX),
        }
    }
}

/// What holds between two neighbouring moments.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    length_ns: u64,
    all: i64,
    prefill: i64,
    decode: i64,
    /// Tokens per second.
    prefill_rate: f64,
    decode_rate: f64,
    /// Of decoding spread to the last event of any kind.
    whole_rate: f64,
    /// Tokens in flight at its begin, as if each came bit by bit.
    in_flight: f64,
    /// How far those are ahead of tokens that come in steps, on average.
    ahead: f64,
}

/// A change at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    at_ns: u64,
    all: i8,
    prefill: i8,
    decode: i8,
    prefill_rate: f64,
    decode_rate: f64,
    whole_rate: f64,
    ahead: f64,
    tokens: f64,
}

/// Most pieces that one state is cut into to show how the tokens in flight grow during it.
const PIECES_MAX: f64 = 32.0;

/// Sets the rows of the curves in `rows`, which are indexed like the registry.
pub(super) fn fill(
    spans: &[Span],
    window: Option<Window>,
    context: &Context,
    rows: &mut [Option<Stats>],
) {
    let Some(window) = window.filter(|window| window.length().0 > 0) else {
        return;
    };
    let states = sweep(spans, window);
    rows[index!("tokens_in_flight")] = weighted(states.iter().flat_map(State::in_flight_pieces));
    let mut set = |index: usize, curve: &dyn Fn(&State) -> Option<f64>| {
        rows[index] = weighted(states.iter().filter_map(|s| Some((curve(s)?, s.length_ns))));
    };
    set(index!("effective_concurrency"), &|s| Some(s.all as f64));
    if !context.streaming || spans.iter().all(|span| span.first_ns.is_none()) {
        return;
    }
    let prefill = |s: &State| s.prefill_rate;
    let decode = |s: &State| s.decode_rate;
    let total = |s: &State| s.prefill_rate + s.whole_rate;
    let prefill_user = |s: &State| per(s.prefill_rate, s.prefill);
    let decode_user = |s: &State| per(s.decode_rate, s.decode);
    set(index!("effective_prefill_concurrency"), &|s| {
        Some(s.prefill as f64)
    });
    set(index!("effective_decode_concurrency"), &|s| {
        Some(s.decode as f64)
    });
    set(index!("effective_prefill_throughput"), &|s| {
        Some(prefill(s))
    });
    set(index!("effective_decode_throughput"), &|s| Some(decode(s)));
    set(index!("effective_total_throughput"), &|s| Some(total(s)));
    set(index!("effective_prefill_throughput_per_user"), &|s| {
        Some(prefill_user(s))
    });
    set(index!("effective_decode_throughput_per_user"), &|s| {
        Some(decode_user(s))
    });
    let during = |active: i64, value: f64| (active > 0).then_some(value);
    set(index!("active_prefill_throughput"), &|s| {
        during(s.prefill, prefill(s))
    });
    set(index!("active_decode_throughput"), &|s| {
        during(s.decode, decode(s))
    });
    set(index!("active_total_throughput"), &|s| {
        during(s.prefill + s.decode, total(s))
    });
    set(index!("active_prefill_throughput_per_user"), &|s| {
        during(s.prefill, prefill_user(s))
    });
    set(index!("active_decode_throughput_per_user"), &|s| {
        during(s.decode, decode_user(s))
    });
}

/// States between moments, in order, none of no length, that fill the window: what was before and after it is left out, and a time
/// without a request is a state too.
fn sweep(spans: &[Span], window: Window) -> Vec<State> {
    let mut changes: Vec<Change> = spans.iter().flat_map(changes).collect();
    // The last exchange may end after its last response.
    changes.push(Change {
        at_ns: window.end_ns,
        ..Change::default()
    });
    // Stable, so that sorted spans give the same sums whatever order they came in.
    changes.sort_by_key(|change| change.at_ns);
    let mut states = Vec::with_capacity(changes.len());
    let mut state = State::default();
    let first_ns = changes.first().map_or(0, |change| change.at_ns);
    let mut previous_ns = first_ns.min(window.start_ns);
    for change in changes {
        let length_ns = change.at_ns - previous_ns;
        if length_ns > 0 {
            let whole = State { length_ns, ..state };
            states.extend(whole.inside(previous_ns, window));
            state.in_flight += whole.appeared();
            previous_ns = change.at_ns;
        }
        state.apply(&change);
    }
    states
}

impl State {
    /// The part of it, begun at `begin_ns`, that lies in the window.
    fn inside(self, begin_ns: u64, window: Window) -> Option<State> {
        let from = begin_ns.max(window.start_ns);
        let to = (begin_ns + self.length_ns).min(window.end_ns);
        let before = State {
            length_ns: from - begin_ns,
            ..self
        };
        (from < to).then(|| State {
            length_ns: to - from,
            in_flight: self.in_flight + before.appeared(),
            ..self
        })
    }

    /// Output tokens that come while it holds.
    fn appeared(&self) -> f64 {
        self.decode_rate * self.length_ns as f64 / 1e9
    }

    /// Tokens in flight, each with the time it held: about one piece a token.
    fn in_flight_pieces(&self) -> impl Iterator<Item = (f64, u64)> + use<> {
        let appeared = self.appeared();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value is whole and between 1 and PIECES_MAX"
        )]
        let count = appeared.ceil().clamp(1.0, PIECES_MAX) as u64;
        let begin = self.in_flight - self.ahead;
        let length = u128::from(self.length_ns);
        let at = move |piece: u64| length * u128::from(piece) / u128::from(count);
        let pieces = (0..count).map(move |piece| {
            let value = begin + appeared * (piece as f64 + 0.5) / count as f64;
            // No more than the length itself, which is 64 bits.
            let length_ns = u64::try_from(at(piece + 1) - at(piece)).unwrap_or(u64::MAX);
            (value, length_ns)
        });
        pieces.filter(|&(_, length_ns)| length_ns > 0)
    }

    fn apply(&mut self, change: &Change) {
        self.all += i64::from(change.all);
        self.prefill += i64::from(change.prefill);
        self.decode += i64::from(change.decode);
        self.prefill_rate += change.prefill_rate;
        self.decode_rate += change.decode_rate;
        self.whole_rate += change.whole_rate;
        self.in_flight += change.tokens;
        self.ahead += change.ahead;
        // Sums of reals drift; where nothing is left, they are zero.
        if self.prefill == 0 {
            self.prefill_rate = 0.0;
        }
        if self.decode == 0 {
            self.decode_rate = 0.0;
            self.whole_rate = 0.0;
            self.ahead = 0.0;
        }
        if self.all == 0 {
            self.in_flight = 0.0;
        }
    }
}

fn changes(span: &Span) -> impl Iterator<Item = Change> {
    let (input, output) = (span.input as f64, span.output as f64);
    let rate = |tokens: f64, from: u64, to: u64| match to.saturating_sub(from) {
        0 => 0.0,
        length_ns => tokens / (length_ns as f64 / 1e9),
    };
    let mut begin = Change {
        at_ns: span.start_ns,
        all: 1,
        tokens: input,
        ..Change::default()
    };
    let mut end = Change {
        at_ns: span.end_ns,
        all: -1,
        tokens: -input,
        ..Change::default()
    };
    let Some(first_ns) = span.first_ns else {
        return [Some(begin), Some(end), None, None].into_iter().flatten();
    };
    let after_first = (output - 1.0).max(0.0);
    let last_ns = span.last_ns.max(first_ns);
    let prefill_rate = rate(input, span.start_ns, first_ns);
    let decode_rate = rate(after_first, first_ns, last_ns);
    let whole_rate = rate(after_first, first_ns, span.end_ns);
    // Halfway through a gap, half of the next event's tokens would be there already; in truth none is.
    let ahead = if decode_rate > 0.0 {
        after_first / f64::from(span.steps.max(1)) / 2.0
    } else {
        0.0
    };
    begin.prefill = 1;
    begin.prefill_rate = prefill_rate;
    end.decode = -1;
    end.whole_rate = -whole_rate;
    // The tokens after the first only ever appeared if decoding took time.
    end.tokens -= if decode_rate > 0.0 {
        output
    } else {
        output.min(1.0)
    };
    let first = Change {
        at_ns: first_ns,
        prefill: -1,
        decode: 1,
        prefill_rate: -prefill_rate,
        decode_rate,
        whole_rate,
        ahead,
        tokens: output.min(1.0),
        ..Change::default()
    };
    let last = Change {
        at_ns: last_ns,
        decode_rate: -decode_rate,
        ahead: -ahead,
        ..Change::default()
    };
    [Some(begin), Some(first), Some(last), Some(end)]
        .into_iter()
        .flatten()
}

fn per(rate: f64, users: i64) -> f64 {
    if users > 0 { rate / users as f64 } else { 0.0 }
}

/// Statistics of values weighted by the time they held: the percentile is the first value, ascending, whose cumulative share of
/// time reaches it. `None` without time.
fn weighted(segments: impl Iterator<Item = (f64, u64)>) -> Option<Stats> {
    // A rate that has cancelled out may be a hair below zero.
    let mut segments: Vec<(f64, u64)> = segments
        .map(|(value, time)| (value.max(0.0), time))
        .collect();
    segments.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (min, max) = (segments.first()?.0, segments.last()?.0);
    let time: f64 = segments.iter().map(|s| s.1 as f64).sum();
    let mean = segments.iter().map(|s| s.0 * s.1 as f64).sum::<f64>() / time;
    let square = |s: &(f64, u64)| (s.0 - mean).powi(2) * s.1 as f64;
    let variance = segments.iter().map(square).sum::<f64>() / time;
    let at = |percent: f64| {
        let target = time * percent / 100.0;
        let mut passed = 0.0;
        let reached = segments.iter().find(|s| {
            passed += s.1 as f64;
            passed >= target
        });
        Some(reached.map_or(max, |s| s.0))
    };
    Some(finite(Stats {
        avg: Some(mean.clamp(min, max)),
        min: Some(min),
        max: Some(max),
        p50: at(50.0),
        p90: at(90.0),
        p95: at(95.0),
        p99: at(99.0),
        std: Some(variance.sqrt()),
        ..Stats::default()
    }))
}
