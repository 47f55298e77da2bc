//! What one piece of a file shows.
//!
//! In: some lines. Out: of each entry, what a replay has to know of it before it is made; every bad line. Never: keeps an entry's text, or
//! looks at another piece.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::format::{self, Purpose, Setting};
use super::super::line_index::lines_of;
use super::super::lines::Entry;
use super::super::trace::Form;
use super::super::{ContextMode, DatasetError};
use super::fixed_schedule;
use crate::config::FixedSchedule;
use crate::file::record_of;

/// What one piece of the file shows. Lines are numbered in the piece, from 1.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) lines: u64,
    pub(super) entries: Vec<EntrySeen>,
    pub(super) bad: Vec<(u64, String)>,
    /// New names of unknown fields, by line.
    pub(super) unknown: Vec<(u64, String)>,
    /// There are prompts to be made.
    pub(super) asked: bool,
    /// Why the file cannot be streamed.
    pub(super) unfit: Option<&'static str>,
}

/// 96 bits of a hash of a session's id. That two of ten million sessions share them happens once in 10^15 files.
pub(super) type SessionKey = [u8; 12];

/// One entry. Its turns are within the offsets, or have no time.
pub(super) struct EntrySeen {
    /// Where it begins in the piece.
    pub(super) at: usize,
    pub(super) line: u64,
    pub(super) session: Option<(SessionKey, String)>,
    pub(super) context: ContextMode,
    /// Of a trace, the form of its content.
    pub(super) form: Form,
    /// Turns, within the offsets or not.
    pub(super) turns: u32,
    /// Those within.
    pub(super) within: u32,
    /// The time of the first of them in milliseconds; NaN where it has none.
    pub(super) first: Option<f64>,
    /// The latest time of one of them; 0 where there is none.
    pub(super) latest_ms: f64,
    /// Some turn has a time, within the offsets or not.
    pub(super) timed: bool,
}

/// Looks at `piece`, of a file that is replayed as `schedule` says.
pub(super) fn look(
    piece: &[u8],
    setting: Setting<'_>,
    schedule: FixedSchedule,
) -> Result<Seen, DatasetError> {
    let mut seen = Seen::default();
    let mut format = format::open(Setting {
        purpose: Purpose::Check,
        ..setting
    })?;
    let trace = setting.file.format.is_trace();
    for line in lines_of(piece) {
        seen.lines += 1;
        if line.text.trim_ascii().is_empty() {
            continue;
        }
        // A check hangs on the line alone, so its number does not matter.
        let entry = record_of(line.text, 0).and_then(|record| format.entry(record));
        match entry {
            Ok(Some(mut entry)) => {
                seen.note(&mut entry);
                seen.entries.push(EntrySeen {
                    at: line.begin,
                    line: seen.lines,
                    ..summary(entry, trace, schedule)
                });
            }
            Ok(None) => seen.unfit = Some("it has lines that stand for no request"),
            Err(reason) => seen.bad.push((seen.lines, reason)),
        }
    }
    Ok(seen)
}

impl Seen {
    /// What `entry`, in the last line so far, shows of the file.
    fn note(&mut self, entry: &mut Entry) {
        self.unfit = self.unfit.or_else(|| unfit(entry));
        for name in entry.unknown.drain(..) {
            if !self.unknown.iter().any(|(_, known)| *known == name) {
                self.unknown.push((self.lines, name));
            }
        }
        self.asked |= entry.turns.iter().any(|turn| {
            turn.texts.is_empty()
                && turn.messages.is_empty()
                && turn.payload.is_none()
                && turn.media.is_empty()
        });
    }
}

fn summary(entry: Entry, trace: bool, schedule: FixedSchedule) -> EntrySeen {
    let times = || entry.turns.iter().map(|turn| turn.timestamp_ms);
    let within =
        || times().filter(|time| time.is_none_or(|ms| fixed_schedule::is_within(schedule, ms)));
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    EntrySeen {
        at: 0,
        line: 0,
        context: entry.context,
        form: entry
            .turns
            .first()
            .filter(|_| trace)
            .map(Form::of)
            .unwrap_or_default(),
        turns: count(entry.turns.len()),
        within: count(within().count()),
        first: within().next().map(|time| time.unwrap_or(f64::NAN)),
        latest_ms: within().flatten().fold(0.0, f64::max),
        timed: times().any(|time| time.is_some()),
        session: entry.session.map(|id| (key_of(&id), id)),
    }
}

fn key_of(id: &str) -> SessionKey {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, id).hash(&mut hasher);
        hasher.finish()
    };
    let [one, other] = [hash(0), hash(1)];
    let mut key = [0; 12];
    key[..8].copy_from_slice(&one.to_le_bytes());
    key[8..].copy_from_slice(&other.to_le_bytes()[..4]);
    key
}

/// Why an entry cannot be made while the load is on.
fn unfit(entry: &Entry) -> Option<&'static str> {
    if entry.turns.is_empty() {
        return Some("it has lines that stand for no request");
    }
    let headers = entry.turns.iter().any(|turn| !turn.headers.is_empty());
    headers.then_some("it has turns with headers of their own")
}
