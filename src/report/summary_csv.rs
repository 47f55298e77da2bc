//! `profile_export_aiperf.csv`.
//!
//! In: a summary. Out: CSV with CRLF, distributions first, single numbers after an empty row, the steady state after another. Never: a
//! unit of its own.

use crate::metric::{Row, Stats, Steady, Summary};
use crate::report::number::{percentiles, two_decimals};

/// The whole file.
pub(super) fn render(summary: &Summary) -> String {
    let mut rows: Vec<&Row> = summary.rows.iter().collect();
    rows.sort_by_key(|r| r.metric.tag);
    let (many, one): (Vec<&Row>, Vec<&Row>) = rows
        .into_iter()
        .partition(|r| percentiles(&r.stats).iter().any(|(_, v)| v.is_some()));
    let mut out = String::new();
    if !many.is_empty() {
        out.push_str("Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std\r\n");
        for row in &many {
            full_row(&mut out, &label(row), &row.stats);
        }
        out.push_str("\r\n");
    }
    out.push_str("Metric,Value\r\n");
    for row in one {
        out.push_str(&label(row));
        out.push(',');
        out.push_str(&two_decimals(row.stats.avg));
        out.push_str("\r\n");
    }
    if let Some(steady) = &summary.steady {
        out.push_str("\r\n");
        steady_state(&mut out, steady);
    }
    out
}

/// A section of its own, at the end, where readers of AIPerf's two do not look.
fn steady_state(out: &mut String, steady: &Steady) {
    let state = match steady {
        Steady::State(state) => state,
        Steady::Absent(reason) => {
            out.push_str("Steady State,Value\r\nReason,");
            out.push_str(&quoted(reason.clone()));
            out.push_str("\r\n");
            return;
        }
    };
    let stats = "avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std";
    out.push_str(&format!("Steady State,{stats}\r\n"));
    let facts = [
        ("Start (ns)", state.window.start_ns.to_string()),
        ("End (ns)", state.window.end_ns.to_string()),
        ("Share (ratio)", two_decimals(Some(state.share))),
        ("Target In Flight", state.target.to_string()),
        ("Least In Flight", state.level.to_string()),
    ];
    for (name, value) in facts {
        out.push_str(&format!("{name},{value}\r\n"));
    }
    for row in &state.rows {
        full_row(out, &label(row), &row.stats);
    }
}

fn full_row(out: &mut String, label: &str, stats: &Stats) {
    let mut cells = vec![label.to_owned()];
    cells.extend([stats.avg, stats.min, stats.max, stats.sum].map(two_decimals));
    cells.extend(percentiles(stats).map(|(_, v)| two_decimals(v)));
    cells.push(two_decimals(stats.std));
    out.push_str(&cells.join(","));
    out.push_str("\r\n");
}

fn label(row: &Row) -> String {
    let label = match row.metric.unit {
        "" | "count" | "requests" => row.metric.header.to_owned(),
        unit => format!("{} ({unit})", row.metric.header),
    };
    quoted(label)
}

fn quoted(label: String) -> String {
    if label.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", label.replace('"', "\"\""))
    } else {
        label
    }
}
