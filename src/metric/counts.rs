//! Token counts held against each other, and why replies ended.
//!
//! In: valid records. Out: sums, differences and tallies, with the sentences that warn. Never: takes one count for the other.

use std::collections::BTreeMap;

use super::notes::grouped;
use super::request::{index, length_mismatch, usage_discrepancy};
use super::{Context, Stats};
use crate::record::Record;

/// Above this difference between client and server, in percent, the reader is warned.
const WARN_PERCENT: f64 = 2.0;

/// Different finish reasons that are told apart; servers send a handful.
const REASONS_MOST: usize = 32;

/// Longest name of a finish reason, in characters.
const REASON_LETTERS: usize = 64;

/// What the counts of a phase's valid requests came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Prompt tokens, client beside server.
    pub prompt: Compared,
    /// Completion tokens, reasoning included, client beside server.
    pub completion: Compared,
    /// Mean of the prompt lengths asked for, where one was (`--isl`).
    pub asked_input: Option<f64>,
    /// Output lengths, asked beside produced.
    pub length: Lengths,
    /// What the chat template added.
    pub template: TemplateTokens,
    /// Valid requests by finish reason; `none` where the reply told none.
    pub finish_reasons: BTreeMap<String, u64>,
    discrepancies: Flagged,
}

/// Two counts of the same tokens, over the requests that have both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Requests that have both.
    pub requests: u64,
    /// Sum of the client's counts.
    pub client: u64,
    /// Sum of the server's counts.
    pub server: u64,
    /// Requests whose counts differ by over 2 % of the client's.
    pub over: u64,
}

/// Requests that asked for an output length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// How many did and got a length.
    pub requests: u64,
    /// Sum of the lengths asked for, in tokens.
    pub asked: u64,
    /// Sum of the lengths produced.
    pub produced: u64,
    /// Those that missed by over 5 % or 50 tokens, whichever is less.
    pub missed: u64,
    /// Sum of what those asked for.
    pub missed_asked: u64,
    /// Sum of what those got.
    pub missed_produced: u64,
}

/// Input tokens that no text of a body has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    /// Requests counted through a chat template.
    pub requests: u64,
    /// Tokens that it added to them.
    pub tokens: u64,
    /// Requests whose messages it refused; their plain text was counted.
    pub refused: u64,
}

/// How many of how many requests that could be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flagged {
    judged: u64,
    flagged: u64,
}

impl Counts {
    /// Takes in one record of the phase.
    pub(super) fn add(&mut self, record: &Record, context: &Context) {
        self.asked_input = context.asked_input;
        if record.cancelled || !record.is_success() {
            return;
        }
        let tokens = &record.tokens;
        if let Some(usage) = &record.usage {
            let client_input = tokens.client_input;
            let client_input =
                client_input.or(tokens.input.filter(|_| !context.use_server_token_count));
            if !context.server_counts_words {
                self.prompt.add(client_input, usage.prompt_tokens);
            }
            if !context.use_server_token_count {
                let length = tokens.output_sequence_length();
                self.completion.add(length, usage.completion_tokens);
            }
        }
        self.discrepancies.add(usage_discrepancy(record, context));
        self.length.add(record);
        self.template.add(record);
        self.count_reason(record.finish_reason.as_deref().unwrap_or("none"), 1);
    }

    pub(super) fn merge(&mut self, other: &Counts) {
        self.asked_input = self.asked_input.or(other.asked_input);
        self.prompt.merge(other.prompt);
        self.completion.merge(other.completion);
        self.length.merge(other.length);
        self.template.merge(other.template);
        self.discrepancies.merge(other.discrepancies);
        for (reason, &count) in &other.finish_reasons {
            self.count_reason(reason, count);
        }
    }

    /// Sets the rows of the counting metrics in `rows`, which are indexed like the registry.
    pub(super) fn fill(&self, rows: &mut [Option<Stats>]) {
        let scalar =
            |judged: u64, flagged: u64| (judged > 0).then(|| Stats::scalar(flagged as f64));
        rows[index!("osl_mismatch_count")] = scalar(self.length.requests, self.length.missed);
        rows[index!("usage_discrepancy_count")] =
            scalar(self.discrepancies.judged, self.discrepancies.flagged);
    }

    /// One sentence for each thing that the reader must know.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        [
            self.prompt.note("Prompt"),
            self.completion.note("Completion"),
            self.discrepancies.note(),
            self.length.note(),
            self.template.note(),
        ]
        .into_iter()
        .flatten()
    }

    fn count_reason(&mut self, reason: &str, count: u64) {
        let name: String = reason.chars().take(REASON_LETTERS).collect();
        let known =
            self.finish_reasons.len() < REASONS_MOST || self.finish_reasons.contains_key(&name);
        let name = if known { name } else { "other".to_owned() };
        *self.finish_reasons.entry(name).or_default() += count;
    }
}

impl Compared {
    /// 100 * (server - client) / client, of the sums; `None` without a client's token.
    #[must_use]
    pub fn difference_percent(self) -> Option<f64> {
        let (client, server) = (self.client as f64, self.server as f64);
        (self.client > 0).then(|| (server - client) / client * 100.0)
    }

    fn add(&mut self, client: Option<u64>, server: Option<u64>) {
        if let (Some(client), Some(server)) = (client, server) {
            let percent = server.abs_diff(client) as f64 / client.max(1) as f64 * 100.0;
            self.requests += 1;
            self.over += u64::from(percent > WARN_PERCENT);
            add(&mut self.client, client);
            add(&mut self.server, server);
        }
    }

    fn merge(&mut self, other: Compared) {
        self.requests += other.requests;
        self.over += other.over;
        add(&mut self.client, other.client);
        add(&mut self.server, other.server);
    }

    /// Warns when the sums are apart, and when most requests are while their differences cancel out.
    fn note(self, what: &str) -> Option<String> {
        let percent = self.server.abs_diff(self.client) as f64 / self.client.max(1) as f64 * 100.0;
        (percent > WARN_PERCENT || self.over * 2 > self.requests).then(|| {
            format!(
                "{what} tokens differ by {percent:.1} % between client and server: {} counted here, {} by the server, in {} \
                 requests, {} of which differ by over 2 %.",
                grouped(self.client),
                grouped(self.server),
                grouped(self.requests),
                grouped(self.over)
            )
        })
    }
}

impl Lengths {
    /// Means of what was asked and of what was produced, in tokens; `None` when nothing was asked.
    #[must_use]
    pub fn means(self) -> Option<(f64, f64)> {
        let mean = |sum: u64| sum as f64 / self.requests as f64;
        (self.requests > 0).then(|| (mean(self.asked), mean(self.produced)))
    }

    fn add(&mut self, record: &Record) {
        let Some(missed) = length_mismatch(record) else {
            return;
        };
        let asked = record.tokens.requested_output.unwrap_or(0);
        let produced = record.tokens.output_sequence_length().unwrap_or(0);
        self.requests += 1;
        add(&mut self.asked, asked);
        add(&mut self.produced, produced);
        if missed {
            self.missed += 1;
            add(&mut self.missed_asked, asked);
            add(&mut self.missed_produced, produced);
        }
    }

    fn merge(&mut self, other: Lengths) {
        self.requests += other.requests;
        self.missed += other.missed;
        add(&mut self.asked, other.asked);
        add(&mut self.produced, other.produced);
        add(&mut self.missed_asked, other.missed_asked);
        add(&mut self.missed_produced, other.missed_produced);
    }

    fn note(self) -> Option<String> {
        let mean = |sum: u64| grouped(sum.saturating_add(self.missed / 2) / self.missed);
        (self.missed > 0).then(|| {
            format!(
                "Output length was not honoured: asked for {} tokens, got a mean of {} in {} of {} requests.",
                mean(self.missed_asked),
                mean(self.missed_produced),
                grouped(self.missed),
                grouped(self.requests)
            )
        })
    }
}

impl TemplateTokens {
    fn add(&mut self, record: &Record) {
        self.refused += u64::from(record.tokens.template_refused);
        if let Some(tokens) = record.tokens.template {
            self.requests += 1;
            add(&mut self.tokens, tokens);
        }
    }

    fn merge(&mut self, other: TemplateTokens) {
        self.requests += other.requests;
        self.refused += other.refused;
        add(&mut self.tokens, other.tokens);
    }

    fn note(self) -> Option<String> {
        (self.refused > 0).then(|| {
            format!(
                "The chat template refused the messages of {} of {} requests; their input was counted as plain text.",
                grouped(self.refused),
                grouped(self.refused + self.requests)
            )
        })
    }
}

impl Flagged {
    fn add(&mut self, verdict: Option<bool>) {
        if let Some(flagged) = verdict {
            self.judged += 1;
            self.flagged += u64::from(flagged);
        }
    }

    fn merge(&mut self, other: Flagged) {
        self.judged += other.judged;
        self.flagged += other.flagged;
    }

    fn note(self) -> Option<String> {
        (self.flagged > 0).then(|| {
            format!(
                "Usage discrepancies: in {} of {} requests a count of the server's differs by over 10 % from the client's, which \
                 is AIPerf's bound.",
                grouped(self.flagged),
                grouped(self.judged)
            )
        })
    }
}

/// Saturates: servers' counts are not to be trusted with an overflow.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}
