//! `profile_export_aiperf.csv`.
//!
//! In: a summary. Out: CSV with CRLF, distributions first, single numbers after an empty row. Never: a unit of its own.

use crate::metric::{Row, Summary};
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
            let stats = &row.stats;
            let mut cells = vec![label(row)];
            cells.extend([stats.avg, stats.min, stats.max, stats.sum].map(two_decimals));
            cells.extend(percentiles(stats).map(|(_, v)| two_decimals(v)));
            cells.push(two_decimals(stats.std));
            out.push_str(&cells.join(","));
            out.push_str("\r\n");
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
    out
}

fn label(row: &Row) -> String {
    let label = match row.metric.unit {
        "" | "count" | "requests" => row.metric.header.to_owned(),
        unit => format!("{} ({unit})", row.metric.header),
    };
    if label.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", label.replace('"', "\"\""))
    } else {
        label
    }
}
