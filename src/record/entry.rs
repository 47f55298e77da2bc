//! A request, understood.
//!
//! In: an exchange that was parsed and counted. Out: typed values in nanoseconds, from which every metric is computed.
//! Never: a formula; those are `metric`'s.

use crate::clock::Nanos;
use crate::endpoint::{PieceKind, Usage};
use crate::record::{ErrorClass, EventMark, RequestId};

/// One request sent, with its outcome. Lengths of time are from [`Record::wall_start_ns`] (the request's start) unless said
/// otherwise.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Which request it is.
    pub id: RequestId,
    /// The `X-Request-ID` sent.
    pub request_uuid: u128,
    /// Conversation id in the dataset.
    pub conversation_id: String,
    /// Wall clock of the request's start, ns since the Unix epoch.
    pub wall_start_ns: u64,
    /// Monotonic clock of the request's start, ns (`start_perf_ns` in the raw export).
    pub monotonic_start_ns: u64,
    /// How long before the start the request was due (intended send time); 0 when it was on time.
    pub lateness: Nanos,
    /// How long of that it waited for a slot, or for a turn that could be sent.
    pub slot_wait: Nanos,
    /// Response head received; `None` when none came.
    pub head_received: Option<Nanos>,
    /// End of the exchange. A whole response: the arrival of its last byte, by the source of stamps that the run takes for every
    /// arrival. Otherwise the moment of the fault, the limit or the cut.
    pub end: Nanos,
    /// Arrival of the last response event of any kind (usage and `[DONE]` included), or of the whole body when not streamed.
    pub last_response: Option<Nanos>,
    /// The reply was an event stream.
    pub streamed: bool,
    /// Every content piece in order (role-only, usage-only and empty events are not content). For a reply that was not streamed:
    /// one, at the end of the body.
    pub chunks: Vec<Chunk>,
    /// Every event of a stream, content or not; kept only when the raw export asks for them.
    pub events: Vec<ReplyEvent>,
    /// Counts.
    pub tokens: TokenCounts,
    /// Pictures that the request's messages show, those of earlier turns too where they are sent again.
    pub image_count: u32,
    /// How long the sounds in it last together.
    pub sound: Nanos,
    /// The last non-empty usage object of the reply.
    pub usage: Option<Usage>,
    /// `completion_tokens` in the first content event's own usage (continuous usage).
    pub first_chunk_tokens: Option<u64>,
    /// The finish reason of the first choice.
    pub finish_reason: Option<String>,
    /// `[DONE]` was seen.
    pub done_seen: bool,
    /// Comment or empty events (keep-alives).
    pub keep_alive_count: u32,
    /// Content events that came in a read with another content event.
    pub coalesced_count: u32,
    /// The whole streamed reply (two content events or more) came in one read.
    pub whole_in_one_read: bool,
    /// Text of the reply's first choice, reasoning and content concatenated in arrival order; kept only when outputs are asked for.
    pub text: Option<String>,
    /// Texts of the other choices that said something, by index and in its order; kept like `text`.
    pub other_texts: Vec<(u64, String)>,
    /// HTTP status, 0 when no head came.
    pub status: u16,
    /// Why it is not a success. `None` means a valid record.
    pub error: Option<ErrorDetails>,
    /// `Retry-After` of a reply that is no 2xx, as sent: seconds or a date.
    pub retry_after: Option<String>,
    /// What the server packed the body with, though it was not asked to.
    pub coding: Option<&'static str>,
    /// It was cut by the end of the run (grace or interrupt), not by the peer.
    pub cancelled: bool,
    /// It was cut on purpose: an error with AIPerf's code 499, and one of its error records.
    pub cancelled_on_purpose: bool,
    /// It failed, and later turns of its conversation, whose history holds the server's words, go on without its reply.
    pub leaves_a_gap: bool,
    /// HTTP trace.
    pub trace: Trace,
}

impl Record {
    /// A valid record: no error, at least one content piece.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.error.is_none()
    }

    /// The run cut it, on purpose or by its end.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        self.cancelled || self.cancelled_on_purpose
    }
}

/// One content piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Arrival after the request's start: the stamp of the read that completed the event.
    pub at: Nanos,
    /// Index of that read within the response.
    pub read: u32,
    /// What it carried.
    pub kind: PieceKind,
    /// It counts as *output* for time to first output token: text, content beside reasoning, or tool text.
    pub output: bool,
    /// Tokens since the content piece before, where the server told its count with this event and all before it (continuous
    /// usage); at most `u32::MAX`.
    pub tokens: Option<u32>,
}

/// One event of a streamed reply, for the raw export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyEvent {
    /// Where it is in the body, and the reads that brought it.
    pub mark: EventMark,
    /// Tokens since the event before, as [`Chunk::tokens`].
    pub tokens: Option<u32>,
}

/// Token counts of one request; `None` where a count could not be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Output tokens without reasoning.
    pub output: Option<u64>,
    /// Reasoning tokens.
    pub reasoning: Option<u64>,
    /// The turn's output limit.
    pub requested_output: Option<u64>,
    /// Prompt tokens counted here, also when the server's count is used.
    pub client_input: Option<u64>,
    /// How many of those the chat template added; `None` when none was applied.
    pub template: Option<u64>,
    /// A chat template was to be applied and refused these messages, so that plain text was counted.
    pub template_refused: bool,
    /// Choices besides the first (`n` above 1) that output and reasoning are counted over as well.
    pub other_choices: u32,
}

impl TokenCounts {
    /// Output sequence length: output plus reasoning, at most `u64::MAX` (a server's counts are not to be trusted with an overflow);
    /// `None` when both are absent.
    #[must_use]
    pub fn output_sequence_length(&self) -> Option<u64> {
        match (self.output, self.reasoning) {
            (None, None) => None,
            (output, reasoning) => Some(output.unwrap_or(0).saturating_add(reasoning.unwrap_or(0))),
        }
    }
}

/// Why a request failed, in AIPerf's form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErrorDetails {
    /// HTTP status, 499 for cancelled, 502 for an error inside a stream; `None` for a broken connection.
    pub code: Option<u16>,
    /// Reason phrase, or the stable name of the fault.
    pub kind: String,
    /// What happened, at most 4,096 characters.
    pub message: String,
    /// What kind of failure it was; AIPerf has none.
    pub class: ErrorClass,
}

/// HTTP trace of one request (k6's names). Lengths from the request's start, unless said otherwise.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The connection had served before.
    pub reused: bool,
    /// The request was sent again on a new connection after a pooled one proved closed.
    pub resent: bool,
    /// The reply was taken as whole although the server had not ended its body within a second of `[DONE]`.
    pub left_open: bool,
    /// Length of the connection's set-up, when that was over before the request: it was opened ahead, and this is its first request.
    pub set_up_ahead: Option<Nanos>,
    /// Connection set-up began; `None` on a reused connection, and on one that was opened ahead.
    pub connect_start: Option<Nanos>,
    /// TCP (and TLS) set-up ended.
    pub connect_end: Option<Nanos>,
    /// TLS part of the set-up.
    pub tls: Option<Nanos>,
    /// First byte handed to the kernel.
    pub send_start: Option<Nanos>,
    /// Last byte handed to the kernel.
    pub send_end: Option<Nanos>,
    /// First read with body bytes.
    pub first_body: Option<Nanos>,
    /// Last read with body bytes.
    pub last_body: Option<Nanos>,
    /// Request body bytes sent.
    pub bytes_sent: u64,
    /// Response body bytes received, after transfer decoding.
    pub bytes_received: u64,
    /// Write calls.
    pub writes: u32,
    /// Reads with body bytes: (after start, body bytes).
    pub reads: Vec<(Nanos, u32)>,
    /// Response reason phrase.
    pub reason: String,
    /// Request headers as sent.
    pub request_headers: Vec<(String, String)>,
    /// Response headers.
    pub response_headers: Vec<(String, String)>,
    /// Local port, 0 when unknown.
    pub local_port: u16,
    /// Remote address.
    pub remote: String,
}
