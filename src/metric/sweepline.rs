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
//!
//! The work: one sort of four moments a request, and for each curve three walks over the states. `benches/curves.rs` times it.

use super::request::index;
use super::series::Item;
use super::weighted::weighted;
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

/// In a span's words: no first token.
const NO_FIRST: u64 = u64::MAX;

impl Item for Span {
    type Words = [u64; 7];

    fn words(self) -> [u64; 7] {
        [
            self.start_ns,
            self.first_ns.unwrap_or(NO_FIRST),
            self.last_ns,
            self.end_ns,
            self.input,
            self.output,
            self.steps.into(),
        ]
    }

    fn of([start_ns, first_ns, last_ns, end_ns, input, output, steps]: [u64; 7]) -> Span {
        Span {
            start_ns,
            first_ns: (first_ns != NO_FIRST).then_some(first_ns),
            last_ns,
            end_ns,
            input,
            output,
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
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
    rows[index!("tokens_in_flight")] = weighted(|| states.iter().flat_map(State::in_flight_pieces));
    let mut set = |index: usize, curve: &dyn Fn(&State) -> Option<f64>| {
        rows[index] = weighted(|| {
            let held = states.iter();
            held.filter_map(|s| Some((curve(s)?, s.length_ns)))
        });
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
/// without a request is a state too. `spans` are in order, so that the sums are the same whatever order they came in.
fn sweep(spans: &[Span], window: Window) -> Vec<State> {
    // Only when and of which span: sorting whole changes would move ten times the bytes.
    let mut moments: Vec<(u64, u64)> = Vec::with_capacity(spans.len() * 4);
    for (place, span) in (0_u64..).zip(spans) {
        let kinds = (0_u64..).zip(span.moments());
        moments.extend(kinds.filter_map(|(kind, at_ns)| Some((at_ns?, place * 4 + kind))));
    }
    moments.sort_unstable();
    let mut states = Vec::with_capacity(moments.len() + 1);
    let mut state = State::default();
    let mut previous_ns = window.start_ns;
    if let Some(first) = moments.first() {
        previous_ns = previous_ns.min(first.0);
    }
    for (at_ns, id) in moments {
        state.pass_to(at_ns, &mut previous_ns, window, &mut states);
        let place = usize::try_from(id / 4).unwrap_or(usize::MAX);
        state.apply(&change(&spans[place], id % 4));
    }
    // The last exchange may end after its last response.
    state.pass_to(window.end_ns, &mut previous_ns, window, &mut states);
    states
}

impl State {
    /// It held from `previous_ns` to `at_ns`: notes the part that lies in the window.
    fn pass_to(
        &mut self,
        at_ns: u64,
        previous_ns: &mut u64,
        window: Window,
        states: &mut Vec<State>,
    ) {
        let length_ns = at_ns.saturating_sub(*previous_ns);
        if length_ns == 0 {
            return;
        }
        let whole = State { length_ns, ..*self };
        states.extend(whole.inside(*previous_ns, window));
        self.in_flight += whole.appeared();
        *previous_ns = at_ns;
    }

    /// The part of it, begun at `begin_ns`, that lies in the window.
    fn inside(self, begin_ns: u64, window: Window) -> Option<State> {
        let from = begin_ns.max(window.start_ns);
        let to = (begin_ns + self.length_ns).min(window.end_ns);
        let before = State {
            length_ns: from.saturating_sub(begin_ns),
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
        // The length by pieces, without a product that could overflow: what is left over is less than the count.
        let (each, left) = (self.length_ns / count, self.length_ns % count);
        let step = appeared / count as f64;
        let pieces = (0..count).map(move |piece| {
            let value = begin + step * (piece as f64 + 0.5);
            let more = left * (piece + 1) / count - left * piece / count;
            (value, each + more)
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

impl Span {
    /// When it begins, has its first token, its last content event, and ends; the middle two only where it has phases.
    fn moments(&self) -> [Option<u64>; 4] {
        let last = self.first_ns.map(|first| self.last_ns.max(first));
        [Some(self.start_ns), self.first_ns, last, Some(self.end_ns)]
    }

    /// Tokens after the first.
    fn after_first(&self) -> f64 {
        (self.output as f64 - 1.0).max(0.0)
    }
}

/// What changes at the moment `kind` of [`Span::moments`].
fn change(span: &Span, kind: u64) -> Change {
    let (input, output) = (span.input as f64, span.output as f64);
    let Some(first_ns) = span.first_ns else {
        let sign = if kind == 0 { 1 } else { -1 };
        return Change {
            all: sign,
            tokens: f64::from(sign) * input,
            ..Change::default()
        };
    };
    let last_ns = span.last_ns.max(first_ns);
    let prefill_rate = || rate(input, span.start_ns, first_ns);
    let decode_rate = || rate(span.after_first(), first_ns, last_ns);
    let whole_rate = || rate(span.after_first(), first_ns, span.end_ns);
    // Halfway through a gap, half of the next event's tokens would be there already; in truth none is.
    let ahead = || match decode_rate() {
        0.0 => 0.0,
        _ => span.after_first() / f64::from(span.steps.max(1)) / 2.0,
    };
    match kind {
        0 => Change {
            all: 1,
            prefill: 1,
            prefill_rate: prefill_rate(),
            tokens: input,
            ..Change::default()
        },
        1 => Change {
            prefill: -1,
            decode: 1,
            prefill_rate: -prefill_rate(),
            decode_rate: decode_rate(),
            whole_rate: whole_rate(),
            ahead: ahead(),
            tokens: output.min(1.0),
            ..Change::default()
        },
        2 => Change {
            decode_rate: -decode_rate(),
            ahead: -ahead(),
            ..Change::default()
        },
        _ => Change {
            all: -1,
            decode: -1,
            whole_rate: -whole_rate(),
            // The tokens after the first only ever appeared if decoding took time.
            tokens: -input
                - if decode_rate() > 0.0 {
                    output
                } else {
                    output.min(1.0)
                },
            ..Change::default()
        },
    }
}

/// Tokens per second; 0 over no time.
fn rate(tokens: f64, from_ns: u64, to_ns: u64) -> f64 {
    match to_ns.saturating_sub(from_ns) {
        0 => 0.0,
        length_ns => tokens / (length_ns as f64 / 1e9),
    }
}

fn per(rate: f64, users: i64) -> f64 {
    if users > 0 { rate / users as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests;
