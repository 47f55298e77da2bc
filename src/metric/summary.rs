//! From the sums of a phase to its metrics.
//!
//! In: an accumulator. Out: its [`Summary`]. Never: holds the values of more than one metric at a time, or passes over values that
//! cannot be had back.
//!
//! Formulas are AIPerf 0.13's, with one difference on purpose: every rate is divided by the [`Window`](super::Window) that the summary states as
//! its benchmark duration. AIPerf divides by the phase's interval, idle ends included, and states another.

use std::io;

use super::lag::LagHistogram;
use super::registry::METRICS;
use super::request::index;
use super::run::Accumulator;
use super::steady::{Moment, Track};
use super::sweepline::{self, Span};
use super::{Stats, Steady, Summary, quantile, replay};

impl Accumulator {
    /// What the phase came to. Where values cannot be had back from their shelf, what would be made of them is absent, and a note says so.
    #[must_use]
    pub fn summary(mut self) -> Summary {
        let spans = std::mem::take(&mut self.spans).all();
        self.summary_over(spans)
    }

    /// The same, with the curves of `spans`.
    pub(super) fn summary_over(mut self, spans: io::Result<Vec<Span>>) -> Summary {
        let mut rows: Vec<Option<Stats>> = vec![None; METRICS.len()];
        let mut schedule_lag = LagHistogram::default();
        let mut lost: Vec<String> = Vec::new();
        for (index, series) in std::mem::take(&mut self.series).into_iter().enumerate() {
            match series.map(|series| series.all()) {
                Some(Ok(mut values)) => {
                    rows[index] = quantile::distribution(&mut values);
                    self.adjusted(index, &values, &mut rows);
                    if index == index!("credit_to_start_latency") {
                        replay::fill(&values, self.frame, &mut rows);
                    } else if index == index!("schedule_lag") {
                        schedule_lag = LagHistogram::of(&values);
                    }
                }
                Some(Err(error)) => lost.push(unread(METRICS[index].tag, &error)),
                None => {}
            }
        }
        let sums: Vec<Option<f64>> = rows.iter().map(|row| row.as_ref()?.sum).collect();
        let latencies = rows[index!("request_latency")].as_ref();
        let samples = latencies.and_then(|row| row.count).unwrap_or(0);
        rows[index!("inter_chunk_latency")] = self.gaps.stats();
        rows[index!("inter_token_gap")] = self.token_gaps.stats();
        rows[index!("token_weighted_inter_token_latency")] = self.by_token.stats();
        self.counts.fill(&mut rows);
        self.scalars(&sums, &mut rows);
        self.sent.fill(self.frame, &mut rows);
        if let Some(measured) = self.window {
            let within = self.arrived.within(measured);
            let window = self.frame.map_or(within, |frame| frame.window(within));
            self.arrived.fill(window, &mut rows);
        }
        match spans {
            Ok(mut spans) => {
                spans.sort_unstable();
                sweepline::fill(&spans, self.window, &self.context, &mut rows);
            }
            Err(error) => lost.push(unread("concurrency and throughput over time", &error)),
        }
        let steady = self.steady();
        let mut rows = quantile::finished(rows);
        self.context.keep(&mut rows);
        let mut notes = self.observed.notes(samples, &self.counts);
        notes.extend(lost);
        Summary {
            rows,
            errors: self.errors.groups(),
            window: self.window.unwrap_or_default(),
            success_count: self.success_count,
            error_count: self.error_count,
            cancelled_count: self.cancelled_count,
            schedule_lag,
            notes,
            counts: self.counts,
            steady,
        }
    }

    fn steady(&mut self) -> Option<Steady> {
        let (frame, window) = self.frame.zip(self.window)?;
        let moments: Vec<Moment> = match std::mem::take(&mut self.moments).all() {
            Ok(moments) => moments,
            Err(error) => return Some(Steady::Absent(unread("the steady state", &error))),
        };
        let mut steady = Track::of(moments).steady(&frame, window);
        if let Steady::State(state) = &mut steady {
            self.context.keep(&mut state.rows);
        }
        Some(steady)
    }

    /// `adj_*` of the metric at `base`, whose values are `sorted`: each error counts as an infinite wait. Only when there are errors, and values
    /// beside them.
    fn adjusted(&self, base: usize, sorted: &[f64], rows: &mut [Option<Stats>]) {
        let adjusted = ADJUSTED.iter().find(|(_, of)| *of == base);
        let failures = usize::try_from(self.error_count).unwrap_or(usize::MAX);
        if let Some((index, _)) = adjusted
            && failures > 0
            && !sorted.is_empty()
        {
            rows[*index] = Some(quantile::with_failures(sorted, failures));
        }
    }

    fn scalars(&self, sums: &[Option<f64>], rows: &mut [Option<Stats>]) {
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

        for (sum, base) in TOTALS {
            set(*sum, sums[*base]);
        }
        let (input, output) = (
            sums[index!("input_sequence_length")],
            sums[index!("output_sequence_length")],
        );
        let arrived = self.arrived.by_arrival.then(|| self.arrived.tokens());
        let output = arrived.or(output);
        let per_second = |value: Option<f64>| ratio(value?, window.length().seconds());
        set(index!("request_throughput"), per_second(Some(valid)));
        set(index!("input_token_throughput"), per_second(input));
        set(index!("output_token_throughput"), per_second(output));
        let both = input.zip(output).map(|(input, output)| input + output);
        set(index!("total_token_throughput"), per_second(both));
        let cache_read = sums[index!("usage_prompt_cache_read_tokens")];
        let prompt = sums[index!("usage_prompt_tokens")];
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

/// What is missing, and why.
fn unread(what: &str, error: &io::Error) -> String {
    format!(
        "Missing: {what}; its values stood in a temporary file, which could not be read back: {error}."
    )
}

/// Metrics in which each error counts as an infinite wait, each with the one that it adjusts.
const ADJUSTED: &[(usize, usize)] = &[
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
