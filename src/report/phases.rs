//! `phase_manifest.json` and the files of each phase.
//!
//! In: a run's report. Out: a folder a phase. Never: a path outside the artifact folder.

use serde_json::json;

use crate::config::PhaseKind;
use crate::report::artifact::{ArtifactNames, write_text};
use crate::report::{ReportError, RunReport, summary_csv, summary_json};

/// Writes every phase's files, then the manifest that names them.
pub(super) fn write(report: &RunReport, names: &ArtifactNames) -> Result<(), ReportError> {
    let mut phases = Vec::new();
    let mut profiling_index = 0;
    for phase in &report.phases {
        let folder = format!("phases/{}", phase.name.replace(['/', '\\', '.'], "_"));
        let csv = format!("{folder}/profile_export_aiperf.csv");
        let json = format!("{folder}/profile_export_aiperf.json");
        let summary = &phase.summary;
        write_text(&names.directory().join(&csv), &summary_csv::render(summary))?;
        let text = summary_json::render_summary(report, summary, None, phase.was_cancelled);
        write_text(&names.directory().join(&json), &text)?;
        let profiling = (phase.kind == PhaseKind::Profiling).then_some(profiling_index);
        profiling_index += usize::from(profiling.is_some());
        // Keys sorted, as AIPerf writes them.
        phases.push(json!({
            "end_ns": phase.end_ns,
            "error_request_count": summary.error_count,
            "error_summary": summary_json::errors(&summary.errors),
            "metrics_csv": csv,
            "metrics_json": json,
            "phase_index": phase.index,
            "phase_kind": phase.kind.name(),
            "phase_name": phase.name,
            "profiling_index": profiling,
            "start_ns": phase.start_ns,
            "successful_request_count": summary.success_count,
            "total_request_count": summary.success_count + summary.error_count,
            "was_cancelled": phase.was_cancelled,
        }));
    }
    let manifest = json!({"phases": phases, "schema_version": 1});
    // The one file with nulls: a warmup's `profiling_index` is one.
    write_text(&names.phase_manifest(), &format!("{manifest:#}"))
}
