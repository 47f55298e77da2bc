//! What the reader must know before trusting the numbers.
//!
//! In: records. Out: plain sentences with numbers in them. Never: changes a metric.

use super::spacing::{Known, known, reply_tokens};
use super::{Context, Counts};
use crate::record::Record;

/// Counts of oddities.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    streaming: bool,
    success: u64,
    /// Valid replies that were streams.
    streamed: u64,
    /// Of those, without `[DONE]` where that ends one.
    undone: u64,
    /// Whose bodies the server did not end within the time that it has for that after `[DONE]`.
    left_open: u64,
    /// With two content events or more.
    comparable: u64,
    whole: u64,
    content_events: u64,
    coalesced: u64,
    /// Streams of two events or more whose tokens by event are not known, their content events, and their tokens.
    untold: u64,
    untold_events: u64,
    untold_tokens: u64,
    /// Replies of several choices, and the most of them.
    several: u64,
    choices_most: u32,
    resent: u64,
    cancelled: u64,
    cancelled_on_purpose: u64,
    errors: u64,
    rate_limited: u64,
    /// Replies that came packed, and with what the first of them did.
    packed: u64,
    coding: Option<&'static str>,
    /// Failed requests that later turns go on without.
    gaps: u64,
}

impl Observed {
    pub(super) fn add(&mut self, record: &Record, context: &Context) {
        self.streaming = context.streaming;
        self.resent += u64::from(record.trace.resent);
        self.packed += u64::from(record.coding.is_some());
        self.coding = self.coding.max(record.coding);
        if record.cancelled {
            self.cancelled += 1;
        } else if !record.is_success() {
            self.errors += 1;
            self.cancelled_on_purpose += u64::from(record.cancelled_on_purpose);
            self.rate_limited += u64::from(record.status == 429);
            self.gaps += u64::from(record.leaves_a_gap);
        } else {
            self.add_success(record, context);
        }
    }

    fn add_success(&mut self, record: &Record, context: &Context) {
        self.success += 1;
        if record.streamed {
            let events = record.chunks.len() as u64;
            self.streamed += 1;
            self.undone += u64::from(context.ends_with_done && !record.done_seen);
            self.left_open += u64::from(record.trace.left_open);
            self.comparable += u64::from(events > 1);
            self.whole += u64::from(record.whole_in_one_read);
            self.content_events += events;
            self.coalesced += u64::from(record.coalesced_count);
            if events > 1 && known(record) == Known::Not {
                self.untold += 1;
                self.untold_events += events;
                add(&mut self.untold_tokens, reply_tokens(record).unwrap_or(0));
            }
        }
        let tokens = &record.tokens;
        self.several += u64::from(tokens.other_choices > 0);
        self.choices_most = self
            .choices_most
            .max(tokens.other_choices.saturating_add(1));
    }

    pub(super) fn merge(&mut self, other: &Observed) {
        self.streaming |= other.streaming;
        self.success += other.success;
        self.streamed += other.streamed;
        self.undone += other.undone;
        self.left_open += other.left_open;
        self.comparable += other.comparable;
        self.whole += other.whole;
        self.content_events += other.content_events;
        self.coalesced += other.coalesced;
        self.untold += other.untold;
        self.untold_events += other.untold_events;
        add(&mut self.untold_tokens, other.untold_tokens);
        self.several += other.several;
        self.choices_most = self.choices_most.max(other.choices_most);
        self.resent += other.resent;
        self.cancelled += other.cancelled;
        self.cancelled_on_purpose += other.cancelled_on_purpose;
        self.errors += other.errors;
        self.rate_limited += other.rate_limited;
        self.packed += other.packed;
        self.coding = self.coding.max(other.coding);
        self.gaps += other.gaps;
    }

    /// Content events that came in a read with another, of all content events of streams; `None` without any.
    pub(super) fn coalesced_share(&self) -> Option<f64> {
        let any = self.streaming && self.content_events > 0;
        any.then(|| self.coalesced as f64 / self.content_events as f64)
    }

    /// One sentence each. `samples`: valid requests with a latency.
    pub(super) fn notes(&self, samples: u64, counts: &Counts) -> Vec<String> {
        let of_streams = [
            self.not_streamed(),
            self.whole_replies(),
            self.bursts(),
            self.untold(),
            self.undone(),
            self.left_open(),
            self.several_choices(),
            self.packed(),
        ];
        let of_the_run = [
            self.resent(),
            self.cut(),
            self.cut_on_purpose(),
            (self.rate_limited * 2 > self.errors).then(|| {
                format!(
                    "{} of {} errors were HTTP 429: the server limits the rate, so the load was not the one asked for.",
                    grouped(self.rate_limited),
                    grouped(self.errors)
                )
            }),
            (self.gaps > 0).then(|| {
                format!(
                    "{} of {} failed requests were not the last of their conversations: the turns after them go on, as in AIPerf, \
                     without their replies.",
                    grouped(self.gaps),
                    grouped(self.errors)
                )
            }),
            (1..100).contains(&samples).then(|| {
                format!(
                    "p99 of {samples} samples: below 100 requests it is close to the maximum, not a percentile to compare."
                )
            }),
        ];
        let of_streams = of_streams.into_iter().flatten();
        let of_the_run = of_the_run.into_iter().flatten();
        of_streams.chain(counts.notes()).chain(of_the_run).collect()
    }

    fn not_streamed(&self) -> Option<String> {
        let count = self.success - self.streamed;
        (self.streaming && count > 0).then(|| {
            format!(
                "{} of {} replies were not streamed though streaming was asked for: they have no TTFT and no inter-token latency.",
                grouped(count),
                grouped(self.success)
            )
        })
    }

    fn whole_replies(&self) -> Option<String> {
        (self.streaming && self.whole > 0).then(|| {
            format!(
                "{} of {} replies arrived whole in one read: their TTFT equals their latency and their inter-token latency \
                 says nothing about the server.",
                grouped(self.whole),
                grouped(self.comparable.max(self.whole))
            )
        })
    }

    fn several_choices(&self) -> Option<String> {
        (self.several > 0).then(|| {
            format!(
                "{} of {} replies had up to {} choices (n above 1): output is counted over all of them, TTFT is to the first content \
                 of any, and inter-token latency is of tokens of any choice.",
                grouped(self.several),
                grouped(self.success),
                self.choices_most
            )
        })
    }

    fn undone(&self) -> Option<String> {
        (self.undone > 0).then(|| {
            format!(
                "No DONE: {} of {} streams ended without [DONE]; a finish_reason says that they are whole.",
                grouped(self.undone),
                grouped(self.streamed)
            )
        })
    }

    fn left_open(&self) -> Option<String> {
        (self.left_open > 0).then(|| {
            format!(
                "Left open: the server did not end the body of {} of {} streams within 1 s of [DONE]. Latencies are without that second, but each \
                 held its slot for it, so that a load of a given concurrency has fewer requests; and its connection was closed.",
                grouped(self.left_open),
                grouped(self.streamed)
            )
        })
    }

    fn packed(&self) -> Option<String> {
        let coding = self.coding?;
        Some(format!(
            "{} of {} replies came packed with {coding}, which was not asked for: unpacking costs time of the client's, and an event \
             arrives when the packer lets go of it, not when the server made it.",
            grouped(self.packed),
            grouped(self.all())
        ))
    }

    fn resent(&self) -> Option<String> {
        (self.resent > 0).then(|| {
            format!(
                "{} of {} requests were sent again on a new connection because the server had closed the kept one; their time \
                 runs from the first try.",
                grouped(self.resent),
                grouped(self.all())
            )
        })
    }

    fn cut(&self) -> Option<String> {
        (self.cancelled > 0).then(|| {
            format!(
                "{} of {} requests were cut by the end of the run; they are in no latency of whole replies, which makes slow \
                 replies look rarer than they are.",
                grouped(self.cancelled),
                grouped(self.all())
            )
        })
    }

    fn cut_on_purpose(&self) -> Option<String> {
        (self.cancelled_on_purpose > 0).then(|| {
            format!(
                "{} of {} requests were cancelled on purpose; as in AIPerf they count as failed.",
                grouped(self.cancelled_on_purpose),
                grouped(self.all())
            )
        })
    }

    fn all(&self) -> u64 {
        self.success + self.errors + self.cancelled
    }

    fn bursts(&self) -> Option<String> {
        let share = self.coalesced_share().filter(|share| *share > 0.05)?;
        let so = if share > 0.5 {
            "so gaps between events, their jitter and the gaps between tokens say nothing about the server"
        } else {
            "so gaps of 0 between them are not the server's"
        };
        Some(format!(
            "Events arrive in bursts: {} of {} content events ({:.1} %) came in one read with another, {so}.",
            grouped(self.coalesced),
            grouped(self.content_events),
            share * 100.0
        ))
    }

    fn untold(&self) -> Option<String> {
        (self.streaming && self.untold > 0).then(|| {
            format!(
                "{} of {} streams do not tell how many tokens each event carries ({:.1} on average): inter_token_gap leaves them \
                 out, and inter_chunk_latency is of events, not of tokens. With --per-chunk-usage a server may tell.",
                grouped(self.untold),
                grouped(self.comparable),
                self.untold_tokens as f64 / self.untold_events as f64
            )
        })
    }
}

/// Saturates: servers' counts are not to be trusted with an overflow.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// A count with a comma between thousands.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
