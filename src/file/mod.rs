//! Files of records, read one record at a time.
//!
//! In: a path, or bytes from anywhere, plain or compressed. Out: a [`Record`] after the other, each with its place; what is wrong with one,
//! or with the file. Never: knows what a record means, or holds more of a file than one record.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

mod cutter;
mod first;
mod lines;
mod pieces;
mod table;
mod unpack;

use cutter::Cutter;
pub use first::first;
use lines::Lines;
pub use pieces::Pieces;
use table::Table;

/// Longest record: as much as a request body of some ten million tokens, and small enough for any machine.
pub const RECORD_BYTES_MOST: usize = 64 << 20;

/// Where bytes come from.
type Source = Box<dyn BufRead + Send>;

/// How a file is cut into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// JSON objects: one a line, or the items of one list. In a file whose name ends in `.json` an object may take several lines.
    Json,
    /// JSON objects that are items of the list under this key of one object.
    Items(&'static str),
    /// Rows of a CSV file whose first row names the columns; each cell is a text.
    Csv,
    /// JSON when the file begins with `{` or `[`, else CSV.
    JsonOrCsv,
}

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it says; fields that are null are as good as absent.
    pub fields: Map<String, Value>,
    /// The same, as it stands in the file; empty for a row of a table.
    pub text: String,
    /// Line on which it begins, from 1.
    pub line: u64,
    /// The file's name without its endings; empty for bytes that are no file.
    pub stem: Arc<str>,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// One record is not as it should be; the next one may be.
    #[error("{reason}")]
    Record {
        /// Line on which it begins, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing further can be read.
    #[error("line {line}: {reason}")]
    Broken {
        /// Line that had been reached.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// The system does not give the file's bytes.
    #[error(transparent)]
    Unreadable(std::io::Error),
}

/// The records of a file, in its order. Ends after [`Trouble::Broken`] and [`Trouble::Unreadable`].
///
/// ```
/// use tokenring::file::{Cut, Records};
/// let mut records = Records::of(Box::new(&b"{\"a\": 1}\n\n{\"a\": 2}\n"[..]), Cut::Json);
/// assert_eq!(records.next().unwrap().unwrap().fields["a"], 1);
/// assert_eq!(records.next().unwrap().unwrap().line, 3);
/// assert!(records.next().is_none());
/// ```
pub struct Records {
    cut: Cut,
    /// Objects of several lines are expected.
    tall: bool,
    stem: Arc<str>,
    state: State,
}

/// How far a file was read, and how it goes on.
enum State {
    /// Not yet begun.
    Fresh(Source),
    /// One record a line.
    Lines(Lines),
    /// Values behind each other.
    Values(Cutter),
    /// Values in a list; whether the next one is the first.
    Items(Cutter, bool),
    Rows(Table),
    Over,
}

/// What one step gives: a line and the text of a record, or the fields of a row.
type Found = Option<(u64, Result<String, Map<String, Value>>)>;

impl Records {
    /// Opens the file at `path`.
    pub fn open(path: &Path, cut: Cut) -> Result<Records, Trouble> {
        let file = fs::File::open(path).map_err(Trouble::Unreadable)?;
        let mut records = Records::of(Box::new(BufReader::with_capacity(1 << 16, file)), cut);
        let name = plain_name(path);
        let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem);
        records.tall = is_tall(path);
        records.stem = stem.into();
        Ok(records)
    }

    /// The records that `bytes` hold.
    #[must_use]
    pub fn of(bytes: Box<dyn BufRead + Send>, cut: Cut) -> Records {
        Records {
            cut,
            tall: false,
            stem: "".into(),
            state: State::Fresh(bytes),
        }
    }

    /// Finds out how the file goes on from its beginning.
    fn begin(&mut self, bytes: Source) -> Result<State, Trouble> {
        let mut cutter = Cutter::new(unpack::plain(bytes)?);
        let first = cutter.peek()?;
        let json = matches!(first, Some(b'{' | b'['));
        if self.cut == Cut::Csv || (self.cut == Cut::JsonOrCsv && !json) {
            return Table::new(cutter.into_bytes()).map(State::Rows);
        }
        if let Cut::Items(key) = self.cut {
            cutter.enter(key)?;
            return Ok(State::Items(cutter, true));
        }
        Ok(match first {
            Some(b'[') => {
                cutter.take(b'[')?;
                State::Items(cutter, true)
            }
            Some(b'{') if self.tall => State::Values(cutter),
            _ => {
                let line = cutter.line();
                State::Lines(Lines::new(cutter.into_bytes(), line))
            }
        })
    }

    fn step(&mut self) -> Result<Found, Trouble> {
        if let State::Fresh(bytes) = std::mem::replace(&mut self.state, State::Over) {
            self.state = self.begin(bytes)?;
        }
        self.advance()
    }

    fn advance(&mut self) -> Result<Found, Trouble> {
        let text = |line: u64, bytes: &[u8]| match text_of(bytes) {
            Ok(text) => Ok(Some((line, Ok(text.to_owned())))),
            Err(reason) => Err(Trouble::Record { line, reason }),
        };
        match &mut self.state {
            State::Fresh(_) | State::Over => Ok(None),
            State::Lines(lines) => match lines.next_line()? {
                Some((line, bytes)) => text(line, bytes),
                None => Ok(None),
            },
            State::Values(cutter) => match cutter.peek()? {
                Some(_) => {
                    let line = cutter.line();
                    text(line, cutter.value(RECORD_BYTES_MOST)?)
                }
                None => Ok(None),
            },
            State::Items(cutter, first) => match cutter.item(std::mem::take(first))? {
                Some((line, bytes)) => text(line, bytes),
                None => Ok(None),
            },
            State::Rows(table) => Ok(table.row()?.map(|(line, fields)| (line, Err(fields)))),
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record, Trouble>;

    fn next(&mut self) -> Option<Result<Record, Trouble>> {
        let fresh = matches!(self.state, State::Fresh(_));
        let (line, found) = match if fresh { self.step() } else { self.advance() } {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.state = State::Over;
                return None;
            }
            Err(trouble) => {
                if !matches!(trouble, Trouble::Record { .. }) {
                    self.state = State::Over;
                }
                return Some(Err(trouble));
            }
        };
        let (fields, text) = match found {
            Ok(text) => (object(&text), text),
            Err(fields) => (Ok(fields), String::new()),
        };
        let record = fields.map(|fields| Record {
            fields,
            text,
            line,
            stem: Arc::clone(&self.stem),
        });
        Some(record.map_err(|reason| Trouble::Record { line, reason }))
    }
}

/// The name of the file at `path`, without the ending that a packer gave it.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy());
    let name = name.as_deref().unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(name);
    name.strip_suffix(".zst").unwrap_or(name).to_owned()
}

/// In the file at `path` an object may take several lines, as its name says.
#[must_use]
pub fn is_tall(path: &Path) -> bool {
    plain_name(path).ends_with(".json")
}

/// The file at `path` is packed with gzip or zstd.
pub fn is_packed(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    fs::File::open(path)?.take(4).read_to_end(&mut head)?;
    Ok(unpack::is_packed(&head))
}

/// The text of the file at `path`, unpacked.
pub fn text(path: &Path) -> Result<Box<dyn BufRead + Send>, Trouble> {
    let file = fs::File::open(path).map_err(Trouble::Unreadable)?;
    unpack::plain(Box::new(BufReader::with_capacity(1 << 16, file)))
}

/// The record that one line of a file of JSON Lines holds, found by somebody else, with blanks around it or without. The error says what is
/// wrong with it.
pub fn record_of(line: &[u8], number: u64) -> Result<Record, String> {
    if line.len() > RECORD_BYTES_MOST {
        return Err(lines::too_long());
    }
    let text = text_of(line.trim_ascii())?;
    Ok(Record {
        fields: object(text)?,
        text: text.to_owned(),
        line: number,
        stem: "".into(),
    })
}

fn text_of(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| {
        format!(
            "not UTF-8 from byte {} of it on; save the file as UTF-8",
            error.valid_up_to() + 1
        )
    })
}

/// The fields of a JSON object.
fn object(text: &str) -> Result<Map<String, Value>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err("not a JSON object; give one such as {\"text\": \"Hello\"}".to_owned());
    };
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}

/// The files that `path` stands for: itself, or the files of the folder that it is, in the order of their names. Hidden ones are left out.
pub fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && fs::metadata(entry.path())?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
pub(crate) mod tests;
