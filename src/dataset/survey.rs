//! The first pass over a file that is streamed.
//!
//! In: a file of JSON Lines that can be read twice. Out: when each entry is due and where it is, or every bad line. Never: keeps an entry,
//! or makes a prompt.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::format::{self, Purpose, Setting, broken, other_way};
use super::line_index::LineIndex;
use super::lines::{BAD_LINES_MAX, Bad, Unknown};
use super::links::Links;
use super::recorded;
use super::seed::{child_seed, numbered};
use super::synthetic::conversation_id;
use super::trace::{Form, mixed};
use super::{Begins, ContextMode, DatasetError, fixed_schedule};
use crate::clock::Nanos;
use crate::config::FixedSchedule;
use crate::file::{Cut, Pieces, Records};

mod seen;

use seen::{EntrySeen, Seen, SessionKey, look};

/// Why a packed file is loaded.
const FAR: &str = "it is packed, and its lines are so far from the order of their times that they cannot be read in it";

/// What the pass found.
pub(super) enum Survey {
    /// All that a replay needs.
    Done(Box<Surveyed>),
    /// Some line does not stand for itself; why.
    Unfit(&'static str),
}

/// What a replay needs.
pub(super) struct Surveyed {
    pub(super) index: LineIndex,
    pub(super) links: Links,
    /// The schedule's zero, in milliseconds as the file has them.
    pub(super) zero: f64,
    /// Requests within the offsets.
    pub(super) requests: u64,
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
    let mut pass = Pass::new(packed, setting, schedule)?;
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
                .map(|piece| scope.spawn(|| look(piece, setting, schedule)))
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
    pass.finish()
}

/// What the pass has kept so far.
struct Pass<'a> {
    setting: Setting<'a>,
    path: &'a Path,
    packed: bool,
    ids: u64,
    schedule: FixedSchedule,
    /// What would be right for a session that builds its history in two ways.
    one_way: &'static str,
    index: LineIndex,
    links: Links,
    bad: Bad,
    unknown: Unknown,
    /// When conversations begin, of those within the offsets.
    due_ms: Vec<f64>,
    numbers: Numbers,
    sessions: HashMap<SessionKey, Known>,
    /// The first lines that have another form than their session, by conversation, and how many there are.
    mixed: BTreeMap<(u32, u64), String>,
    mixed_count: usize,
    timed: u64,
    requests: u64,
    /// Conversations with recorded replies.
    recorded: usize,
    /// The latest time within the offsets.
    latest_ms: f64,
    /// The line of the first entry.
    first_line: u64,
    /// The first conversation that begins without a timestamp: its number, the line and its id.
    missing: Option<(u32, u64, String)>,
    /// There are prompts to be made.
    asked: bool,
    lines: u64,
    offset: u64,
}

/// What is known of a session: 20 bytes with its key.
struct Known {
    conversation: u32,
    context: ContextMode,
    form: Form,
    /// It has a turn within the offsets.
    begun: bool,
}

impl<'a> Pass<'a> {
    fn new(
        packed: bool,
        setting: Setting<'a>,
        schedule: FixedSchedule,
    ) -> Result<Pass<'a>, DatasetError> {
        Ok(Pass {
            path: &setting.file.path,
            packed,
            ids: child_seed(setting.seed, "dataset.conversation.id"),
            schedule,
            one_way: format::open(setting)?.one_way(),
            index: LineIndex::default(),
            links: Links::default(),
            bad: Bad::default(),
            unknown: Unknown::default(),
            due_ms: Vec::new(),
            numbers: Numbers::default(),
            sessions: HashMap::new(),
            mixed: BTreeMap::new(),
            mixed_count: 0,
            recorded: 0,
            timed: 0,
            requests: 0,
            latest_ms: 0.0,
            first_line: 0,
            missing: None,
            asked: false,
            lines: 0,
            offset: 0,
            setting,
        })
    }

    fn add(&mut self, bytes: u64, seen: Seen) -> Result<(), DatasetError> {
        for (line, name) in seen.unknown {
            self.unknown.add(name, self.path, self.lines + line);
        }
        let first = seen.entries.first();
        if let Some(entry) = first.filter(|_| self.first_line == 0) {
            self.first_line = self.lines + entry.line;
        }
        self.asked |= seen.asked;
        let mut bad = seen.bad.into_iter().peekable();
        for entry in seen.entries {
            while let Some((line, reason)) = bad.next_if(|(line, _)| *line < entry.line) {
                self.refuse(line, &reason);
            }
            self.entry(&entry)?;
        }
        for (line, reason) in bad {
            self.refuse(line, &reason);
        }
        self.lines += seen.lines;
        self.offset += bytes;
        Ok(())
    }

    fn refuse(&mut self, line: u64, reason: &str) {
        let place = format!("{}:{}", self.path.display(), self.lines + line);
        self.bad.refuse(&format!("{place}: {reason}"));
    }

    fn entry(&mut self, entry: &EntrySeen) -> Result<(), DatasetError> {
        let number = self.links.entry_count();
        if number == u32::MAX {
            return Err(DatasetError::Schedule(format!(
                "{}: more than {number} entries; split the file",
                self.path.display()
            )));
        }
        self.index.add(number, self.offset + entry.at as u64);
        let line = self.lines + entry.line;
        let Some((conversation, begun)) = self.place(entry, line) else {
            return Ok(());
        };
        self.timed += u64::from(entry.timed);
        self.requests += u64::from(entry.within);
        self.latest_ms = self.latest_ms.max(entry.latest_ms);
        match entry.first.filter(|_| !begun) {
            Some(ms) if ms.is_nan() => {
                let earlier = self.missing.as_ref().map_or(u32::MAX, |missing| missing.0);
                if conversation < earlier {
                    let id = match &entry.session {
                        Some((_, id)) => id.clone(),
                        None => conversation_id(&mut numbered(self.ids, u64::from(conversation))),
                    };
                    self.missing = Some((conversation, line, id));
                }
            }
            Some(ms) => {
                self.due_ms.push(ms);
                self.numbers.add(conversation);
            }
            None => {}
        }
        Ok(())
    }

    /// The conversation that `entry` belongs to, and whether it had a turn within the offsets before; `None` where it cannot.
    fn place(&mut self, entry: &EntrySeen, line: u64) -> Option<(u32, bool)> {
        let trace = self.setting.file.format.is_trace();
        let begins = entry.first.is_some();
        let recorded = usize::from(entry.context == ContextMode::RecordedReplies);
        let Some((key, id)) = &entry.session else {
            self.recorded += recorded;
            return Some((self.links.begin(entry.turns), false));
        };
        let Some(known) = self.sessions.get_mut(key) else {
            self.recorded += recorded;
            let conversation = self.links.begin(entry.turns);
            let known = Known {
                conversation,
                context: entry.context,
                form: entry.form,
                begun: begins,
            };
            self.sessions.insert(*key, known);
            return Some((conversation, false));
        };
        let (conversation, begun) = (known.conversation, known.begun);
        if known.context != entry.context {
            self.bad.refuse(&other_way(self.path, line, self.one_way));
            self.links.pass();
            return None;
        }
        if known.form != entry.form {
            let said = mixed(self.path, line, id, (known.form, entry.form));
            self.mixed.insert((conversation, line), said);
            self.mixed_count += 1;
            if self.mixed.len() > BAD_LINES_MAX {
                self.mixed.pop_last();
            }
            self.links.pass();
            return None;
        }
        known.begun |= begins;
        if trace && !begins {
            // Of a trace, lines outside the offsets are left out before prompts are made.
            self.links.pass();
        } else {
            let anew = trace && !begun;
            self.links.go_on(conversation, entry.turns, anew);
        }
        Some((conversation, begun))
    }

    fn finish(mut self) -> Result<Survey, DatasetError> {
        self.bad.check(self.path)?;
        if self.links.entry_count() == 0 {
            return Err(DatasetError::Empty(self.path.to_owned()));
        }
        drop(std::mem::take(&mut self.sessions));
        self.links.finish();
        self.numbers.sort(&mut self.due_ms);
        let zero = self.zero()?;
        // Of the same size, so that they take each other's memory.
        let speedup = self.setting.trace.speedup;
        let mut due: Vec<Nanos> = self
            .due_ms
            .into_iter()
            .map(|ms| fixed_schedule::after(ms, zero).unwrap_or(0.0) / speedup)
            .map(|ms| Nanos::from_seconds(ms / 1e3))
            .collect();
        due.shrink_to_fit();
        self.index.finish(self.offset);
        let (links, numbers) = (&self.links, &self.numbers);
        let entries = |place| links.entries(numbers.at(place));
        if self.packed {
            let in_file = 0..u32::try_from(due.len()).unwrap_or(u32::MAX);
            let index = &mut self.index;
            if !index.pack(in_turn(&due).flat_map(entries))
                || !index.pack(in_file.flat_map(entries))
            {
                return Ok(Survey::Unfit(FAR));
            }
        } else if links.is_listed() {
            self.index.come_back();
        }
        let begins = Begins {
            due,
            first: self.numbers.first,
            listed: self.numbers.listed.map(|mut listed| {
                listed.shrink_to_fit();
                listed
            }),
        };
        let known = format::open(self.setting)?.known();
        let all = usize::try_from(self.links.conversation_count()).unwrap_or(usize::MAX);
        let recorded = recorded::note_of(self.recorded, all);
        Ok(Survey::Done(Box::new(Surveyed {
            index: self.index,
            links: self.links,
            zero,
            requests: self.requests,
            begins,
            notes: recorded
                .into_iter()
                .chain(self.unknown.notes(known))
                .collect(),
            asked: self.asked,
        })))
    }

    /// The schedule's zero, where all conversations have the times that they need.
    fn zero(&mut self) -> Result<f64, DatasetError> {
        let path = Some(self.path);
        if self.timed == 0 {
            return Err(fixed_schedule::untimed(path, self.first_line));
        }
        // Of one turn without a time, as of a conversation with one, nobody knows whether it lies within the offsets.
        if self.due_ms.is_empty() && self.missing.is_none() {
            return Err(fixed_schedule::nothing_within(self.schedule, path));
        }
        let untold = self.mixed_count - self.mixed.len();
        self.mixed.values().for_each(|said| self.bad.refuse(said));
        self.bad.refuse_untold(untold);
        self.bad.check(self.path)?;
        if let Some((_, line, id)) = &self.missing {
            return Err(fixed_schedule::first_untimed(path, *line, id));
        }
        let first = self.due_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let zero = fixed_schedule::zero(self.schedule, first);
        if fixed_schedule::after(self.latest_ms, zero).is_none() {
            let (line, ms) = self.first_late(zero)?;
            return Err(fixed_schedule::too_late(path, line, ms, zero));
        }
        Ok(zero)
    }

    /// Line and time of the first turn of the first conversation that has one too long after `zero`, found by reading the file once more.
    fn first_late(&self, zero: f64) -> Result<(u64, f64), DatasetError> {
        let mut whose = vec![u32::MAX; self.links.entry_count() as usize];
        for conversation in 0..self.links.conversation_count() {
            for entry in self.links.entries(conversation) {
                whose[entry as usize] = conversation;
            }
        }
        let trouble = |trouble| broken(trouble, self.path);
        let mut format = format::open(Setting {
            purpose: Purpose::Check,
            ..self.setting
        })?;
        let late = |ms: &f64| {
            let within = fixed_schedule::is_within(self.schedule, *ms);
            within && fixed_schedule::after(*ms, zero).is_none()
        };
        let mut found = (u32::MAX, 0, self.latest_ms);
        let records = Records::open(self.path, Cut::Json).map_err(trouble)?;
        for (record, conversation) in records.zip(whose) {
            let record = record.map_err(trouble)?;
            let line = record.line;
            // It was right a moment ago.
            let turns = format.entry(record).ok().flatten();
            let turns = turns.into_iter().flat_map(|entry| entry.turns);
            let ms = turns.filter_map(|turn| turn.timestamp_ms).find(late);
            if let Some(ms) = ms.filter(|_| conversation < found.0) {
                found = (conversation, line, ms);
            }
        }
        Ok((found.1, found.2))
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

/// Numbers, each once; a list only from the first on that does not follow the one before.
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

    /// Puts them in order, and `of` each of them with it.
    fn sort(&mut self, of: &mut Vec<f64>) {
        let Some(listed) = self.listed.as_mut().filter(|listed| !listed.is_sorted()) else {
            return;
        };
        let mut pairs: Vec<(u32, f64)> = listed.drain(..).zip(of.drain(..)).collect();
        pairs.sort_unstable_by_key(|pair| pair.0);
        for (number, value) in pairs {
            listed.push(number);
            of.push(value);
        }
    }
}
