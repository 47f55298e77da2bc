//! Files of records, read one record at a time.
//!
//! In: a path, or bytes from anywhere. Out: a [`Record`] after the other, each with its place; what is wrong with one, or with the file.
//! Never: knows what a record means, or holds more of a file than one record.

use std::fs;
use std::io::BufRead;
use std::path::Path;

use serde_json::{Map, Value};

mod lines;

use lines::Lines;
pub use lines::RECORD_BYTES_MOST;

/// How a file is cut into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// JSON objects, one a line.
    Json,
}

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it says; fields that are null are as good as absent.
    pub fields: Map<String, Value>,
    /// Line on which it begins, from 1.
    pub line: u64,
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
    #[error("{0}")]
    Broken(String),
    /// The system does not give the file's bytes.
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
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
    lines: Lines,
    over: bool,
}

impl Records {
    /// Opens the file at `path`.
    pub fn open(path: &Path, cut: Cut) -> Result<Records, Trouble> {
        let file = fs::File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(Trouble::Broken("is a folder; give a file".to_owned()));
        }
        Ok(Records::of(Box::new(std::io::BufReader::new(file)), cut))
    }

    /// The records that `bytes` hold.
    #[must_use]
    pub fn of(bytes: Box<dyn BufRead + Send>, cut: Cut) -> Records {
        let Cut::Json = cut;
        Records {
            lines: Lines::new(bytes),
            over: false,
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record, Trouble>;

    fn next(&mut self) -> Option<Result<Record, Trouble>> {
        while !self.over {
            match self.lines.next_line() {
                Ok(None) => self.over = true,
                Ok(Some((_, []))) => {}
                Ok(Some((line, text))) => {
                    let fields = object(text).map_err(|reason| Trouble::Record { line, reason });
                    return Some(fields.map(|fields| Record { fields, line }));
                }
                Err(trouble) => {
                    self.over = !matches!(trouble, Trouble::Record { .. });
                    return Some(Err(trouble));
                }
            }
        }
        None
    }
}

/// The fields of a JSON object.
fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err("not a JSON object; give one such as {\"text\": \"Hello\"}".to_owned());
    };
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}
