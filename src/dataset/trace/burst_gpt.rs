//! The `burst_gpt_trace` format: CSV, each row one request of the BurstGPT traces.
//!
//! In: rows with `Timestamp` (seconds), `Request tokens` and `Response tokens`. Out: sessions of one turn. Never: stops at a bad row; it is left
//! out, and counted.

use std::path::Path;

use super::{Asked, INPUT_TOKENS_MOST, Trace};
use crate::dataset::seed::{child_seed, numbered};
use crate::dataset::synthetic::conversation_id;
use crate::dataset::{Conversation, Corpus, DatasetError, Turn};

/// Columns that are read, wherever they stand.
const COLUMNS: [&str; 3] = ["Timestamp", "Request tokens", "Response tokens"];

/// Bad rows that are told of by their line.
const TOLD_MAX: usize = 3;

impl Trace {
    /// Reads rows. `path` is for messages only. Turns have no model yet.
    pub(super) fn rows(
        &mut self,
        bytes: &[u8],
        path: &Path,
        seed: u64,
    ) -> Result<(Corpus, Vec<String>), DatasetError> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
        let places = places(&mut reader, path)?;
        let ids = child_seed(seed, "dataset.conversation.id");
        let mut corpus = Corpus::default();
        let mut bad = Vec::new();
        let mut record = csv::ByteRecord::new();
        loop {
            let line = reader.position().line();
            match reader.read_byte_record(&mut record) {
                Ok(true) => {}
                // Bytes in memory can always be read.
                Ok(false) | Err(_) => break,
            }
            let line = record.position().map_or(line, csv::Position::line);
            let Some(row) = row(&record, places) else {
                bad.push(line);
                continue;
            };
            let index = corpus.conversations.len() as u64;
            corpus.conversations.push(Conversation {
                id: conversation_id(&mut numbered(ids, index)),
                turns: vec![row.turn(line)],
                ..Conversation::default()
            });
            self.asked.push(Asked {
                line,
                tokens: row.input,
                ids: Vec::new(),
            });
        }
        if corpus.conversations.is_empty() {
            return Err(DatasetError::Empty(path.to_owned()));
        }
        Ok((corpus, note(&bad, path).into_iter().collect()))
    }
}

/// Where the columns stand that are read.
fn places(reader: &mut csv::Reader<&[u8]>, path: &Path) -> Result<[usize; 3], DatasetError> {
    let wrong = |sentence: String| {
        let path = path.display();
        DatasetError::Lines(vec![format!("{path}:1: {sentence}")])
    };
    let header = reader
        .headers()
        .map_err(|error| wrong(format!("not CSV: {error}")))?;
    let mut places = [0; 3];
    for (name, place) in COLUMNS.iter().zip(&mut places) {
        let found = header
            .iter()
            .position(|cell| cell.trim_start_matches('\u{feff}').trim() == *name);
        *place = found.ok_or_else(|| {
            let columns = COLUMNS.join(", ");
            wrong(format!(
                "column {name}: missing; the first row names the columns {columns}"
            ))
        })?;
    }
    Ok(places)
}

fn note(bad: &[u64], path: &Path) -> Option<String> {
    if bad.is_empty() {
        return None;
    }
    let told: Vec<String> = bad.iter().take(TOLD_MAX).map(u64::to_string).collect();
    Some(format!(
        "{}: {} rows were left out, since one of their {} is no number from 0 up (tokens: from 1): line {}{}",
        path.display(),
        bad.len(),
        COLUMNS.join(", "),
        told.join(", "),
        if bad.len() > told.len() { ", ..." } else { "" }
    ))
}

/// Seconds, prompt tokens, output tokens.
struct Row {
    seconds: f64,
    input: u32,
    output: u32,
}

fn row(record: &csv::ByteRecord, places: [usize; 3]) -> Option<Row> {
    let cell = |at: usize| std::str::from_utf8(record.get(at)?).ok().map(str::trim);
    let seconds: f64 = cell(places[0])?.parse().ok()?;
    let input: u32 = cell(places[1])?.parse().ok()?;
    let output: u32 = cell(places[2])?.parse().ok()?;
    let right = seconds.is_finite()
        && seconds >= 0.0
        && (1..=INPUT_TOKENS_MOST).contains(&u64::from(input))
        && output > 0;
    right.then_some(Row {
        seconds,
        input,
        output,
    })
}

impl Row {
    fn turn(&self, line: u64) -> Turn {
        Turn {
            line,
            role: "user".to_owned(),
            max_tokens: Some(self.output),
            timestamp_ms: Some(self.seconds * 1e3),
            ..Turn::default()
        }
    }
}
