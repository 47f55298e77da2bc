//! What is said to the server.
//!
//! In: the plan and a tokenizer. Out: a [`Corpus`] of conversations, the same for every run with the same seed.
//! Never: knows an API's body shape, or sends anything.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::clock::Nanos;
use crate::config::{DatasetSource, Plan};
use crate::tokenizer::Tokenizer;

mod cache_bust;
mod code;
mod fit;
mod fixed_schedule;
mod format;
mod inputs_json;
mod length;
mod line_index;
mod lines;
mod links;
mod media;
mod multi_turn;
mod pieces;
mod prompts;
mod random;
mod random_pool;
mod ranked;
mod raw_payload;
mod recorded;
mod sampler;
mod seed;
mod sharegpt;
mod single_turn;
mod speed_bench;
mod streamed;
mod survey;
mod synthetic;
mod token_ids;
mod trace;

pub use cache_bust::{MARKER_GAP, MARKER_ROOM, WARMUP_MARKER, session_marker};
pub use format::entries;
pub use sampler::Sampler;
pub use seed::{child_seed, stream};
pub use streamed::{Maker, Streamed};

/// All conversations of a run. Immutable; shared by the workers.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// Unique conversations.
    pub conversations: Vec<Conversation>,
    /// Lines of the file that were wrong and are left out.
    pub bad_lines: u64,
}

/// One conversation.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Id in files: uuid-like, derived from the seed, or the file's own `session_id`.
    pub id: String,
    /// System message.
    pub system: Option<String>,
    /// Extra first user message.
    pub user_context: Option<String>,
    /// At least one.
    pub turns: Vec<Turn>,
    /// How the history of later turns is built.
    pub context: ContextMode,
}

/// How the history of a later turn is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextMode {
    /// Turns are user deltas; the server's live replies are put between them.
    #[default]
    LiveReplies,
    /// Turns are deltas that carry the replies of the conversation's record; what the server says is left out of the history.
    RecordedReplies,
    /// Each turn is complete in itself.
    SelfContained,
}

/// One request's worth of input.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Texts; one in most cases.
    pub texts: Vec<String>,
    /// What each text is, such as `query` and `passages`, in the order of [`Turn::texts`]; empty when they have no names.
    pub text_names: Vec<String>,
    /// The texts as token ids, where they go out as such; [`Turn::texts`] is empty then.
    pub token_ids: Vec<Vec<u32>>,
    /// Pictures and sounds, behind the texts.
    pub media: Vec<Media>,
    /// Messages as the dataset has them, in place of texts and media.
    pub messages: Vec<Value>,
    /// Replies of the conversation's record that come before this turn, as assistant messages; they stand in front of its own messages.
    pub recorded: Vec<Value>,
    /// Tools that the body offers, as the dataset has them.
    pub tools: Option<Value>,
    /// The whole request body as the dataset has it; it is sent as it is, and nothing else of the turn is.
    pub payload: Option<Arc<str>>,
    /// Extra request headers.
    pub headers: Vec<(String, String)>,
    /// Message role, `user` by default.
    pub role: String,
    /// Model to ask.
    pub model: String,
    /// Output limit.
    pub max_tokens: Option<u32>,
    /// Think time before this turn, in milliseconds (0 for a first turn).
    pub delay_ms: f64,
    /// When it is due, in milliseconds after the schedule's zero (as in the file before the zero is known). Only the fixed schedule
    /// follows it.
    pub timestamp_ms: Option<f64>,
    /// Extra top-level body fields, over `--extra-inputs`.
    pub extra: Map<String, Value>,
    /// The line of the file that it stands in, from 1; 0 for one that was made up.
    pub line: u64,
    /// Which request of a trace it is, from 0. A list may have several in one line.
    pub record: u64,
}

/// A picture or a sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// What it is.
    pub kind: MediaKind,
    /// A URL, a data URL (`data:image/png;base64,...`), or for sounds `wav,<base64>` and `mp3,<base64>`.
    pub content: Arc<str>,
    /// What the dataset calls it.
    pub name: Option<Arc<str>>,
    /// Under which id a server keeps a picture. One that the server has already may have no content.
    pub uuid: Option<Arc<str>>,
    /// How long a sound lasts, in nanoseconds; 0 where that cannot be told.
    pub length_ns: u64,
}

impl Media {
    /// What stands in `content`, without a name.
    #[must_use]
    pub fn new(kind: MediaKind, content: impl Into<Arc<str>>) -> Media {
        let content = content.into();
        let length_ns = match kind {
            MediaKind::Audio => media::length_ns(&content),
            _ => 0,
        };
        Media {
            kind,
            content,
            name: None,
            uuid: None,
            length_ns,
        }
    }
}

/// Kinds of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A sound.
    Audio,
    /// A film.
    Video,
}

impl Corpus {
    /// When each conversation begins after the schedule's zero, in the order of the file; those without a timestamp are left out.
    pub fn begins(&self) -> impl Iterator<Item = (Nanos, u32)> {
        let numbered = self.conversations.iter().zip(0_u32..);
        numbered.filter_map(|(conversation, number)| {
            let own = conversation.turns.first()?.own_time()?;
            Some((own, number))
        })
    }
}

impl Turn {
    /// When it is due after the schedule's zero, where it has a time of its own.
    #[must_use]
    pub fn own_time(&self) -> Option<Nanos> {
        self.timestamp_ms.map(|ms| Nanos::from_seconds(ms / 1e3))
    }
}

/// Why there is no corpus.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The input file cannot be read.
    #[error("--input-file {}: {source}; give the path of a readable JSONL file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Lines of the input file are wrong; one message a line, each with its file and line.
    #[error("{}", .0.join("\n"))]
    Lines(Vec<String>),
    /// The input file holds no entry.
    #[error("--input-file {}: no entries; give one JSON object per line, such as {{\"text\": \"Hello\"}}", .0.display())]
    Empty(PathBuf),
    /// A fixed schedule was asked for, and the dataset has nothing to follow.
    #[error("--fixed-schedule: {0}")]
    Schedule(String),
    /// A picture that is to be sent cannot be read.
    #[error("{0}")]
    Media(String),
    /// A flag asks of the dataset what it cannot give.
    #[error("{0}")]
    Unfit(String),
    /// A file that is streamed is not any more what its first reading found.
    #[error(
        "--input-file {}: entry {entry} was changed while the load was on ({what}); leave the file alone, or load it with --stream-input never",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Which entry, from 1.
        entry: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The plan asks for no conversations.
    #[error("--num-dataset-entries 0: give 1 or more")]
    NoEntries,
    /// The tokenizer gives no tokens for any text tried.
    #[error(
        "--tokenizer {0}: it turns ordinary words into no tokens, so prompts cannot be made to length; give another one"
    )]
    UnusableTokenizer(String),
}

/// What a run says, and when it is known.
pub enum Dataset {
    /// All of it is.
    Loaded(Corpus),
    /// Its conversations are made while the load is on.
    Streamed(Box<Streamed>, Begins),
}

/// When the conversations of a streamed dataset begin after the schedule's zero, in the order of the file.
#[derive(Debug)]
pub struct Begins {
    /// Their times.
    pub due: Vec<Nanos>,
    /// The number of the first one in the file, from 0; the others follow it where they are not listed.
    pub first: u32,
    /// The numbers of all, where those outside the offsets have left gaps.
    pub listed: Option<Vec<u32>>,
}

/// The dataset of a run, streamed where the plan says so and the file allows it; with sentences the user should see.
///
/// The same conversations at the same times come of both ways.
pub fn open(
    plan: &Plan,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Dataset, Vec<String>), DatasetError> {
    let why = match streamed::open(plan, tokenizer, seed)? {
        streamed::Attempt::Streamed(streamed, begins, notes) => {
            return Ok((Dataset::Streamed(streamed, begins), notes));
        }
        streamed::Attempt::Loaded(why) => why,
    };
    let (corpus, notes) = build(plan, tokenizer, seed)?;
    let notes = why.into_iter().chain(notes).collect();
    Ok((Dataset::Loaded(corpus), notes))
}

/// Builds all conversations of a run, with sentences the user should see.
///
/// The corpus depends on the plan, the tokenizer and `seed` only: not on the machine, its cores or the time.
pub fn build(
    plan: &Plan,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<(Corpus, Vec<String>), DatasetError> {
    let source = &plan.dataset.source;
    let (mut corpus, notes) = match source {
        DatasetSource::Synthetic(synthetic) => synthetic::build(plan, synthetic, tokenizer, seed),
        DatasetSource::File(file) => format::read(plan, file, tokenizer, seed),
    }?;
    if let Some(most) = plan.dataset.trace.delay_ms_most {
        let turns = corpus.conversations.iter_mut().flat_map(|c| &mut c.turns);
        turns.for_each(|turn| turn.delay_ms = turn.delay_ms.min(most));
    }
    if let Some(schedule) = plan.dataset.fixed_schedule {
        fixed_schedule::settle(schedule, &plan.dataset, &mut corpus)?;
    }
    media::add(&plan.dataset.prompts.media, &mut corpus, seed)?;
    if let Some(target) = plan.dataset.prompts.cache_bust {
        cache_bust::make_room(target, &mut corpus)?;
    }
    if plan.dataset.prompts.token_ids {
        token_ids::replace_texts(&mut corpus, tokenizer);
    }
    Ok((corpus, notes))
}

#[cfg(test)]
mod tests;
