//! A dataset that is read again while its requests are sent.
//!
//! In: a long trace, each line of which is a part of one conversation. Out: when all are due, and any conversation, made when it is asked for.
//! Never: more of the file in memory than some blocks of lines, or a conversation that depends on which were made before it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::format::{self, Format, Purpose, Setting, broken};
use super::line_index::{LineIndex, LineReader};
use super::lines::{Completion, Entry};
use super::links::Links;
use super::seed::{child_seed, numbered};
use super::survey::{Survey, Surveyed, survey};
use super::synthetic::conversation_id;
use super::trace::Ground;
use super::{Begins, Conversation, Corpus, DatasetError, fixed_schedule};
use crate::config::{
    Arrivals, DatasetSource, FileFormat, FilePlan, FixedSchedule, PhasePlan, Plan, Sampling,
    Streaming,
};
use crate::file::{self, Pieces, record_of};
use crate::tokenizer::Tokenizer;

/// Bytes in which a file shows how it goes on.
const HEAD_BYTES: u64 = 4096;

/// Conversations of a warmup, all made before it.
const WARMUP_MOST: usize = 10_000;

/// A file whose entries are made when they are asked for.
pub struct Streamed {
    file: FilePlan,
    index: LineIndex,
    links: Links,
    schedule: FixedSchedule,
    /// The schedule's zero, in milliseconds as the file has them.
    zero: f64,
    requests: u64,
    /// Conversations that phases before the replay may play.
    warmup: usize,
    /// What prompts are made from, where there are any.
    ground: Option<Ground>,
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
    let DatasetSource::File(file) = &plan.dataset.source else {
        return Ok(Attempt::Loaded(None));
    };
    let path = &file.path;
    let unreadable = |source| DatasetError::Unreadable {
        path: path.clone(),
        source,
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    let packed = metadata.is_file() && file::is_packed(path).map_err(unreadable)?;
    if !is_wanted(plan.dataset.streaming, metadata.len(), packed) {
        return Ok(Attempt::Loaded(None));
    }
    let loaded = |why: &str| {
        let shown = path.display();
        let note =
            format!("{shown} is loaded whole, and all its requests are made before the run: {why}");
        Ok(Attempt::Loaded(Some(note)))
    };
    let last = plan.phases.last();
    let followed = last.is_some_and(|phase| phase.arrivals == Arrivals::FixedSchedule);
    let Some(schedule) = plan.dataset.fixed_schedule.filter(|_| followed) else {
        return loaded("only a fixed schedule is streamed");
    };
    let warmup = match warmup_count(plan) {
        Ok(count) => count,
        Err(why) => return loaded(why),
    };
    if !metadata.is_file() {
        return loaded("it is no ordinary file, so it cannot be read twice");
    }
    if let Some(why) = unfit(plan, file) {
        return loaded(why);
    }
    if let Some(why) = unfit_head(text(path, packed)?) {
        return loaded(why);
    }
    let setting = Setting::of(plan, file, tokenizer, seed);
    match survey(Pieces::new(text(path, packed)?), packed, setting, schedule)? {
        Survey::Unfit(why) => loaded(why),
        Survey::Done(surveyed) => {
            let Surveyed {
                index,
                links,
                zero,
                requests,
                begins,
                notes,
                asked,
            } = *surveyed;
            let ground = asked.then(|| Ground::new(&setting)).transpose()?;
            let streamed = Streamed {
                file: file.clone(),
                index,
                links,
                schedule,
                zero,
                requests,
                warmup,
                ground,
                seed,
            };
            Ok(Attempt::Streamed(Box::new(streamed), begins, notes))
        }
    }
}

/// How many conversations may be played before the replay, which is the last phase; or why they cannot be made before it.
fn warmup_count(plan: &Plan) -> Result<usize, &'static str> {
    let phases = plan
        .phases
        .split_last()
        .map_or(&[][..], |(_, before)| before);
    if phases.is_empty() {
        return Ok(0);
    }
    if plan.dataset.sampling != Sampling::Sequential {
        return Err("its warmup does not play it in its order");
    }
    let most = |phase: &PhasePlan| {
        phase
            .stop
            .sessions
            .into_iter()
            .chain(phase.stop.requests)
            .min()
    };
    let counts: Option<Vec<u64>> = phases.iter().map(most).collect();
    let count = counts.map(|counts| counts.iter().sum::<u64>());
    match count.and_then(|count| usize::try_from(count).ok()) {
        Some(count) if count <= WARMUP_MOST => Ok(count),
        _ => Err(
            "its warmup may play more than 10,000 conversations; --warmup-request-count or --num-warmup-sessions limits them",
        ),
    }
}

/// A file of so many bytes is to be streamed if it can be.
fn is_wanted(streaming: Streaming, bytes: u64, packed: bool) -> bool {
    match streaming {
        Streaming::Always => true,
        Streaming::Auto if packed => bytes >= Streaming::AUTO_PACKED_BYTES,
        Streaming::Auto => bytes >= Streaming::AUTO_BYTES,
        Streaming::Never => false,
    }
}

/// The bytes of the file at `path`; unpacked, where it is `packed`.
fn text(path: &Path, packed: bool) -> Result<Box<dyn Read + Send>, DatasetError> {
    if packed {
        let text = file::text(path).map_err(|trouble| broken(trouble, path))?;
        return Ok(text);
    }
    let file = File::open(path).map_err(|source| DatasetError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    Ok(Box::new(file))
}

/// Why a file cannot be streamed that `plan` speaks of like this.
fn unfit(plan: &Plan, file: &FilePlan) -> Option<&'static str> {
    use FileFormat::{MooncakeTrace, MultiTurn, SingleTurn};
    let (trace, prompts) = (&plan.dataset.trace, &plan.dataset.prompts);
    let reasons = [
        (
            !matches!(file.format, SingleTurn | MultiTurn | MooncakeTrace),
            "of all formats only single_turn, multi_turn and mooncake_trace are streamed",
        ),
        (
            file::is_tall(&file.path),
            "in a .json file an entry may take several lines",
        ),
        (
            file.skip_bad_lines,
            "--skip-bad-lines leaves lines out, so their numbers have to be known",
        ),
        (
            file.strip_images,
            "--uuid-and-strip looks at all lines of a session",
        ),
        (
            trace.reshapes_prompts() || trace.input_tokens_most.is_some() || trace.ignore_delays,
            "it is reshaped, for which all its lines have to be known",
        ),
        (
            prompts.media.images.is_some() || prompts.media.sounds.is_some(),
            "pictures or sounds are added to its turns",
        ),
        (prompts.token_ids, "its prompts are sent as token ids"),
        (
            prompts.cache_bust.is_some(),
            "--cache-bust marks its bodies",
        ),
        (
            !plan.endpoint.kind.facts().produces_tokens,
            "its endpoint has to see every turn before the run",
        ),
    ];
    let found = reasons.into_iter().find(|(holds, _)| *holds);
    found.map(|(_, why)| why)
}

/// Why a text that begins like this cannot be streamed. An empty one can: it is refused in the same words. So is one that cannot be read.
fn unfit_head(text: Box<dyn Read + Send>) -> Option<&'static str> {
    let mut head = Vec::new();
    let _ = text.take(HEAD_BYTES).read_to_end(&mut head);
    let first = head.trim_ascii_start().first();
    first
        .is_some_and(|byte| *byte != b'{')
        .then_some("it is not one JSON object in each line")
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
            .map(|_| LineReader::open(&self.file.path, &self.index))
            .collect();
        let setting = Setting {
            purpose: Purpose::Make(self.ground.as_ref()),
            ..Setting::of(plan, &self.file, tokenizer, self.seed)
        };
        Ok(Maker {
            streamed: self,
            plan,
            readers: readers.map_err(|source| self.unreadable(source))?,
            format: format::open(setting)?,
            completion: Completion::new(plan, self.seed),
            ids: child_seed(self.seed, "dataset.conversation.id"),
        })
    }

    /// The conversations that phases before the replay play: the first of the file, of which `begins` are.
    ///
    /// # Errors
    ///
    /// When the file is not any more what it was.
    pub fn before_replay(
        &self,
        plan: &Plan,
        tokenizer: &dyn Tokenizer,
        begins: &Begins,
    ) -> Result<Corpus, DatasetError> {
        let count = self.warmup.min(begins.due.len());
        if count == 0 {
            return Ok(Corpus::default());
        }
        let mut maker = self.maker(plan, tokenizer, 1)?;
        let made = (0..count).zip(begins.first..).map(|(at, number)| {
            let listed = begins.listed.as_ref().map(|listed| listed[at]);
            maker.make(0, listed.unwrap_or(number))
        });
        Ok(Corpus {
            conversations: made.collect::<Result<_, _>>()?,
            ..Corpus::default()
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Its requests within the offsets.
    #[must_use]
    pub fn request_count(&self) -> u64 {
        self.requests
    }

    fn changed(&self, entry: u32, what: String) -> DatasetError {
        DatasetError::Changed {
            path: self.file.path.clone(),
            entry: u64::from(entry) + 1,
            what,
        }
    }

    fn unreadable(&self, source: std::io::Error) -> DatasetError {
        DatasetError::Unreadable {
            path: self.file.path.clone(),
            source,
        }
    }
}

/// Makes conversations, the same whatever was made before.
pub struct Maker<'a> {
    streamed: &'a Streamed,
    plan: &'a Plan,
    readers: Vec<LineReader<'a>>,
    format: Box<dyn Format + 'a>,
    completion: Completion<'a>,
    ids: u64,
}

impl Maker<'_> {
    /// Conversation number `number`, whose entries reader `reader` finds, with its times after the schedule's zero.
    ///
    /// # Errors
    ///
    /// When the file is not any more what it was.
    pub fn make(&mut self, reader: usize, number: u32) -> Result<Conversation, DatasetError> {
        let streamed = self.streamed;
        let trace = streamed.file.format.is_trace();
        let mut overall = streamed.links.turns_before(number);
        let mut made: Option<Conversation> = None;
        let mut last = number;
        for entry in streamed.links.entries(number) {
            last = entry;
            let mut found = self.entry(reader, entry)?;
            if trace {
                overall = u64::from(entry);
            }
            for turn in &mut found.turns {
                self.completion.turn(turn, overall);
                overall += 1;
            }
            match &mut made {
                Some(conversation) => conversation.turns.extend(found.turns),
                None => {
                    made = Some(Conversation {
                        id: match found.session {
                            Some(session) => session,
                            None => conversation_id(&mut numbered(self.ids, u64::from(number))),
                        },
                        turns: found.turns,
                        context: found.context,
                        system: found.system,
                        ..Conversation::default()
                    });
                }
            }
        }
        let mut conversation = made.unwrap_or_default();
        if let Some(most) = self.plan.dataset.trace.delay_ms_most {
            let turns = conversation.turns.iter_mut();
            turns.for_each(|turn| turn.delay_ms = turn.delay_ms.min(most));
        }
        self.completion.system(&mut conversation);
        let times = (streamed.zero, self.plan.dataset.trace.speedup);
        if !fixed_schedule::settle_one(streamed.schedule, times, &mut conversation) {
            return Err(streamed.changed(last, "its time is another one".to_owned()));
        }
        Ok(conversation)
    }

    /// Entry number `number` of the file.
    fn entry(&mut self, reader: usize, number: u32) -> Result<Entry, DatasetError> {
        let changed = |what: String| self.streamed.changed(number, what);
        let line = match self.readers[reader].line(number) {
            Ok(Some(line)) => line,
            Ok(None) => return Err(changed("it is not there any more".to_owned())),
            Err(error) => return Err(changed(error.to_string())),
        };
        self.format.go_to(u64::from(number));
        let entry = record_of(line, 0).and_then(|record| self.format.entry(record));
        let entry = entry.map_err(changed)?;
        entry.ok_or_else(|| changed("it has become empty".to_owned()))
    }

    /// What the user should know of all that was made.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.format.note()
    }
}

#[cfg(test)]
mod tests;
