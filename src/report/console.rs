//! The tables for people.
//!
//! In: a run's report, a width in columns, the files written. Out: text. Never: a control character of the server's, an escape
//! code, or a number without its unit.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::clock::Nanos;
use crate::metric::{ErrorGroup, Group, Row, Steady, Summary};
use crate::report::number::thousands;
use crate::report::{ArtifactNames, ClientReport, RunReport, escape_controls, tokens};

/// Tables in their printed order, with what they add to the title.
const TABLES: [(Group, &str); 6] = [
    (Group::Trace, ": HTTP Trace"),
    (Group::Effective, ": Effective"),
    (Group::Active, ": Active"),
    (Group::Usage, ": Usage"),
    (Group::Client, ": Client"),
    (Group::Default, ""),
];

/// A header longer than this has its unit on a line of its own.
const HEADER_COLUMNS: usize = 30;

/// Below this a table cannot be laid out.
const COLUMNS_MIN: u16 = 60;

/// Everything that the end of a run prints.
#[must_use]
pub fn render(report: &RunReport, width: u16, files: &[(String, PathBuf)]) -> String {
    let width = width.max(COLUMNS_MIN);
    let summary = &report.profiling;
    let mut out = String::new();
    counts(&mut out, summary, &report.client);
    errors(&mut out, summary, width);
    let name = report.plan.endpoint.kind.facts().title;
    let mut few = false;
    for (group, title) in TABLES {
        if group != Group::Trace || report.plan.output.show_trace_timing {
            few |= metrics(&mut out, summary, group, &format!("{name}{title}"), width);
        }
    }
    few |= steady_state(&mut out, summary, width);
    if few {
        line(
            &mut out,
            "* from fewer samples than this percentile needs (p90: 10, p99: 100)",
        );
    }
    out.push_str(&tokens::lines(&summary.counts));
    for note in report.client.notes.iter().chain(&summary.notes) {
        line(&mut out, &format!("Note: {}", escape_controls(note)));
    }
    if let Some(reason) = &report.incomplete_reason {
        line(
            &mut out,
            &format!("Incomplete: {}", escape_controls(reason)),
        );
    }
    client(&mut out, &report.client);
    line(&mut out, "");
    line(
        &mut out,
        &format!("CLI Command: {}", escape_controls(&report.plan.cli_command)),
    );
    let seconds = summary.window.length().seconds();
    line(&mut out, &format!("Benchmark Duration: {seconds:.2} sec"));
    for (kind, path) in files {
        file(&mut out, kind, path);
    }
    let log = ArtifactNames::new(&report.plan.output).log();
    file(&mut out, "Log File", &log);
    out
}

/// The folder has the model's name in it, which may hold anything.
fn file(out: &mut String, kind: &str, path: &Path) {
    let path = path.display().to_string();
    line(out, &format!("{kind}: {}", escape_controls(&path)));
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn counts(out: &mut String, summary: &Summary, client: &ClientReport) {
    let _ = write!(
        out,
        "Requests: {} sent, {} succeeded, {} failed",
        client.sent, summary.success_count, summary.error_count
    );
    let classes: Vec<String> = summary
        .errors
        .iter()
        .map(|group| format!("{} {}", group.count, escape_controls(&group.details.kind)))
        .collect();
    if !classes.is_empty() {
        let _ = write!(out, " ({})", classes.join(", "));
    }
    let _ = write!(out, ", {} cancelled", summary.cancelled_count);
    if let Some(unsent) = client.unsent {
        let _ = write!(out, ", {unsent} unsent");
    }
    if let Some(skipped) = client.skipped {
        let _ = write!(out, ", {skipped} left out because late");
    }
    out.push('\n');
}

fn table(width: u16, header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(comfy_table::presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(header.to_vec());
    table
}

fn print(out: &mut String, title: &str, table: &Table) {
    let _ = writeln!(out, "\n{title}\n{table}");
}

fn errors(out: &mut String, summary: &Summary, width: u16) {
    if summary.errors.is_empty() {
        return;
    }
    let mut errors = table(width, &["Code", "Type", "Message", "Count"]);
    for group in &summary.errors {
        let details = &group.details;
        errors.add_row(vec![
            details
                .code
                .map_or_else(|| "N/A".to_owned(), |code| code.to_string()),
            escape_controls(&details.kind),
            escape_controls(&details.message),
            group.count.to_string(),
        ]);
    }
    print(out, "tokenring | Error Summary", &errors);
    let mut classes = table(width, &["Class", "What happened", "Count"]);
    for (class, count) in ErrorGroup::classes(&summary.errors) {
        classes.add_row(vec![
            class.name().to_owned(),
            class.words().to_owned(),
            count.to_string(),
        ]);
    }
    print(out, "tokenring | Errors by Class", &classes);
}

/// Prints one group; says whether a percentile was marked.
fn metrics(out: &mut String, summary: &Summary, group: Group, title: &str, width: u16) -> bool {
    let mut rows: Vec<&Row> = summary
        .rows
        .iter()
        .filter(|row| row.metric.group == group && !row.metric.hidden)
        .collect();
    if rows.is_empty() {
        return false;
    }
    rows.sort_by_key(|row| row.metric.order.unwrap_or(u32::MAX));
    let (metrics, few) = stats_table(&rows, width);
    print(out, &format!("tokenring | {title}"), &metrics);
    few
}

/// Prints the steady state, or why there is none; says whether a percentile was marked.
fn steady_state(out: &mut String, summary: &Summary, width: u16) -> bool {
    let state = match &summary.steady {
        None => return false,
        Some(Steady::Absent(reason)) => {
            let reason = escape_controls(reason);
            line(out, &format!("Steady State: none, {reason}"));
            return false;
        }
        Some(Steady::State(state)) => state,
    };
    let mut rows: Vec<&Row> = state.rows.iter().collect();
    rows.sort_by_key(|row| row.metric.order.unwrap_or(u32::MAX));
    let (metrics, few) = stats_table(&rows, width);
    let begin = state
        .window
        .start_ns
        .saturating_sub(summary.window.start_ns);
    let title = format!(
        "tokenring | Steady State: {:.2} sec from {:.2} sec on, {:.1} % of the run, at least {} of {} in flight",
        state.window.length().seconds(),
        Nanos(begin).seconds(),
        100.0 * state.share,
        state.level,
        state.target,
    );
    print(out, &title, &metrics);
    few
}

/// A table of `rows` in their order, and whether a percentile was marked.
fn stats_table(rows: &[&Row], width: u16) -> (Table, bool) {
    let mut few = false;
    let header = ["Metric", "avg", "min", "max", "p99", "p90", "p50", "std"];
    let mut metrics = table(width, &header);
    for row in rows {
        let stats = &row.stats;
        let mut percentile = |value: Option<f64>, needs: u64| {
            let scarce = value.is_some() && stats.count.is_some_and(|count| count < needs);
            few |= scarce;
            format!("{}{}", thousands(value), if scarce { "*" } else { "" })
        };
        metrics.add_row(vec![
            label(row),
            thousands(stats.avg),
            thousands(stats.min),
            thousands(stats.max),
            percentile(stats.p99, 100),
            percentile(stats.p90, 10),
            thousands(stats.p50),
            thousands(stats.std),
        ]);
    }
    for column in metrics.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    (metrics, few)
}

fn label(row: &Row) -> String {
    let metric = row.metric;
    if metric.unit.is_empty() {
        return metric.header.to_owned();
    }
    let long = metric.header.chars().count() > HEADER_COLUMNS;
    let gap = if long { '\n' } else { ' ' };
    format!("{}{gap}({})", metric.header, metric.unit)
}

fn client(out: &mut String, client: &ClientReport) {
    let cores: Vec<String> = client.cpus.iter().map(ToString::to_string).collect();
    let cores = if cores.is_empty() {
        "not pinned".to_owned()
    } else {
        format!("on cores {}", cores.join(", "))
    };
    let _ = writeln!(
        out,
        "Client: {} ({}), {} workers {cores}, timer grain {:.1} us, clock drift {:.3} ppm, clock error {:.1} us",
        client.driver,
        client.driver_reason,
        client.workers,
        client.timer_grain_ns as f64 / 1e3,
        if client.clock_drift_ppm.is_finite() {
            client.clock_drift_ppm
        } else {
            0.0
        },
        client.clock_error_ns as f64 / 1e3,
    );
    let _ = writeln!(
        out,
        "Client: {} content events shared a read with another, {} queue overflows",
        client.coalesced_count, client.overflow_count
    );
    out.push_str(&client.health.lines());
    for (label, value) in &client.facts {
        let _ = writeln!(
            out,
            "{}: {}",
            escape_controls(label),
            escape_controls(value)
        );
    }
}
