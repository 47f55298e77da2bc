//! A phase, slice by slice.
//!
//! In: the records of a phase, one by one. Out: the metrics of each slice of time. Never: keeps a record: a slice holds the values
//! of its requests, 8 bytes each in memory or on a shelf, and a histogram of its gaps.
//!
//! Slices are equally long, from when the first request was due; the last one ends with the last request. A request belongs with all its
//! values to the slice in which it started, as in AIPerf. Its tokens arrived when they did: the windowed metrics of a slice are of the
//! tokens that arrived in it. [`Attribution::Arrival`] takes these tokens for the throughputs as well, and each gap between content events or
//! tokens for the slice in which it ended. Metrics of curves are of what was in flight in the slice, whenever it started.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arrival::{self, Arrived};
use super::gaps::Gaps;
use super::run::{self, Accumulator};
use super::series::Shelf;
use super::sweepline::Span;
use super::{Context, Row, Window, spacing};
use crate::clock::Nanos;
use crate::config::{Attribution, SlicePlan};
use crate::record::Record;

/// Gathers the records of a phase by slice.
pub struct Slices {
    context: Context,
    shelf: Option<Arc<dyn Shelf>>,
    attribution: Attribution,
    length_ns: u64,
    origin_ns: u64,
    slices: BTreeMap<u64, Slot>,
    /// Something fell beyond the last slice that is kept.
    is_cut: bool,
}

/// What a slice holds. One that only tokens arrived in has no sums.
#[derive(Default)]
struct Slot {
    sums: Option<Box<Accumulator>>,
    arrived: Arrived,
    request_count: u64,
}

/// One slice of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// From when to when.
    pub window: Window,
    /// It is as long as a slice should be.
    pub is_complete: bool,
    /// Its metrics, in the registry's order.
    pub rows: Vec<Row>,
}

impl Slices {
    /// Slices of `length` from `origin_ns`, the wall-clock time at which the first request was due. A length of 0 counts as 1 ns.
    #[must_use]
    pub fn new(
        context: &Context,
        attribution: Attribution,
        length: Nanos,
        origin_ns: u64,
    ) -> Slices {
        Slices {
            context: context.clone(),
            shelf: None,
            attribution,
            length_ns: length.0.max(1),
            origin_ns,
            slices: BTreeMap::new(),
            is_cut: false,
        }
    }

    /// Keeps values on `shelf` until the end, but for the last thousand of each metric in a slice.
    #[must_use]
    pub fn shelved(mut self, shelf: Option<Arc<dyn Shelf>>) -> Slices {
        self.shelf = shelf;
        self
    }

    /// The run went on beyond [`SlicePlan::MOST`] slices, and what came later is in none.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Takes in one record.
    pub fn add(&mut self, record: &Record) {
        let by_arrival = self.attribution == Attribution::Arrival;
        let start_ns = record.wall_start_ns;
        let own = self.number(start_ns);
        if self.keeps(own) {
            let slot = self.slices.entry(own).or_default();
            slot.request_count += 1;
            slot.sums(&self.context, self.shelf.as_ref())
                .gather(record, !by_arrival);
        }
        self.add_arrived(record);
        if by_arrival {
            self.add_gaps(record);
        }
    }

    /// Counts the tokens of `record` that arrived in the slices; of a request of the phase before that is all.
    pub fn add_arrived(&mut self, record: &Record) {
        let mut run = (0, 0.0);
        for (at, tokens) in arrival::tokens(record) {
            let arrived_ns = record.wall_start_ns.saturating_add(at.0);
            if arrived_ns < self.origin_ns {
                continue;
            }
            let number = self.number(arrived_ns);
            if number != run.0 {
                self.arrived(run);
                run = (number, 0.0);
            }
            run.1 += tokens;
        }
        self.arrived(run);
    }

    /// The slices of a phase that came to `whole`, in order. By AIPerf's attribution those in which a request started; by arrival
    /// all in which something was in flight, so that a stall shows.
    #[must_use]
    pub fn finish(mut self, whole: &Accumulator) -> Vec<Slice> {
        let Some(measured) = whole.window() else {
            return Vec::new();
        };
        let last = self.number(measured.end_ns).min(SlicePlan::MOST - 1);
        // Where they cannot be had back, the summary of the whole says so.
        let mut spans = whole.spans.all().unwrap_or_default();
        spans.sort_unstable();
        let mut spans = spans.into_iter().peekable();
        let mut active: Vec<Span> = Vec::new();
        let mut slices = Vec::with_capacity(self.slices.len());
        let mut from = 0;
        while let Some(number) = self.next(from, from <= last && !active.is_empty(), spans.peek()) {
            if number > last {
                break;
            }
            from = number + 1;
            let window = self.window(number, measured);
            while let Some(span) = spans.next_if(|span| span.start_ns < window.end_ns) {
                active.push(span);
            }
            active.retain(|span| span.end_ns > window.start_ns);
            let slot = self.slices.remove(&number).unwrap_or_default();
            let by_arrival = self.attribution == Attribution::Arrival;
            if by_arrival || slot.request_count > 0 {
                let sums = slot.sums.map(|sums| *sums);
                let sums = sums.unwrap_or_else(|| Accumulator::of_slice(&self.context, None));
                let mut arrived = slot.arrived;
                arrived.by_arrival = by_arrival;
                slices.push(Slice {
                    window,
                    is_complete: window.length().0 == self.length_ns,
                    rows: sums.slice_rows(window, &active, arrived),
                });
            }
            active.retain(|span| span.end_ns > window.end_ns);
        }
        slices
    }

    /// The next slice, not before `from`, to look at. `busy`: something is still in flight then; `upcoming` starts next.
    fn next(&self, from: u64, busy: bool, upcoming: Option<&Span>) -> Option<u64> {
        let slot = self.slices.first_key_value().map(|(&number, _)| number);
        if self.attribution == Attribution::Aiperf {
            return slot;
        }
        let span = upcoming.map(|span| self.number(span.start_ns).max(from));
        let busy = busy.then_some(from);
        [slot, span, busy].into_iter().flatten().min()
    }

    /// The slice's interval in a phase whose requests filled `measured`.
    fn window(&self, number: u64, measured: Window) -> Window {
        let before = number.saturating_mul(self.length_ns);
        let start_ns = self.origin_ns.saturating_add(before);
        let full_ns = start_ns.saturating_add(self.length_ns);
        Window {
            start_ns,
            end_ns: match measured.end_ns {
                // What came of the phase before may come after the last request.
                end_ns if end_ns <= start_ns => full_ns,
                end_ns => full_ns.min(end_ns),
            },
        }
    }

    /// Number of the slice that holds the moment.
    fn number(&self, wall_ns: u64) -> u64 {
        wall_ns.saturating_sub(self.origin_ns) / self.length_ns
    }

    fn arrived(&mut self, (number, tokens): (u64, f64)) {
        if tokens > 0.0 && self.keeps(number) {
            let slot = self.slices.entry(number).or_default();
            slot.arrived.add(tokens, 0);
        }
    }

    /// Gaps go to the slices in which they ended.
    fn add_gaps(&mut self, record: &Record) {
        if !run::has_gaps(record, &self.context) {
            return;
        }
        let number = |at: Nanos| self.number(record.wall_start_ns.saturating_add(at.0));
        let ends = record.chunks.iter().skip(1).map(|chunk| chunk.at);
        let gaps = ends.zip(spacing::gaps(&record.chunks));
        let gaps: Vec<(u64, Nanos)> = gaps.map(|(at, gap)| (number(at), gap)).collect();
        let of_tokens = spacing::token_gaps(record);
        let of_tokens: Vec<(u64, Nanos, u64)> = of_tokens
            .map(|(at, gap, tokens)| (number(at), gap, tokens))
            .collect();
        for (number, gap) in gaps {
            if self.keeps(number) {
                self.sums(number).gaps.add(gap);
            }
        }
        for (number, gap, tokens) in of_tokens {
            if self.keeps(number) {
                self.sums(number).token_gaps.add_times(gap, tokens);
            }
        }
    }

    /// Slices are bounded in number, however long the run.
    fn keeps(&mut self, number: u64) -> bool {
        let keeps = number < SlicePlan::MOST;
        self.is_cut |= !keeps;
        keeps
    }

    fn sums(&mut self, number: u64) -> &mut Accumulator {
        let slot = self.slices.entry(number).or_default();
        slot.sums(&self.context, self.shelf.as_ref())
    }
}

impl Slot {
    fn sums(&mut self, context: &Context, shelf: Option<&Arc<dyn Shelf>>) -> &mut Accumulator {
        self.sums
            .get_or_insert_with(|| Box::new(Accumulator::of_slice(context, shelf)))
    }
}

impl Accumulator {
    /// An empty one for a slice, of which there may be many.
    fn of_slice(context: &Context, shelf: Option<&Arc<dyn Shelf>>) -> Accumulator {
        let mut sums = Accumulator::new(context).shelved(shelf.cloned());
        sums.gaps = Gaps::sparse();
        sums.token_gaps = Gaps::sparse();
        sums
    }

    /// The metrics of a slice in which `arrived` came and `spans` were in flight.
    fn slice_rows(mut self, window: Window, spans: &[Span], arrived: Arrived) -> Vec<Row> {
        self.window = Some(window);
        self.arrived = arrived;
        self.summary_over(Ok(spans.to_vec())).rows
    }
}
