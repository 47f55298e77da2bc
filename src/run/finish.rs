//! The end of a run: sums become summaries, summaries become files and a table.
//!
//! In: what the workers and the recorder left. Out: artifacts, the table, an [`Ending`]. Never: hides that a run is partial, or that
//! a request has no record.

use std::io::Write;
use std::sync::Arc;

use crate::config::{DatasetSource, LogLevel, PhaseKind, Plan, SlicePlan};
use crate::metric::health::Level;
use crate::metric::{Accumulator, Summary};
use crate::report::{self, Log, PhaseReport, RunReport};

use super::client;
use super::cores::Cores;
use super::inputs;
use super::prepare::Prepared;
use super::{Ending, Run, RunError};

/// Writes and prints everything.
pub(super) fn finish(
    prepared: &Prepared,
    cores: &Cores,
    log: &Log,
    mut run: Run,
) -> Result<Ending, RunError> {
    let sums = std::mem::take(&mut run.recorded.accumulators);
    let phases = prepared.material.plan.phases.iter().zip(sums);
    let summaries = phases.map(|(phase, sums)| summary_of(phase.kind, sums, &run));
    let summaries: Vec<Summary> = summaries.collect();
    let report = report_of(prepared, cores, &run, &summaries);
    // A full disk must not cost the numbers too: without files, the table is all there is.
    let written = inputs::with(prepared, |inputs| {
        report::write_all(&report, inputs, &run.recorded.files)
    });
    let files = written.as_deref().unwrap_or_default();
    let table = report::render_console(&report, console_width(), files);
    // A reader that closed its end early (`| head`) has seen what it wanted; the files are written.
    let _ = std::io::stdout().write_all(table.as_bytes());
    if let Some(reason) = &report.incomplete_reason {
        log.line(LogLevel::Warning, &format!("incomplete: {reason}"));
    }
    if let Some(error) = &run.recorded.write_error {
        log.line(LogLevel::Error, &error.to_string());
        report::tell(&format!("Error: {error}"));
    }
    if report.client.sent == 0 && !report.was_cancelled {
        let reason = "no request was sent: the first one would have been due after the run's end; give a longer --benchmark-duration or a higher --request-rate";
        log.line(LogLevel::Error, reason);
        report::tell(&format!("Error: {reason}"));
    }
    written?;
    log.finish();
    if is_distrusted(&report) {
        let level = report.client.health.verdict.level.name();
        report::tell(&format!(
            "Error: --require-trusted: the client's own health is judged {level}; the table says why"
        ));
    }
    Ok(match () {
        () if report.profiling.success_count == 0 => Ending::NothingSucceeded,
        () if report.was_cancelled => Ending::Partial,
        () if run.recorded.write_error.is_some() => Ending::FilesIncomplete,
        () if is_distrusted(&report) => Ending::NotTrusted,
        () => Ending::Complete,
    })
}

/// What a phase came to, with the requests that were left out.
fn summary_of(kind: PhaseKind, mut sums: Accumulator, run: &Run) -> Summary {
    let counts = &run.workers.counts;
    let leftover = match kind {
        PhaseKind::Warmup => counts.warmup,
        PhaseKind::Profiling => counts.profiling,
    };
    if let Some(due) = leftover.last_skipped {
        sums.left_out(leftover.skipped, run.calibration.wall_ns(due));
    }
    sums.summary()
}

fn report_of(prepared: &Prepared, cores: &Cores, run: &Run, summaries: &[Summary]) -> RunReport {
    let plan = &prepared.material.plan;
    let reason = incomplete_reason(run);
    let partial = reason.is_some();
    let of_kind = |kind| {
        let index = plan.phases.iter().position(|phase| phase.kind == kind)?;
        summaries.get(index).cloned()
    };
    let profiling = of_kind(PhaseKind::Profiling).unwrap_or_default();
    let mut client = client::report(plan, cores, run, &profiling);
    client.sent = ended(&profiling);
    let recorded: u64 = summaries.iter().map(ended).sum();
    if recorded != run.workers.counts.sent && run.failure.is_none() {
        client.notes.push(format!(
            "{} requests were sent, but {recorded} were recorded: please report this defect",
            run.workers.counts.sent
        ));
    }
    if run.recorded.slices_cut {
        let most = SlicePlan::MOST;
        client.notes.push(format!(
            "--slice-duration: only the first {most} slices are kept; what came after them is in the run's metrics and in no slice"
        ));
    }
    RunReport {
        plan: Arc::clone(plan),
        benchmark_id: format!("{:012x}", rand::random::<u64>() >> 16),
        random_seed: prepared.material.seed,
        warmup: of_kind(PhaseKind::Warmup),
        phases: phase_reports(plan, summaries, partial),
        profiling,
        slices: run.recorded.slices.clone(),
        was_cancelled: partial,
        incomplete_reason: reason,
        bad_lines: skipped(prepared),
        client,
    }
}

/// Bad lines left out of the dataset, where that was asked for.
fn skipped(prepared: &Prepared) -> Option<u64> {
    let material = &prepared.material;
    let DatasetSource::File(file) = &material.plan.dataset.source else {
        return None;
    };
    file.skip_bad_lines.then_some(material.corpus.bad_lines)
}

/// `--require-trusted` was given, and the client is not.
fn is_distrusted(report: &RunReport) -> bool {
    report.plan.workers.require_trusted && report.client.health.verdict.level != Level::Trusted
}

/// A phase was cut if the run was, and it was the last that sent anything, or would have followed.
fn phase_reports(plan: &Plan, summaries: &[Summary], partial: bool) -> Vec<PhaseReport> {
    let last_begun = summaries
        .iter()
        .rposition(|summary| ended(summary) > 0)
        .unwrap_or(0);
    let phases = plan.phases.iter().zip(summaries).enumerate();
    phases
        .map(|(index, (phase, summary))| PhaseReport {
            name: phase.kind.name().to_owned(),
            kind: phase.kind,
            index,
            start_ns: summary.window.start_ns,
            end_ns: summary.window.end_ns,
            was_cancelled: partial && index >= last_begun,
            summary: summary.clone(),
        })
        .collect()
}

/// Requests of a phase that ended, however: all that were sent.
fn ended(summary: &Summary) -> u64 {
    summary.success_count + summary.error_count + summary.cancelled_count
}

fn incomplete_reason(run: &Run) -> Option<String> {
    let signal = run.interrupted.then(|| "stopped by a signal".to_owned());
    run.failure
        .clone()
        .or_else(|| run.recorded.aborted.clone())
        .or(signal)
}

/// Columns of the terminal, 140 where there is none.
fn console_width() -> u16 {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| width.0);
    columns.or_else(terminal).unwrap_or(140)
}
