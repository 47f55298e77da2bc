//! Rows of a CSV file.
//!
//! In: bytes from a reader. Out: the cells of a row under the names of their columns. Never: a number; every cell is a text.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use csv::ByteRecord;
use serde_json::{Map, Value};

use super::lines::too_long;
use super::unpack::{spoiled, trouble};
use super::{RECORD_BYTES_MOST, Source, Trouble};

/// A table that is being read.
pub(super) struct Table {
    rows: csv::Reader<Bounded>,
    columns: Vec<String>,
    row: ByteRecord,
    /// Bytes that the next row may still take.
    room: Arc<AtomicUsize>,
}

/// A line, and the cells of its row by the names of their columns.
pub(super) type Row = (u64, Map<String, Value>);

impl Table {
    /// Reads the names of the columns.
    pub(super) fn new(bytes: Source) -> Result<Table, Trouble> {
        let room = Arc::new(AtomicUsize::new(RECORD_BYTES_MOST));
        let bytes = Bounded {
            bytes,
            room: Arc::clone(&room),
        };
        let mut table = Table {
            rows: csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .from_reader(bytes),
            columns: Vec::new(),
            row: ByteRecord::new(),
            room,
        };
        if table.advance()?.is_some() {
            for cell in &table.row {
                let name = String::from_utf8_lossy(cell).trim().to_owned();
                table.columns.push(name);
            }
        }
        Ok(table)
    }

    /// The names of the columns.
    pub(super) fn columns(self) -> Vec<String> {
        self.columns
    }

    /// The next row and its line. Empty cells are left out.
    pub(super) fn row(&mut self) -> Result<Option<Row>, Trouble> {
        let Some(line) = self.advance()? else {
            return Ok(None);
        };
        let wrong = |reason: String| Trouble::Record { line, reason };
        if self.row.len() != self.columns.len() {
            return Err(wrong(format!(
                "{} cells, but {} columns; put text with commas in \"quotes\"",
                self.row.len(),
                self.columns.len()
            )));
        }
        let mut fields = Map::new();
        for (name, cell) in self.columns.iter().zip(&self.row) {
            let cell = std::str::from_utf8(cell)
                .map_err(|_| wrong(format!("column {name}: not UTF-8; save the file as UTF-8")))?;
            if !cell.is_empty() {
                fields.insert(name.clone(), Value::from(cell));
            }
        }
        Ok(Some((line, fields)))
    }

    /// Reads a row into `self.row`; its line, or `None` at the end.
    fn advance(&mut self) -> Result<Option<u64>, Trouble> {
        self.room.store(RECORD_BYTES_MOST, Ordering::Relaxed);
        let read = self.rows.read_byte_record(&mut self.row);
        let line = self.row.position().map_or(1, csv::Position::line);
        match read {
            Ok(true) => Ok(Some(line)),
            Ok(false) => Ok(None),
            Err(error) => Err(match error.into_kind() {
                csv::ErrorKind::Io(error) => trouble(error, line),
                other => Trouble::Broken {
                    line,
                    reason: format!("not CSV: {other:?}"),
                },
            }),
        }
    }
}

/// Bytes up to the bound of a record: a quote that is never closed would take the whole file.
struct Bounded {
    bytes: Source,
    room: Arc<AtomicUsize>,
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = self.room.load(Ordering::Relaxed);
        if room == 0 && !self.bytes.fill_buf()?.is_empty() {
            return Err(spoiled(too_long()));
        }
        let most = into.len().min(room);
        let count = self.bytes.read(&mut into[..most])?;
        self.room.store(room - count, Ordering::Relaxed);
        Ok(count)
    }
}
