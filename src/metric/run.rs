//! The metrics of a run.
//!
//! In: records, one by one, on any number of accumulators. Out: one [`Summary`]. Never: keeps a record, or drops one.
//!
//! Formulas are AIPerf 0.13's, with one difference on purpose: every rate is divided by the [`Window`] that the summary states as
//! its benchmark duration. AIPerf divides by the phase's interval, idle ends included, and states another.

use super::arrival::{self, Arrived};
use super::by_token::ByToken;
use super::error_groups::ErrorGroups;
use super::gaps::Gaps;
use super::lag::{LagHistogram, lag};
use super::notes::Observed;
use super::registry::METRICS;
use super::request::{self, index};
use super::sent::SentRate;
use super::steady::{self, Track};
use super::sweepline::{self, Span};
use super::{
    Context, Counts, PhaseFrame, Stats, Steady, Summary, Value, Window, quantile, replay, slo,
    spacing,
};
use crate::record::{Chunk, Record};

/// Gathers the records of one phase. Values are kept exactly, 8 bytes each; only the gaps between content events go to a histogram.
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
    context: Context,
    /// Values by index in the registry.
    series: Vec<Vec<f64>>,
    pub(super) gaps: Gaps,
    pub(super) token_gaps: Gaps,
    pub(super) spans: Vec<Span>,
    frame: Option<PhaseFrame>,
    pub(super) arrived: Arrived,
    sent: SentRate,
    track: Track,
    errors: ErrorGroups,
    pub(super) window: Option<Window>,
    success_count: u64,
    error_count: u64,
    cancelled_count: u64,
    input_tokens: u64,
    output_tokens: u64,
    good_count: u64,
    counts: Counts,
    by_token: ByToken,
    observed: Observed,
}

impl Accumulator {
    /// An empty one.
    #[must_use]
    pub fn new(context: &Context) -> Accumulator {
        Accumulator {
            context: context.clone(),
            series: vec![Vec::new(); METRICS.len()],
            gaps: Gaps::new(),
            token_gaps: Gaps::new(),
            spans: Vec::new(),
            frame: None,
            arrived: Arrived::default(),
            sent: SentRate::default(),
            track: Track::default(),
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
        self.spans.push(Span::of(record, &self.context));
        let values = self.gather(record, true);
        self.track.add(record, values);
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
        let series = &mut self.series;
        let mut values = [f64::NAN; 3];
        request::each(record, &self.context, |index, value| {
            if let Value::One(value) = value {
                series[index].push(value);
                steady::note(&mut values, index, value);
            }
        });
        values
    }

    /// Takes in all that `other`, of the same context, has seen. The order of merging changes no number.
    pub fn merge(&mut self, other: Accumulator) {
        for (mine, theirs) in self.series.iter_mut().zip(other.series) {
            mine.extend(theirs);
        }
        self.gaps.merge(&other.gaps);
        self.token_gaps.merge(&other.token_gaps);
        self.spans.extend(other.spans);
        self.frame = self.frame.or(other.frame);
        self.arrived.merge(other.arrived);
        self.sent.merge(other.sent);
        self.track.merge(other.track);
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

    /// What the phase came to.
    #[must_use]
    pub fn summary(mut self) -> Summary {
        let mut rows: Vec<Option<Stats>> = vec![None; METRICS.len()];
        for (row, values) in rows.iter_mut().zip(&mut self.series) {
            *row = quantile::distribution(values);
        }
        rows[index!("inter_chunk_latency")] = self.gaps.stats();
        rows[index!("inter_token_gap")] = self.token_gaps.stats();
        rows[index!("token_weighted_inter_token_latency")] = self.by_token.stats();
        self.counts.fill(&mut rows);
        self.adjusted(&mut rows);
        self.scalars(&mut rows);
        self.sent.fill(self.frame, &mut rows);
        let lateness = &self.series[index!("credit_to_start_latency")];
        replay::fill(lateness, self.frame, &mut rows);
        if let Some(measured) = self.window {
            let within = self.arrived.within(measured);
            let window = self.frame.map_or(within, |frame| frame.window(within));
            self.arrived.fill(window, &mut rows);
        }
        self.spans.sort_unstable();
        sweepline::fill(&self.spans, self.window, &self.context, &mut rows);
        let steady = self.frame.zip(self.window);
        let mut steady = steady.map(|(frame, window)| self.track.steady(&frame, window));
        if let Some(Steady::State(state)) = &mut steady {
            self.context.keep(&mut state.rows);
        }
        let mut rows = quantile::finished(rows);
        self.context.keep(&mut rows);
        let samples = self.series[index!("request_latency")].len();
        Summary {
            rows,
            errors: self.errors.groups(),
            window: self.window.unwrap_or_default(),
            success_count: self.success_count,
            error_count: self.error_count,
            cancelled_count: self.cancelled_count,
            schedule_lag: LagHistogram::of(&self.series[index!("schedule_lag")]),
            notes: self.observed.notes(samples, &self.counts),
            counts: self.counts,
            steady,
        }
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
        self.series[index!("credit_to_start_latency")].push(record.lateness.millis());
        self.series[index!("effective_latency")].push(effective.millis());
        if let Some(lag) = lag(record).filter(|_| record.cancelled || !record.is_success()) {
            // Those of successes come with their other values.
            self.series[index!("schedule_lag")].push(lag.schedule.millis());
            self.series[index!("slot_wait")].push(lag.slot.millis());
            self.series[index!("client_lag")].push(lag.client.millis());
        }
        if let Some(setup) = request::connection_setup(record) {
            self.series[index!("connection_setup")].push(setup.millis());
        }
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

    /// `adj_*`: each error counts as an infinite wait. Only when there are errors, and values beside them.
    fn adjusted(&self, rows: &mut [Option<Stats>]) {
        let Ok(failures @ 1..) = usize::try_from(self.error_count) else {
            return;
        };
        let pairs = [
            (index!("adj_request_latency"), index!("request_latency")),
            (
                index!("adj_time_to_first_token"),
                index!("time_to_first_token"),
            ),
            (
                index!("adj_inter_token_latency"),
                index!("inter_token_latency"),
            ),
            (index!("adj_decode_duration"), index!("decode_duration")),
        ];
        for (adjusted, base) in pairs {
            let sorted = &self.series[base];
            if !sorted.is_empty() {
                rows[adjusted] = Some(quantile::with_failures(sorted, failures));
            }
        }
    }

    fn scalars(&self, rows: &mut [Option<Stats>]) {
        let mut set = |index: usize, value: Option<f64>| rows[index] = value.map(Stats::scalar);
        let Some(window) = self.window else { return };
        let (valid, errors) = (self.success_count as f64, self.error_count as f64);
        let completed = valid + errors;
        set(index!("request_count"), Some(valid));
        set(
            index!("error_request_count"),
            (errors > 0.0).then_some(errors),
        );
        set(index!("completed_request_count"), Some(completed));
        set(
            index!("request_error_rate"),
            ratio(100.0 * errors, completed),
        );
        set(
            index!("benchmark_duration"),
            Some(window.length().seconds()),
        );
        set(index!("coalesced_events"), self.observed.coalesced_share());

        let total = |index: usize| {
            let values = &self.series[index];
            (!values.is_empty()).then(|| values.iter().sum::<f64>())
        };
        for (sum, base) in TOTALS {
            set(*sum, total(*base));
        }
        let (input, output) = (
            total(index!("input_sequence_length")),
            total(index!("output_sequence_length")),
        );
        let arrived = self.arrived.by_arrival.then(|| self.arrived.tokens());
        let output = arrived.or(output);
        let per_second = |value: Option<f64>| ratio(value?, window.length().seconds());
        set(index!("request_throughput"), per_second(Some(valid)));
        set(index!("input_token_throughput"), per_second(input));
        set(index!("output_token_throughput"), per_second(output));
        let both = input.zip(output).map(|(input, output)| input + output);
        set(index!("total_token_throughput"), per_second(both));
        let cache_read = total(index!("usage_prompt_cache_read_tokens"));
        let prompt = total(index!("usage_prompt_tokens"));
        let cached = cache_read.zip(prompt);
        let cached = cached.and_then(|(read, prompt)| ratio(100.0 * read, prompt));
        set(index!("overall_usage_prompt_cache_read_pct"), cached);
        if !self.context.goodput.is_empty() {
            let good = self.good_count as f64;
            set(index!("good_request_count"), Some(good));
            set(index!("good_request_fraction"), ratio(good, completed));
            set(index!("goodput"), per_second(Some(good)));
        }
    }
}

/// The gaps of the record count: it is a whole stream, and streams were asked for.
pub(super) fn has_gaps(record: &Record, context: &Context) -> bool {
    context.streaming && record.streamed && record.is_success() && !record.cancelled
}

/// Sums, each with the metric it sums.
const TOTALS: &[(usize, usize)] = &[
    (index!("total_isl"), index!("input_sequence_length")),
    (index!("total_osl"), index!("output_sequence_length")),
    (index!("total_output_tokens"), index!("output_token_count")),
    (
        index!("total_reasoning_tokens"),
        index!("reasoning_token_count"),
    ),
    (index!("total_error_isl"), index!("error_isl")),
    (
        index!("total_usage_prompt_tokens"),
        index!("usage_prompt_tokens"),
    ),
    (
        index!("total_usage_prompt_cache_read_tokens"),
        index!("usage_prompt_cache_read_tokens"),
    ),
    (
        index!("total_usage_prompt_cache_write_tokens"),
        index!("usage_prompt_cache_write_tokens"),
    ),
    (
        index!("total_usage_prompt_cache_miss_tokens"),
        index!("usage_prompt_cache_miss_tokens"),
    ),
    (
        index!("total_usage_prompt_audio_tokens"),
        index!("usage_prompt_audio_tokens"),
    ),
    (
        index!("total_usage_completion_tokens"),
        index!("usage_completion_tokens"),
    ),
    (
        index!("total_usage_reasoning_tokens"),
        index!("usage_reasoning_tokens"),
    ),
    (
        index!("total_usage_completion_audio_tokens"),
        index!("usage_completion_audio_tokens"),
    ),
    (
        index!("total_usage_accepted_prediction_tokens"),
        index!("usage_accepted_prediction_tokens"),
    ),
    (
        index!("total_usage_rejected_prediction_tokens"),
        index!("usage_rejected_prediction_tokens"),
    ),
    (
        index!("total_usage_total_tokens"),
        index!("usage_total_tokens"),
    ),
];

/// `value / divisor`, where that is a number.
fn ratio(value: f64, divisor: f64) -> Option<f64> {
    (divisor > 0.0).then(|| value / divisor)
}
