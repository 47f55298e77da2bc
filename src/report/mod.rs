//! Numbers for people and for programs.
//!
//! In: summaries and records. Out: console tables and artifact files, one file a format.
//! Never: computes a metric, or leaves half a file behind.

mod artifact;
mod console;
mod health;
mod inputs;
mod log;
mod number;
mod outputs;
mod phases;
mod progress;
mod raw;
mod records;
mod redact;
mod shelf;
mod summary_csv;
mod summary_json;
mod timeslice;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use artifact::ArtifactNames;
pub use console::render as render_console;
pub use health::HealthReport;
pub use inputs::{InputBodies, Inputs, NamedBodies, write as write_inputs};
pub use log::Log;
pub use outputs::OutputsWriter;
pub use progress::{Progress, ProgressState, tell};
pub use raw::RawWriter;
pub use records::{PhaseTag, RecordsWriter};
pub use redact::escape_controls;
pub use shelf::FileShelf;

use crate::config::{PhaseKind, Plan};
use crate::metric::{Slice, Summary};

/// Everything the reports need; filled by the conductor.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// What was asked for.
    pub plan: Arc<Plan>,
    /// 12 hexadecimal digits.
    pub benchmark_id: String,
    /// Root seed in use, drawn or given.
    pub random_seed: u64,
    /// What was measured.
    pub profiling: Summary,
    /// The same slice by slice, where that was asked for.
    pub slices: Option<Vec<Slice>>,
    /// The warmup, if there was one.
    pub warmup: Option<Summary>,
    /// Every phase in order.
    pub phases: Vec<PhaseReport>,
    /// Ended early by a signal or an abort.
    pub was_cancelled: bool,
    /// Why it is not complete.
    pub incomplete_reason: Option<String>,
    /// Bad lines of the dataset file that were left out; `None` unless that was asked for.
    pub bad_lines: Option<u64>,
    /// The client's own doing.
    pub client: ClientReport,
}

/// One phase, as it went.
#[derive(Clone, Debug)]
pub struct PhaseReport {
    /// Name, unique; also its folder.
    pub name: String,
    /// Warmup or profiling.
    pub kind: PhaseKind,
    /// Place among all phases, from 0.
    pub index: usize,
    /// Start, wall clock in ns since the Unix epoch.
    pub start_ns: u64,
    /// End, wall clock in ns since the Unix epoch.
    pub end_ns: u64,
    /// It was cut.
    pub was_cancelled: bool,
    /// Its numbers.
    pub summary: Summary,
}

/// What the client did, and how well: for judging how much of a number is the client's own.
#[derive(Clone, Debug, Default)]
pub struct ClientReport {
    /// `io_uring` or `epoll`.
    pub driver: String,
    /// Why that one.
    pub driver_reason: String,
    /// Worker threads.
    pub workers: usize,
    /// Their cores; empty when not pinned.
    pub cpus: Vec<usize>,
    /// Smallest wait that the timer keeps, ns.
    pub timer_grain_ns: u64,
    /// Drift of the counter against the system's clock, parts per million.
    pub clock_drift_ppm: f64,
    /// Bound on the error of a converted time, ns.
    pub clock_error_ns: u64,
    /// Requests of profiling planned but not sent; `None` where the plan has no number.
    pub unsent: Option<u64>,
    /// Requests of profiling at a rate that were left out because they would have been late; `None` unless the plan says so.
    pub skipped: Option<u64>,
    /// Requests sent in profiling.
    pub sent: u64,
    /// Exchanges that found the recorder's queue full.
    pub overflow_count: u64,
    /// Content events that came in a read with another one.
    pub coalesced_count: u64,
    /// How its threads fared, and what that says of the numbers.
    pub health: HealthReport,
    /// Remarks for the reader.
    pub notes: Vec<String>,
    /// More (label, value) pairs, printed as they are.
    pub facts: Vec<(String, String)>,
}

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file system said no.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl ReportError {
    fn at(path: &Path) -> impl FnOnce(std::io::Error) -> ReportError + '_ {
        |source| ReportError::Write {
            path: path.to_owned(),
            source,
        }
    }
}

/// Writes all files of the end of a run, each whole or not at all; returns (kind, path) of each, in the order written. Streamed
/// files that were finished before are `streamed`, and only listed. The ready marker comes last.
pub fn write_all(
    report: &RunReport,
    inputs: Inputs<'_>,
    streamed: &[(String, PathBuf)],
) -> Result<Vec<(String, PathBuf)>, ReportError> {
    let names = ArtifactNames::new(&report.plan.output);
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    artifact::write_text(&names.csv(), &summary_csv::render(&report.profiling))?;
    files.push(("CSV Export".to_owned(), names.csv()));
    artifact::write_text(&names.json(), &summary_json::render(report))?;
    files.push(("JSON Export".to_owned(), names.json()));
    if let Some(slices) = &report.slices {
        let (csv, json) = (names.timeslices_csv(), names.timeslices_json());
        artifact::write_text(&csv, &timeslice::csv(slices))?;
        let text = timeslice::json(slices, &report.plan.input_config);
        artifact::write_text(&json, &text)?;
        files.push(("Timeslices CSV Export".to_owned(), csv));
        files.push(("Timeslices JSON Export".to_owned(), json));
    }
    if let Inputs::Now(bodies) = inputs {
        write_inputs(&names, bodies)?;
    }
    if !matches!(inputs, Inputs::Never) {
        files.push(("Inputs".to_owned(), names.inputs()));
    }
    if report.phases.len() > 1 {
        phases::write(report, &names)?;
        files.push(("Phase Manifest".to_owned(), names.phase_manifest()));
    }
    files.extend_from_slice(streamed);
    files.push(("Console Export".to_owned(), names.console()));
    artifact::write_text(&names.console(), &render_console(report, 140, &files))?;
    let ready = serde_json::json!({
        "ready": true,
        "was_cancelled": report.was_cancelled,
        "partial": report.was_cancelled || report.incomplete_reason.is_some(),
    });
    artifact::write_text(&names.ready(), &ready.to_string())?;
    Ok(files)
}

#[cfg(test)]
mod tests;
