//! The metrics of a run.
//!
//! In: records, one by one, on any number of accumulators. Out: their sums, of which `metric/summary.rs` makes a summary. Never: keeps a
//! record, or drops one.

use std::sync::Arc;

use super::arrival::{self, Arrived};
use super::by_token::ByToken;
use super::error_groups::ErrorGroups;
use super::gaps::Gaps;
use super::lag::lag;
use super::notes::Observed;
use super::registry::METRICS;
use super::request::{self, index};
use super::sent::SentRate;
use super::series::{Series, Shelf};
use super::steady::{self, Moment};
use super::sweepline::Span;
use super::{Context, Counts, PhaseFrame, Value, Window, slo, spacing};
use crate::clock::Nanos;
use crate::record::{Chunk, Record};

/// Gathers the records of one phase. Values are kept exactly, 8 bytes each, in memory or on a [`Shelf`]; only the gaps between content events
/// go to a histogram.
///
/// ```
/// use tokenring::metric::{Accumulator, Context};
/// use tokenring::record::Record;
/// let mut accumulator = Accumulator::new(&Context::default());
/// accumulator.add(&Record::default());
/// assert_eq!(accumulator.summary().success_count, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Accumulator {
    pub(super) context: Context,
    shelf: Option<Arc<dyn Shelf>>,
    /// Values by index in the registry; most metrics have none.
    pub(super) series: Vec<Option<Box<Series<f64>>>>,
    pub(super) gaps: Gaps,
    pub(super) token_gaps: Gaps,
    pub(super) spans: Series<Span>,
    pub(super) frame: Option<PhaseFrame>,
    pub(super) arrived: Arrived,
    pub(super) sent: SentRate,
    pub(super) moments: Series<Moment>,
    pub(super) errors: ErrorGroups,
    pub(super) window: Option<Window>,
    pub(super) success_count: u64,
    pub(super) error_count: u64,
    pub(super) cancelled_count: u64,
    input_tokens: u64,
    output_tokens: u64,
    pub(super) good_count: u64,
    pub(super) counts: Counts,
    pub(super) by_token: ByToken,
    pub(super) observed: Observed,
}

impl Accumulator {
    /// An empty one.
    #[must_use]
    pub fn new(context: &Context) -> Accumulator {
        Accumulator {
            context: context.clone(),
            shelf: None,
            series: vec![None; METRICS.len()],
            gaps: Gaps::new(),
            token_gaps: Gaps::new(),
            spans: Series::default(),
            frame: None,
            arrived: Arrived::default(),
            sent: SentRate::default(),
            moments: Series::default(),
            errors: ErrorGroups::default(),
            window: None,
            success_count: 0,
            error_count: 0,
            cancelled_count: 0,
            input_tokens: 0,
            output_tokens: 0,
            good_count: 0,
            counts: Counts::default(),
            by_token: ByToken::default(),
            observed: Observed::default(),
        }
    }

    /// Keeps values on `shelf` until the end, but for the last thousand of each metric.
    #[must_use]
    pub fn shelved(mut self, shelf: Option<Arc<dyn Shelf>>) -> Accumulator {
        self.shelf = shelf;
        self
    }

    /// Says how the phase was planned and begun, before its first record comes. Without that there is no steady state, and every token
    /// arrived in the window.
    pub fn frame(&mut self, frame: PhaseFrame) {
        self.frame = Some(frame);
    }

    /// A stop from outside ended sending: the window ends with the last request if that was before the deadline.
    pub fn stopped(&mut self) {
        if let Some(frame) = &mut self.frame {
            frame.may_end_early = true;
        }
    }

    /// `count` requests at a rate were left out because they would have been late; the last of them was due at `last_due_ns`, wall clock.
    pub fn left_out(&mut self, count: u64, last_due_ns: u64) {
        self.sent.left_out(count, last_due_ns);
    }

    /// Takes in one record of the phase.
    pub fn add(&mut self, record: &Record) {
        self.observed.add(record, &self.context);
        let span = Span::of(record, &self.context);
        self.spans.push(span, self.shelf.as_ref());
        let values = self.gather(record, true);
        let moment = Moment::of(record, values);
        self.moments.push(moment, self.shelf.as_ref());
        self.add_arrived(record);
    }

    /// Counts the tokens of `record` that arrived in the window. For a request of the phase before, which was still in flight when
    /// this one began, that is all that counts here.
    pub fn add_arrived(&mut self, record: &Record) {
        let frame = self.frame.unwrap_or_default();
        let window = frame.start_ns..=frame.deadline_ns.unwrap_or(u64::MAX);
        let mut came = (0.0, 0);
        let at_ns = |chunk: &Chunk| record.wall_start_ns.saturating_add(chunk.at.0);
        let ends = record.chunks.first().zip(record.chunks.last());
        if let Some((first, last)) = ends.map(|(first, last)| (at_ns(first), at_ns(last)))
            && window.contains(&first)
            && window.contains(&last)
        {
            // As nearly all do: no need to look at each.
            return self.arrived.add(arrival::token_count(record), last);
        }
        for (at, tokens) in arrival::tokens(record) {
            let at_ns = record.wall_start_ns.saturating_add(at.0);
            if window.contains(&at_ns) {
                came.0 += tokens;
                came.1 = at_ns;
            }
        }
        self.arrived.add(came.0, came.1);
    }

    /// Takes in what needs no more than the record itself; the gaps of a slice may belong to others.
    pub(super) fn gather(&mut self, record: &Record, with_gaps: bool) -> steady::Values {
        let end_ns = record.wall_start_ns.saturating_add(record.end.0);
        self.widen(Window {
            start_ns: record.wall_start_ns,
            end_ns,
        });
        self.add_timing(record);
        self.counts.add(record, &self.context);
        self.by_token.add(record, &self.context);
        if record.cancelled {
            self.cancelled_count += 1;
        } else if let Some(details) = &record.error {
            self.error_count += 1;
            self.errors.add(details);
        } else {
            self.add_success(record);
        }
        if with_gaps && has_gaps(record, &self.context) {
            for gap in spacing::gaps(&record.chunks) {
                self.gaps.add(gap);
            }
            for (_, gap, tokens) in spacing::token_gaps(record) {
                self.token_gaps.add_times(gap, tokens);
            }
        }
        let (series, shelf) = (&mut self.series, self.shelf.as_ref());
        let mut values = [f64::NAN; 3];
        request::each(record, &self.context, |index, value| {
            if let Value::One(value) = value {
                let values_of = series[index].get_or_insert_default();
                values_of.push(value, shelf);
                steady::note(&mut values, index, value);
            }
        });
        values
    }

    /// Takes in all that `other`, of the same context, has seen. The order of merging changes no number.
    pub fn merge(&mut self, other: Accumulator) {
        for (mine, theirs) in self.series.iter_mut().zip(other.series) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().append(*theirs);
            }
        }
        self.gaps.merge(&other.gaps);
        self.token_gaps.merge(&other.token_gaps);
        self.spans.append(other.spans);
        self.frame = self.frame.or(other.frame);
        self.arrived.merge(other.arrived);
        self.sent.merge(other.sent);
        self.moments.append(other.moments);
        self.errors.merge(other.errors);
        if let Some(window) = other.window {
            self.widen(window);
        }
        self.success_count += other.success_count;
        self.error_count += other.error_count;
        self.cancelled_count += other.cancelled_count;
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.good_count += other.good_count;
        self.counts.merge(&other.counts);
        self.by_token.merge(other.by_token);
        self.observed.merge(&other.observed);
    }

    /// Valid records so far.
    #[must_use]
    pub fn success_count(&self) -> u64 {
        self.success_count
    }

    /// Error records so far, cancelled ones excluded.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.error_count
    }

    /// Records cut by the end of the run so far.
    #[must_use]
    pub fn cancelled_count(&self) -> u64 {
        self.cancelled_count
    }

    /// Prompt tokens of valid records so far.
    #[must_use]
    pub fn input_tokens(&self) -> u64 {
        self.input_tokens
    }

    /// Output tokens, reasoning included, of valid records so far.
    #[must_use]
    pub fn output_tokens(&self) -> u64 {
        self.output_tokens
    }

    /// First start to last end so far; `None` before the first record.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        self.window
    }

    fn widen(&mut self, other: Window) {
        let window = self.window.get_or_insert(other);
        window.start_ns = window.start_ns.min(other.start_ns);
        window.end_ns = window.end_ns.max(other.end_ns);
    }

    /// What every record has, whatever became of it.
    fn add_timing(&mut self, record: &Record) {
        self.sent.add(record);
        let last = record.last_response.filter(|_| record.is_success());
        let effective = record.lateness + last.unwrap_or(record.end);
        self.keep(index!("credit_to_start_latency"), record.lateness);
        self.keep(index!("effective_latency"), effective);
        if let Some(lag) = lag(record).filter(|_| record.cancelled || !record.is_success()) {
            // Those of successes come with their other values.
            self.keep(index!("schedule_lag"), lag.schedule);
            self.keep(index!("slot_wait"), lag.slot);
            self.keep(index!("client_lag"), lag.client);
        }
        if let Some(setup) = request::connection_setup(record) {
            self.keep(index!("connection_setup"), setup);
        }
    }

    fn keep(&mut self, index: usize, value: Nanos) {
        let series = self.series[index].get_or_insert_default();
        series.push(value.millis(), self.shelf.as_ref());
    }

    fn add_success(&mut self, record: &Record) {
        self.success_count += 1;
        // Servers' counts are not to be trusted with an overflow.
        let input = record.tokens.input.unwrap_or(0);
        let output = record.tokens.output_sequence_length().unwrap_or(0);
        self.input_tokens = self.input_tokens.saturating_add(input);
        self.output_tokens = self.output_tokens.saturating_add(output);
        if !self.context.goodput.is_empty() {
            let values = request::values(record, &self.context);
            self.good_count += u64::from(slo::is_good(&values, &self.context.goodput));
        }
    }
}

/// The gaps of the record count: it is a whole stream, and streams were asked for.
pub(super) fn has_gaps(record: &Record, context: &Context) -> bool {
    context.streaming && record.streamed && record.is_success() && !record.cancelled
}
