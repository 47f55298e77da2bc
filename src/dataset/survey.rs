//! The first pass over a file that is streamed.
//!
//! In: a file of JSON Lines that can be read twice. Out: when each entry is due and where it is, or every bad line. Never: keeps an entry,
//! or makes a prompt.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufRead;
use std::path::Path;

use super::format::{self, Purpose, Setting, broken};
use super::line_index::{LineIndex, lines_of};
use super::lines::{Bad, Entry, Unknown};
use super::seed::{child_seed, numbered};
use super::synthetic::conversation_id;
use super::{Begins, ContextMode, DatasetError, fixed_schedule};
use crate::clock::Nanos;
use crate::config::FixedSchedule;
use crate::file::{self, Pieces, record_of};

/// Why a packed file is loaded.
const FAR: &str = "it is packed, and its lines are so far from the order of their times that they cannot be read in it";

/// What the pass found.
pub(super) enum Survey {
    /// All that a replay needs.
    Done(Surveyed),
    /// Some line does not stand for itself; why.
    Unfit(&'static str),
}

/// What a replay needs.
pub(super) struct Surveyed {
    pub(super) index: LineIndex,
    pub(super) begins: Begins,
    pub(super) notes: Vec<String>,
    /// There are prompts to be made.
    pub(super) asked: bool,
}

/// Reads all of the file that `setting` names, which is `packed` or not, and whose text `pieces` are.
pub(super) fn survey(
    mut pieces: Pieces,
    packed: bool,
    setting: Setting<'_>,
    schedule: FixedSchedule,
) -> Result<Survey, DatasetError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let path = &setting.file.path;
    let mut pass = Pass {
        path,
        packed,
        ids: child_seed(setting.seed, "dataset.conversation.id"),
        schedule,
        speedup: setting.trace.speedup,
        index: LineIndex::default(),
        bad: Bad::default(),
        unknown: Unknown::default(),
        due_ms: Vec::new(),
        numbers: Numbers::default(),
        sessions: Vec::new(),
        entries: 0,
        timed: 0,
        first_line: 0,
        missing: None,
        asked: false,
        lines: 0,
        offset: 0,
    };
    loop {
        let pieces: Vec<Vec<u8>> = (0..threads)
            .map_while(|_| pieces.next_piece().transpose())
            .collect::<Result<_, _>>()
            .map_err(|trouble| broken(trouble, path))?;
        if pieces.is_empty() {
            break;
        }
        let seen: Vec<Result<Seen, DatasetError>> = std::thread::scope(|scope| {
            let looking: Vec<_> = pieces
                .iter()
                .map(|piece| scope.spawn(|| look(piece, setting)))
                .collect();
            let seen = looking.into_iter().map(std::thread::ScopedJoinHandle::join);
            seen.map(|seen| seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        for (piece, seen) in pieces.iter().zip(seen) {
            let seen = seen?;
            if let Some(why) = seen.unfit {
                return Ok(Survey::Unfit(why));
            }
            pass.add(piece.len() as u64, seen)?;
        }
    }
    let known = format::open(setting)?.known();
    pass.finish(known)
}

/// What one piece of the file shows. Lines are numbered in the piece, from 1.
#[derive(Default)]
struct Seen {
    lines: u64,
    entries: Vec<EntrySeen>,
    bad: Vec<(u64, String)>,
    /// New names of unknown fields, by line.
    unknown: Vec<(u64, String)>,
    /// The line of the first entry.
    first_line: Option<u64>,
    /// The first entry without a timestamp, its line and its session.
    untimed: Option<(usize, u64, Option<String>)>,
    asked: bool,
    unfit: Option<&'static str>,
}

struct EntrySeen {
    /// Where it begins in the piece.
    at: usize,
    /// NaN where it has none.
    timestamp_ms: f64,
    session: Option<u64>,
}

fn look(piece: &[u8], setting: Setting<'_>) -> Result<Seen, DatasetError> {
    let mut seen = Seen::default();
    let mut format = format::open(Setting {
        purpose: Purpose::Check,
        ..setting
    })?;
    for line in lines_of(piece) {
        seen.lines += 1;
        if line.text.trim_ascii().is_empty() {
            continue;
        }
        // A check hangs on the line alone, so its number does not matter.
        let entry = record_of(line.text, 0).and_then(|record| format.entry(record));
        match entry {
            Ok(Some(entry)) => seen.add(line.begin, entry),
            Ok(None) => seen.unfit = Some("it has lines that stand for no request"),
            Err(reason) => seen.bad.push((seen.lines, reason)),
        }
    }
    Ok(seen)
}

impl Seen {
    /// `at`: where the entry begins in the piece.
    fn add(&mut self, at: usize, entry: Entry) {
        let line = self.lines;
        self.unfit = self.unfit.or_else(|| unfit(&entry));
        for name in entry.unknown {
            if !self.unknown.iter().any(|(_, known)| *known == name) {
                self.unknown.push((line, name));
            }
        }
        self.first_line.get_or_insert(line);
        let Some(turn) = entry.turns.first() else {
            return;
        };
        self.asked |= turn.texts.is_empty()
            && turn.messages.is_empty()
            && turn.payload.is_none()
            && turn.media.is_empty();
        if turn.timestamp_ms.is_none() && self.untimed.is_none() {
            self.untimed = Some((self.entries.len(), line, entry.session.clone()));
        }
        self.entries.push(EntrySeen {
            at,
            timestamp_ms: turn.timestamp_ms.unwrap_or(f64::NAN),
            session: entry.session.map(|session| {
                let mut hasher = DefaultHasher::new();
                session.hash(&mut hasher);
                hasher.finish()
            }),
        });
    }
}

/// Why an entry cannot be made alone.
fn unfit(entry: &Entry) -> Option<&'static str> {
    match entry.turns.as_slice() {
        [_] if entry.context == ContextMode::RecordedReplies => {
            Some("it has conversations with recorded replies")
        }
        [turn] if !turn.headers.is_empty() => Some("it has turns with headers of their own"),
        [_] => None,
        _ => Some("it has conversations of several turns"),
    }
}

/// What the pass has kept so far.
struct Pass<'a> {
    path: &'a Path,
    packed: bool,
    ids: u64,
    schedule: FixedSchedule,
    /// Times are divided by this.
    speedup: f64,
    index: LineIndex,
    bad: Bad,
    unknown: Unknown,
    /// Of the entries within the offsets.
    due_ms: Vec<f64>,
    numbers: Numbers,
    /// Hashes of all session ids; equal ones are lines of one conversation.
    sessions: Vec<u64>,
    entries: u32,
    timed: u64,
    /// The line of the first entry.
    first_line: u64,
    /// Line and id of the first conversation without a timestamp.
    missing: Option<(u64, String)>,
    /// There are prompts to be made.
    asked: bool,
    lines: u64,
    offset: u64,
}

impl Pass<'_> {
    fn add(&mut self, bytes: u64, seen: Seen) -> Result<(), DatasetError> {
        for (line, reason) in &seen.bad {
            let place = format!("{}:{}", self.path.display(), self.lines + line);
            self.bad.refuse(&format!("{place}: {reason}"));
        }
        for (line, name) in seen.unknown {
            self.unknown.add(name, self.path, self.lines + line);
        }
        if let Some(line) = seen.first_line.filter(|_| self.first_line == 0) {
            self.first_line = self.lines + line;
        }
        if let Some((at, line, session)) = seen.untimed.filter(|_| self.missing.is_none()) {
            let number = u64::from(self.entries) + at as u64;
            let id = session.unwrap_or_else(|| conversation_id(&mut numbered(self.ids, number)));
            self.missing = Some((self.lines + line, id));
        }
        self.asked |= seen.asked;
        for entry in seen.entries {
            let number = self.entries;
            self.entries = number.checked_add(1).ok_or_else(|| {
                DatasetError::Schedule(format!(
                    "{}: more than {} entries; split the file",
                    self.path.display(),
                    u32::MAX
                ))
            })?;
            self.index.add(number, self.offset + entry.at as u64);
            self.sessions.extend(entry.session);
            self.timed += u64::from(!entry.timestamp_ms.is_nan());
            if fixed_schedule::is_within(self.schedule, entry.timestamp_ms) {
                self.due_ms.push(entry.timestamp_ms);
                self.numbers.add(number);
            }
        }
        self.lines += seen.lines;
        self.offset += bytes;
        Ok(())
    }

    fn finish(mut self, known: &str) -> Result<Survey, DatasetError> {
        self.bad.check(self.path)?;
        if self.entries == 0 {
            return Err(DatasetError::Empty(self.path.to_owned()));
        }
        self.sessions.sort_unstable();
        if self.sessions.windows(2).any(|pair| pair[0] == pair[1]) {
            return Ok(Survey::Unfit("it has conversations of several turns"));
        }
        drop(std::mem::take(&mut self.sessions));
        let path = Some(self.path);
        if self.timed == 0 {
            return Err(fixed_schedule::untimed(path, self.first_line));
        }
        // Of one turn without a time, as of a conversation with one, nobody knows whether it lies within the offsets.
        if self.due_ms.is_empty() && self.missing.is_none() {
            return Err(fixed_schedule::nothing_within(self.schedule, path));
        }
        if let Some((line, id)) = &self.missing {
            return Err(fixed_schedule::first_untimed(path, *line, id));
        }
        let first = self.due_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let zero = fixed_schedule::zero(self.schedule, first);
        let late = |ms: &f64| fixed_schedule::after(*ms, zero).is_none();
        if let Some(at) = self.due_ms.iter().position(late) {
            let line = self.line_of(at)?;
            return Err(fixed_schedule::too_late(path, line, self.due_ms[at], zero));
        }
        // Of the same size, so that they take each other's memory.
        let speedup = self.speedup;
        let mut due: Vec<Nanos> = self
            .due_ms
            .into_iter()
            .map(|ms| fixed_schedule::after(ms, zero).unwrap_or(0.0) / speedup)
            .map(|ms| Nanos::from_seconds(ms / 1e3))
            .collect();
        due.shrink_to_fit();
        self.index.finish(self.offset);
        let numbers = &self.numbers;
        let asked = in_turn(&due).map(|place| numbers.at(place));
        if self.packed && !self.index.pack(asked) {
            return Ok(Survey::Unfit(FAR));
        }
        let begins = Begins {
            due,
            first: self.numbers.first,
            listed: self.numbers.listed.map(|mut listed| {
                listed.shrink_to_fit();
                listed
            }),
        };
        Ok(Survey::Done(Surveyed {
            index: self.index,
            begins,
            notes: self.unknown.notes(known).collect(),
            asked: self.asked,
        }))
    }

    /// The line of the entry that is number `at` within the offsets, found by reading the file once more.
    fn line_of(&self, at: usize) -> Result<u64, DatasetError> {
        let number = self.numbers.at(u32::try_from(at).unwrap_or(u32::MAX)) as usize;
        let unreadable = |source| DatasetError::Unreadable {
            path: self.path.to_owned(),
            source,
        };
        let file = file::text(self.path).map_err(|trouble| broken(trouble, self.path))?;
        let mut entries = 0;
        for (line, text) in (1..).zip(file.split(b'\n')) {
            if text.map_err(unreadable)?.trim_ascii().is_empty() {
                continue;
            }
            if entries == number {
                return Ok(line);
            }
            entries += 1;
        }
        Ok(0)
    }
}

/// Places in `due`, in the order of the times; equal ones keep theirs.
fn in_turn(due: &[Nanos]) -> Box<dyn Iterator<Item = u32>> {
    let count = u32::try_from(due.len()).unwrap_or(u32::MAX);
    if due.is_sorted() {
        return Box::new(0..count);
    }
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_unstable_by_key(|&place| (due[place as usize], place));
    Box::new(order.into_iter())
}

/// Ascending numbers; a list only from the first gap on.
#[derive(Default)]
struct Numbers {
    first: u32,
    count: u32,
    listed: Option<Vec<u32>>,
}

impl Numbers {
    /// The one at `place`, which there is.
    fn at(&self, place: u32) -> u32 {
        match &self.listed {
            Some(listed) => listed[place as usize],
            None => self.first + place,
        }
    }

    fn add(&mut self, number: u32) {
        if self.count == 0 {
            self.first = number;
        }
        if let Some(listed) = &mut self.listed {
            listed.push(number);
        } else if number != self.first + self.count {
            let mut listed: Vec<u32> = (self.first..self.first + self.count).collect();
            listed.push(number);
            self.listed = Some(listed);
        }
        self.count += 1;
    }
}
