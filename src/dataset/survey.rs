//! The first pass over a file that is streamed.
//!
//! In: a file of JSON Lines that can be read twice. Out: when each entry is due and where it is, or every bad line. Never: keeps an entry,
//! or makes a prompt.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::Path;

use super::fixed_schedule::Bounds;
use super::line_index::{LineIndex, lines_of};
use super::lines::{Findings, object};
use super::seed::{child_seed, numbered};
use super::streamed::Form;
use super::synthetic::conversation_id;
use super::{Begins, DatasetError};
use crate::clock::Nanos;

/// Bytes that one thread looks at at once; a longer line is looked at whole.
const PIECE_BYTES: usize = 4 << 20;

/// What the pass found.
pub(super) enum Survey {
    /// All that a replay needs.
    Done(LineIndex, Begins, Vec<String>),
    /// Some conversation has several turns, which have to be known together.
    SeveralTurns,
}

/// Reads all of `file`.
pub(super) fn survey(
    mut file: File,
    path: &Path,
    form: Form,
    bounds: Bounds,
    seed: u64,
) -> Result<Survey, DatasetError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let unreadable = |source| DatasetError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut pass = Pass {
        path,
        ids: child_seed(seed, "dataset.conversation.id"),
        bounds,
        index: LineIndex::default(),
        findings: Findings::default(),
        due_ms: Vec::new(),
        numbers: Numbers::default(),
        sessions: Vec::new(),
        entries: 0,
        timed: 0,
        missing: None,
        lines: 0,
        offset: 0,
    };
    let mut carried = Vec::new();
    loop {
        let pieces: Vec<Vec<u8>> = (0..threads)
            .map_while(|_| next_piece(&mut file, &mut carried).transpose())
            .collect::<io::Result<_>>()
            .map_err(unreadable)?;
        if pieces.is_empty() {
            break;
        }
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let looking: Vec<_> = pieces
                .iter()
                .map(|piece| scope.spawn(|| look(piece, form, seed)))
                .collect();
            let seen = looking.into_iter().map(std::thread::ScopedJoinHandle::join);
            seen.map(|seen| seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        for (piece, seen) in pieces.iter().zip(seen) {
            if seen.several_turns {
                return Ok(Survey::SeveralTurns);
            }
            pass.add(piece.len() as u64, seen)?;
        }
    }
    pass.finish(form)
}

/// The next whole lines of `file`; `None` at its end. `carried` is the beginning of a line.
fn next_piece(file: &mut File, carried: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut piece = std::mem::take(carried);
    loop {
        let room = PIECE_BYTES.saturating_sub(piece.len()).max(PIECE_BYTES / 4);
        piece.reserve(room);
        let read = file.by_ref().take(room as u64).read_to_end(&mut piece)?;
        if read < room {
            return Ok((!piece.is_empty()).then_some(piece));
        }
        if let Some(end) = memchr::memrchr(b'\n', &piece) {
            *carried = piece.split_off(end + 1);
            return Ok(Some(piece));
        }
    }
}

/// What one piece of the file shows.
#[derive(Default)]
struct Seen {
    lines: u64,
    entries: Vec<EntrySeen>,
    /// Bad lines, by their number in the piece from 1.
    bad: Vec<(u64, String)>,
    /// New names of unknown fields, by line.
    unknown: Vec<(u64, String)>,
    /// The first entry without a timestamp, and its session.
    untimed: Option<(usize, Option<String>)>,
    several_turns: bool,
}

struct EntrySeen {
    /// Where it begins in the piece.
    at: usize,
    /// NaN where it has none.
    timestamp_ms: f64,
    session: Option<u64>,
}

fn look(piece: &[u8], form: Form, seed: u64) -> Seen {
    let mut seen = Seen::default();
    let mut parser = form.parser(None, seed);
    for line in lines_of(piece) {
        seen.lines += 1;
        if line.text.trim_ascii().is_empty() {
            continue;
        }
        // A check hangs on the line alone, so its number does not matter.
        let entry = match object(line.text.trim_ascii()).and_then(|fields| parser.entry(0, fields))
        {
            Ok(entry) => entry,
            Err(reason) => {
                seen.bad.push((seen.lines, reason));
                continue;
            }
        };
        seen.several_turns |= entry.turns.len() > 1;
        for name in entry.unknown {
            if !seen.unknown.iter().any(|(_, known)| *known == name) {
                seen.unknown.push((seen.lines, name));
            }
        }
        let timestamp_ms = entry.turns.first().and_then(|turn| turn.timestamp_ms);
        if timestamp_ms.is_none() && seen.untimed.is_none() {
            seen.untimed = Some((seen.entries.len(), entry.session.clone()));
        }
        seen.entries.push(EntrySeen {
            at: line.begin,
            timestamp_ms: timestamp_ms.unwrap_or(f64::NAN),
            session: entry.session.map(|session| {
                let mut hasher = DefaultHasher::new();
                session.hash(&mut hasher);
                hasher.finish()
            }),
        });
    }
    seen
}

/// What the pass has kept so far.
struct Pass<'a> {
    path: &'a Path,
    ids: u64,
    bounds: Bounds,
    index: LineIndex,
    findings: Findings,
    /// Of the entries within the offsets.
    due_ms: Vec<f64>,
    numbers: Numbers,
    /// Hashes of all session ids; equal ones are lines of one conversation.
    sessions: Vec<u64>,
    entries: u32,
    timed: u64,
    /// Id of the first conversation without a timestamp.
    missing: Option<String>,
    lines: u64,
    offset: u64,
}

impl Pass<'_> {
    fn add(&mut self, bytes: u64, seen: Seen) -> Result<(), DatasetError> {
        for (line, reason) in &seen.bad {
            self.findings.refuse(self.path, self.lines + line, reason);
        }
        for (line, name) in seen.unknown {
            self.findings.note_unknown(vec![name], self.lines + line);
        }
        if let Some((at, session)) = seen.untimed.filter(|_| self.missing.is_none()) {
            let number = u64::from(self.entries) + at as u64;
            let id = session.unwrap_or_else(|| conversation_id(&mut numbered(self.ids, number)));
            self.missing = Some(id);
        }
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
            if self.bounds.hold(entry.timestamp_ms) {
                self.due_ms.push(entry.timestamp_ms);
                self.numbers.add(number);
            }
        }
        self.lines += seen.lines;
        self.offset += bytes;
        Ok(())
    }

    fn finish(mut self, form: Form) -> Result<Survey, DatasetError> {
        let notes = self.findings.finish(self.path, form.known())?;
        if self.entries == 0 {
            return Err(DatasetError::Empty(self.path.to_owned()));
        }
        self.sessions.sort_unstable();
        if self.sessions.windows(2).any(|pair| pair[0] == pair[1]) {
            return Ok(Survey::SeveralTurns);
        }
        drop(self.sessions);
        let shown = self.path.display().to_string();
        if self.timed == 0 {
            return Err(self.bounds.untimed(&shown));
        }
        if let Some(id) = self.missing {
            return Err(self.bounds.first_untimed(&shown, &id));
        }
        if self.due_ms.is_empty() {
            return Err(self.bounds.none_within(&shown));
        }
        let first = self.due_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let zero = self.bounds.zero(first);
        // Of the same size, so that they take each other's memory.
        let due: Result<Vec<Nanos>, DatasetError> = self
            .due_ms
            .into_iter()
            .map(|ms| self.bounds.after(ms, zero, &shown))
            .map(|ms| ms.map(|ms| Nanos::from_seconds(ms / 1e3)))
            .collect();
        let mut due = due?;
        due.shrink_to_fit();
        self.index.finish(self.offset);
        let begins = Begins {
            due,
            first: self.numbers.first,
            listed: self.numbers.listed.map(|mut listed| {
                listed.shrink_to_fit();
                listed
            }),
        };
        Ok(Survey::Done(self.index, begins, notes))
    }
}

/// Ascending numbers; a list only from the first gap on.
#[derive(Default)]
struct Numbers {
    first: u32,
    count: u32,
    listed: Option<Vec<u32>>,
}

impl Numbers {
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
