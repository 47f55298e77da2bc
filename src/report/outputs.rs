//! `outputs.json`: the text of every reply of the profiling phase.
//!
//! In: records with their metrics. Out: one JSON file, sorted by session number and turn.
//! Never: holds the texts in memory: they wait in an unnamed temporary file, and 32 bytes per request are kept.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, json};
use uuid::Uuid;

use crate::config::PhaseKind;
use crate::metric::{Metric, Value};
use crate::record::Record;
use crate::report::ReportError;
use crate::report::artifact::{unnamed_beside, write_whole};
use crate::report::records::{PhaseTag, metric_value, request_end_ns};

/// Metrics that stand beside a text.
const METRICS: [&str; 6] = [
    "input_sequence_length",
    "output_token_count",
    "output_sequence_length",
    "request_latency",
    "time_to_first_token",
    "inter_token_latency",
];

/// Writes `outputs.json`.
#[derive(Debug)]
pub struct OutputsWriter {
    path: PathBuf,
    spool: BufWriter<File>,
    spooled: u64,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    number: u64,
    turn: u32,
    length: u32,
    offset: u64,
}

impl OutputsWriter {
    /// Opens the spool beside `path`.
    pub fn create(path: &Path) -> Result<OutputsWriter, ReportError> {
        Ok(OutputsWriter {
            path: path.to_owned(),
            spool: BufWriter::new(unnamed_beside(path)?),
            spooled: 0,
            entries: Vec::new(),
        })
    }

    /// Adds a profiling record; others are left out.
    pub fn write(
        &mut self,
        record: &Record,
        values: &[(&'static Metric, Value)],
        phase: &PhaseTag,
    ) -> Result<(), ReportError> {
        if phase.kind != PhaseKind::Profiling {
            return Ok(());
        }
        let value_of = |tag: &str| values.iter().find(|(metric, _)| metric.tag == tag);
        let metrics: Map<String, serde_json::Value> = METRICS
            .iter()
            .filter_map(|tag| {
                let (metric, value) = value_of(tag)?;
                Some(((*tag).to_owned(), metric_value(metric, value)?))
            })
            .collect();
        let mut entry = json!({
            "session_num": record.id.number,
            "conversation_id": record.conversation_id,
            "turn_index": record.id.turn,
            "x_request_id": Uuid::from_u128(record.request_uuid).to_string(),
            "request_start_ns": record.wall_start_ns,
            "request_end_ns": request_end_ns(record),
            "metrics": metrics,
            "response_text": record.text.as_deref().unwrap_or(""),
        });
        if !record.other_texts.is_empty() {
            let others = record.other_texts.iter();
            let others = others.map(|(index, text)| json!({"choice": index, "text": text}));
            entry["other_response_texts"] = others.collect();
        }
        let text = format!("{entry:#}").replace('\n', "\n    ");
        self.spool
            .write_all(text.as_bytes())
            .map_err(ReportError::at(&self.path))?;
        self.entries.push(Entry {
            number: record.id.number,
            turn: record.id.turn,
            // A body is at most 1 GiB, so a text fits.
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
            offset: self.spooled,
        });
        self.spooled += text.len() as u64;
        Ok(())
    }

    /// Sorts the entries into the final file.
    pub fn finish(mut self) -> Result<PathBuf, ReportError> {
        self.entries.sort_unstable();
        let spool = self
            .spool
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        let mut spool = spool.map_err(ReportError::at(&self.path))?;
        write_whole(&self.path, |file| {
            file.write_all(b"{\n  \"schema_version\": \"1.0\",\n  \"data\": [")?;
            for (index, entry) in self.entries.iter().enumerate() {
                let lead = if index == 0 { "\n    " } else { ",\n    " };
                file.write_all(lead.as_bytes())?;
                spool.seek(SeekFrom::Start(entry.offset))?;
                std::io::copy(&mut (&mut spool).take(u64::from(entry.length)), file)?;
            }
            file.write_all(b"\n  ]\n}")
        })?;
        Ok(self.path)
    }
}
