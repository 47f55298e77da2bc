//! A dataset that is read again while its requests are sent.
//!
//! In: a long trace, each line of which is one request. Out: when all are due, and the conversation of any of them, made when it is asked
//! for. Never: more of the file in memory than a block of lines, or a conversation that depends on which were made before it.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::fixed_schedule::Bounds;
use super::line_index::{LineIndex, LineReader};
use super::lines::{self, Completion, Entry, object};
use super::pieces::Pieces;
use super::seed::{child_seed, numbered};
use super::survey::{Survey, survey};
use super::synthetic::conversation_id;
use super::{Begins, Conversation, DatasetError, mooncake, multi_turn, single_turn};
use crate::config::{Arrivals, DatasetSource, Plan, Streaming};
use crate::tokenizer::Tokenizer;

/// How a line is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    SingleTurn,
    MultiTurn,
    /// Of so many tokens a hash id.
    Mooncake(u32),
}

impl Form {
    fn of(source: &DatasetSource) -> Option<Form> {
        match source {
            DatasetSource::Synthetic(_) => None,
            DatasetSource::SingleTurn { .. } => Some(Form::SingleTurn),
            DatasetSource::MultiTurn { .. } => Some(Form::MultiTurn),
            DatasetSource::MooncakeTrace { block_tokens, .. } => {
                Some(Form::Mooncake(*block_tokens))
            }
        }
    }

    /// What may stand in a line.
    pub(super) fn known(self) -> &'static str {
        match self {
            Form::SingleTurn => single_turn::KNOWN,
            Form::MultiTurn => multi_turn::KNOWN,
            Form::Mooncake(_) => mooncake::KNOWN,
        }
    }

    /// Reads lines. Without a text to cut prompts from it checks them only.
    pub(super) fn parser<'a>(
        self,
        text: Option<(&'a Pieces, &'a dyn Tokenizer)>,
        seed: u64,
    ) -> Parser<'a> {
        match self {
            Form::SingleTurn => Parser::SingleTurn,
            Form::MultiTurn => Parser::MultiTurn,
            Form::Mooncake(block_tokens) => {
                Parser::Mooncake(mooncake::Writer::new(text, block_tokens, seed))
            }
        }
    }
}

/// See [`Form`].
pub(super) enum Parser<'a> {
    SingleTurn,
    MultiTurn,
    Mooncake(mooncake::Writer<'a>),
}

impl Parser<'_> {
    /// Entry `number` of the file.
    pub(super) fn entry(
        &mut self,
        number: u64,
        fields: Map<String, Value>,
    ) -> Result<Entry, String> {
        match self {
            Parser::SingleTurn => single_turn::entry(fields),
            Parser::MultiTurn => multi_turn::entry(fields),
            Parser::Mooncake(writer) => {
                writer.go_to(number);
                mooncake::entry(fields, writer)
            }
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Parser::SingleTurn | Parser::MultiTurn => None,
            Parser::Mooncake(writer) => writer.note(),
        }
    }
}

/// A file whose entries are made when they are asked for.
pub struct Streamed {
    path: PathBuf,
    form: Form,
    index: LineIndex,
    /// What prompts are cut from.
    pieces: Option<Pieces>,
    seed: u64,
}

/// What became of the wish to stream.
pub(super) enum Attempt {
    /// It can be.
    Streamed(Box<Streamed>, Begins, Vec<String>),
    /// It must be loaded; why, where somebody expects otherwise.
    Loaded(Option<String>),
}

/// Streams the plan's file if that is wanted and can be done.
pub(super) fn open(
    plan: &Plan,
    tokenizer: &dyn Tokenizer,
    seed: u64,
) -> Result<Attempt, DatasetError> {
    let source = &plan.dataset.source;
    let (Some(form), Some(path)) = (Form::of(source), source.path()) else {
        return Ok(Attempt::Loaded(None));
    };
    let unreadable = |source| DatasetError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    let wanted = match plan.dataset.streaming {
        Streaming::Always => true,
        Streaming::Auto => metadata.len() >= Streaming::AUTO_BYTES,
        Streaming::Never => false,
    };
    if !wanted {
        return Ok(Attempt::Loaded(None));
    }
    let loaded = |why: &str| {
        let shown = path.display();
        let note =
            format!("{shown} is loaded whole, and all its requests are made before the run: {why}");
        Ok(Attempt::Loaded(Some(note)))
    };
    let followed = plan.phases.len() == 1 && plan.phases[0].arrivals == Arrivals::FixedSchedule;
    let Some(schedule) = plan.dataset.fixed_schedule.filter(|_| followed) else {
        return loaded("only a fixed schedule without a warmup is streamed");
    };
    if !metadata.is_file() {
        return loaded("it is no ordinary file, so it cannot be read twice");
    }
    let mut file = File::open(path).map_err(unreadable)?;
    if is_compressed(&mut file).map_err(unreadable)? {
        return loaded("it is compressed, so no part of it can be read alone");
    }
    match survey(file, path, form, Bounds::new(schedule), seed)? {
        Survey::SeveralTurns => loaded("it has conversations of several turns"),
        Survey::Done(index, begins, notes) => {
            let pieces = match form {
                Form::SingleTurn | Form::MultiTurn => None,
                Form::Mooncake(_) => {
                    mooncake::check(tokenizer)?;
                    Some(mooncake::source(tokenizer, seed))
                }
            };
            let streamed = Streamed {
                path: path.to_owned(),
                form,
                index,
                pieces,
                seed,
            };
            Ok(Attempt::Streamed(Box::new(streamed), begins, notes))
        }
    }
}

/// The file begins like gzip or zstd.
fn is_compressed(file: &mut File) -> std::io::Result<bool> {
    let mut head = Vec::with_capacity(4);
    file.by_ref().take(4).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head.starts_with(&lines::GZIP) || head == [0x28, 0xb5, 0x2f, 0xfd])
}

impl Streamed {
    /// Makes conversations of this file, for as many readers as go through it each in its own order.
    pub fn maker<'a>(
        &'a self,
        plan: &'a Plan,
        tokenizer: &'a dyn Tokenizer,
        readers: usize,
    ) -> Result<Maker<'a>, DatasetError> {
        let readers: std::io::Result<Vec<LineReader<'a>>> = (0..readers)
            .map(|_| LineReader::open(&self.path, &self.index))
            .collect();
        Ok(Maker {
            path: &self.path,
            readers: readers.map_err(|source| self.unreadable(source))?,
            parser: {
                let text = self.pieces.as_ref().map(|pieces| (pieces, tokenizer));
                self.form.parser(text, self.seed)
            },
            completion: Completion::new(plan, self.seed),
            ids: child_seed(self.seed, "dataset.conversation.id"),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn unreadable(&self, source: std::io::Error) -> DatasetError {
        DatasetError::Unreadable {
            path: self.path.clone(),
            source,
        }
    }
}

/// Makes conversations, the same whatever was made before.
pub struct Maker<'a> {
    path: &'a Path,
    readers: Vec<LineReader<'a>>,
    parser: Parser<'a>,
    completion: Completion<'a>,
    ids: u64,
}

impl Maker<'_> {
    /// The conversation of entry `number`, found by reader `reader`.
    ///
    /// # Errors
    ///
    /// When the file is not any more what it was.
    pub fn make(&mut self, reader: usize, number: u32) -> Result<Conversation, DatasetError> {
        let changed = |what: String| DatasetError::Changed {
            path: self.path.to_owned(),
            entry: u64::from(number) + 1,
            what,
        };
        let line = match self.readers[reader].line(number) {
            Ok(Some(line)) => line,
            Ok(None) => return Err(changed("it is not there any more".to_owned())),
            Err(error) => return Err(changed(error.to_string())),
        };
        let overall = u64::from(number);
        let entry = object(line).and_then(|fields| self.parser.entry(overall, fields));
        let entry = entry.map_err(changed)?;
        let mut conversation = Conversation {
            id: match entry.session {
                Some(session) => session,
                None => conversation_id(&mut numbered(self.ids, overall)),
            },
            turns: entry.turns,
            context: entry.context,
            system: entry.system,
            ..Conversation::default()
        };
        conversation.turns.truncate(1);
        for turn in &mut conversation.turns {
            turn.delay_ms = 0.0;
            self.completion.turn(turn, overall);
        }
        self.completion.system(&mut conversation);
        Ok(conversation)
    }

    /// What the user should know of all that was made.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.parser.note()
    }
}

#[cfg(test)]
mod tests;
