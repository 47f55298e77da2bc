//! `profile_export_aiperf_timeslices.csv` and `.json`.
//!
//! In: slices. Out: AIPerf's two files. Never: a slice that nothing happened in, which AIPerf leaves out as well: their numbers count those
//! that are there.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::metric::{Row, Slice};
use crate::report::number::{percentiles, two_decimals};
use crate::report::summary_json::{metric, pretty};

/// A row for each slice, metric (by tag) and statistic.
pub(super) fn csv(slices: &[Slice]) -> String {
    let mut out = String::from("Timeslice,Start_NS,End_NS,Metric,Unit,Stat,Value\r\n");
    for (number, slice) in slices.iter().enumerate() {
        let (start, end) = (slice.window.start_ns, slice.window.end_ns);
        for row in by_tag(slice) {
            let (tag, unit) = (row.metric.tag, row.metric.unit);
            let stats = &row.stats;
            let most = [("avg", stats.avg), ("min", stats.min), ("max", stats.max)];
            let most = most.into_iter().chain([("sum", stats.sum)]);
            let all = most.chain(percentiles(stats)).chain([("std", stats.std)]);
            for (stat, value) in all.filter(|(_, value)| value.is_some()) {
                let value = two_decimals(value);
                let _ = write!(
                    out,
                    "{number},{start},{end},{tag},{unit},{stat},{value}\r\n"
                );
            }
        }
    }
    out
}

/// An object for each slice. One that is shorter than the others says that it is not complete.
pub(super) fn json(slices: &[Slice], input_config: &Value) -> String {
    let slices = slices.iter().map(|slice| {
        let mut object = Map::new();
        object.insert("start_ns".to_owned(), json!(slice.window.start_ns));
        object.insert("end_ns".to_owned(), json!(slice.window.end_ns));
        if !slice.is_complete {
            object.insert("is_complete".to_owned(), json!(false));
        }
        for row in &slice.rows {
            let value = metric(row.metric.unit, &row.stats);
            object.insert(row.metric.tag.to_owned(), value);
        }
        Value::Object(object)
    });
    let slices: Vec<Value> = slices.collect();
    pretty(json!({"timeslices": slices, "input_config": input_config}))
}

fn by_tag(slice: &Slice) -> Vec<&Row> {
    let mut rows: Vec<&Row> = slice.rows.iter().collect();
    rows.sort_by_key(|row| row.metric.tag);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::registry::find;
    use crate::metric::{Stats, Window};

    fn row(tag: &str, stats: Stats) -> Option<Row> {
        let metric = find(tag)?;
        Some(Row { metric, stats })
    }

    fn slices() -> Vec<Slice> {
        let spread = Stats {
            avg: Some(2.0),
            max: Some(3.5),
            p50: Some(1.25),
            std: Some(0.5),
            count: Some(2),
            ..Stats::default()
        };
        let slice = |start_ns, end_ns, is_complete, rows: [Option<Row>; 2]| Slice {
            window: Window { start_ns, end_ns },
            is_complete,
            rows: rows.into_iter().flatten().collect(),
        };
        vec![
            slice(
                10,
                20,
                true,
                [
                    row("request_latency", spread),
                    row("request_count", Stats::scalar(2.0)),
                ],
            ),
            slice(
                40,
                45,
                false,
                [row("request_count", Stats::scalar(1.0)), None],
            ),
        ]
    }

    #[test]
    fn the_csv_has_a_row_for_each_statistic() {
        let expected = "Timeslice,Start_NS,End_NS,Metric,Unit,Stat,Value\r\n\
                        0,10,20,request_count,requests,avg,2.00\r\n\
                        0,10,20,request_latency,ms,avg,2.00\r\n\
                        0,10,20,request_latency,ms,max,3.50\r\n\
                        0,10,20,request_latency,ms,p50,1.25\r\n\
                        0,10,20,request_latency,ms,std,0.50\r\n\
                        1,40,45,request_count,requests,avg,1.00\r\n";
        assert_eq!(csv(&slices()), expected);
    }

    #[test]
    fn the_json_says_of_a_short_slice_that_it_is_not_complete() {
        let text = json(&slices(), &json!({"models": {}}));
        let parsed: Value = serde_json::from_str(&text).unwrap_or_default();
        let one = json!({"unit": "requests", "avg": 1.0});
        let two = json!({"unit": "requests", "avg": 2.0});
        let spread =
            json!({"unit": "ms", "avg": 2.0, "p50": 1.25, "max": 3.5, "std": 0.5, "count": 2});
        let expected = json!({
            "timeslices": [
                {"start_ns": 10, "end_ns": 20, "request_latency": spread, "request_count": two},
                {"start_ns": 40, "end_ns": 45, "is_complete": false, "request_count": one},
            ],
            "input_config": {"models": {}},
        });
        assert_eq!(parsed, expected);
    }
}
