//! The results, for people and for programs.
//!
//! In: samples by driver, stamps, waiting and number of streams. Out: a table, and JSON in a file that is whole or not there. Never: a
//! number that `sample` did not compute.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use comfy_table::{ContentArrangement, Table};
use serde_json::{Value, json};

use super::sample::{Sample, Spread, medians};
use super::{CalibrateError, Outcome, io};
use crate::config::CalibratePlan;

/// One way of measuring. A further flag is a further field with its line in `flags` below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combination {
    /// `--driver`.
    pub driver: &'static str,
    /// `--timestamp-source`.
    pub stamps: &'static str,
    /// `--wait-mode`, where there is such a flag.
    pub wait_mode: Option<&'static str>,
}

impl Combination {
    /// All that the plan asks for.
    fn all(plan: &CalibratePlan) -> Vec<Combination> {
        let wait_modes: Vec<Option<&'static str>> = match plan.wait_modes.as_slice() {
            [] => vec![None],
            modes => modes.iter().copied().map(Some).collect(),
        };
        let mut all = Vec::new();
        for driver in &plan.drivers {
            for stamps in &plan.stamps {
                all.extend(wait_modes.iter().map(|&wait_mode| Combination {
                    driver,
                    stamps,
                    wait_mode,
                }));
            }
        }
        all
    }

    /// Flags of `profile` with their values.
    pub(super) fn flags(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let wait_mode = self.wait_mode.map(|mode| ("--wait-mode", mode));
        [
            ("--driver", self.driver),
            ("--timestamp-source", self.stamps),
        ]
        .into_iter()
        .chain(wait_mode)
    }

    /// For the progress.
    pub(super) fn words(&self, streams: u32) -> String {
        format!(
            "{streams} streams, {} driver, {} stamps{}",
            self.driver,
            self.stamps,
            self.wait_mode
                .map(|mode| format!(", waiting by {mode}"))
                .unwrap_or_default()
        )
    }
}

/// One combination at one number of streams.
#[derive(Clone, Debug)]
pub struct Row {
    /// How it was measured.
    pub combination: Combination,
    /// How many streams at once.
    pub streams: u32,
    /// One for each run that came to its end.
    pub samples: Vec<Sample>,
    /// Why there will be no further one.
    pub trouble: Option<String>,
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub struct Results {
    /// By streams, then by combination.
    pub rows: Vec<Row>,
    scenario: Value,
    incomplete_reason: Option<String>,
}

impl Results {
    /// A row for each number of streams and combination, without a sample.
    #[must_use]
    pub fn new(plan: &CalibratePlan, cpus: &[usize], server_cpus: &[usize]) -> Results {
        let combinations = Combination::all(plan);
        let rows = plan.streams.iter().flat_map(|&streams| {
            combinations.iter().map(move |&combination| Row {
                combination,
                streams,
                samples: Vec::new(),
                trouble: None,
            })
        });
        Results {
            rows: rows.collect(),
            scenario: json!({
                "streams": plan.streams,
                "tokens": plan.tokens,
                "ttft_ms": plan.time_to_first_token.millis(),
                "itl_ms": plan.inter_token_latency.millis(),
                "repeat": plan.repeat,
                "cpus": cpus,
                "server_cpus": server_cpus,
            }),
            incomplete_reason: None,
        }
    }

    /// Says why some runs are missing.
    pub fn cut(&mut self, reason: &str) {
        self.incomplete_reason = Some(reason.to_owned());
    }

    /// Prints the table and writes the file.
    pub(super) fn publish(&self, output: &Path) -> Result<Outcome, CalibrateError> {
        let table = self.table();
        // A reader that closed its end early has seen what it wanted.
        let _ = std::io::stdout().write_all(table.as_bytes());
        let what = format!("--output {}", output.display());
        let folder = output
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let mut file =
            tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(io(&what))?;
        writeln!(file, "{:#}", self.json()).map_err(io(&what))?;
        file.persist(output)
            .map_err(|error| io(&what)(error.error))?;
        tell(&format!("Results: {}", output.display()));
        Ok(if self.is_flawless() {
            Outcome::Complete
        } else {
            Outcome::Flawed
        })
    }

    /// Every row has its samples or was refused, some row has one, and no event was lost.
    fn is_flawless(&self) -> bool {
        let lost = |row: &Row| row.samples.iter().any(|sample| sample.lost > 0);
        // A combination that this machine refuses fails at every number of streams.
        let failed = |row: &Row| {
            let alike = |other: &Row| other.combination == row.combination;
            row.trouble.is_some()
                && self
                    .rows
                    .iter()
                    .any(|other| alike(other) && other.trouble.is_none())
        };
        self.incomplete_reason.is_none()
            && !self.rows.iter().any(failed)
            && self.rows.iter().any(|row| !row.samples.is_empty())
            && !self.rows.iter().any(lost)
    }

    /// The most streams that stay `trusted` for each combination, all lower numbers included; `None` when even the least does not,
    /// or the client gives no verdict.
    fn most_trusted(&self) -> Vec<(Combination, Option<u32>)> {
        let mut most: Vec<(Combination, Option<u32>, bool)> = Vec::new();
        for row in &self.rows {
            let verdict = medians(&row.samples).and_then(|sample| sample.verdict);
            let trusted = verdict.as_deref() == Some("trusted");
            match most.iter_mut().find(|entry| entry.0 == row.combination) {
                Some(entry) if entry.2 && trusted => entry.1 = Some(row.streams),
                Some(entry) => entry.2 = false,
                None => most.push((row.combination, trusted.then_some(row.streams), trusted)),
            }
        }
        most.into_iter()
            .map(|(combination, streams, _)| (combination, streams))
            .collect()
    }

    /// The table for people, and what must be said beside it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(comfy_table::presets::UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(HEADER.to_vec());
        for row in &self.rows {
            table.add_row(cells(row));
        }
        let mut text = format!(
            "Errors of our stamps against the server's log, in us; medians of the runs\n{table}\n"
        );
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        for (combination, streams) in self.most_trusted() {
            let most = streams.map_or_else(|| "-".to_owned(), |streams| streams.to_string());
            line(format!(
                "Most streams that stay trusted, {} driver, {} stamps, {}: {most}",
                combination.driver,
                combination.stamps,
                combination.wait_mode.unwrap_or("-")
            ));
        }
        let lost: u64 = self
            .rows
            .iter()
            .flat_map(|row| &row.samples)
            .map(|s| s.lost)
            .sum();
        if lost > 0 {
            line(format!("Lost: {lost} events were sent and have no stamp"));
        }
        let mut troubles: Vec<&String> = self
            .rows
            .iter()
            .filter_map(|r| r.trouble.as_ref())
            .collect();
        troubles.sort_unstable();
        troubles.dedup();
        for trouble in troubles {
            line(format!(
                "Not measured: {}",
                trouble.trim_start_matches("Error: ")
            ));
        }
        if let Some(reason) = &self.incomplete_reason {
            line(format!("Partial: {reason}"));
        }
        text
    }

    /// Everything for programs; lengths in nanoseconds unless the key says otherwise.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(row_json).collect();
        let trusted = self
            .most_trusted()
            .into_iter()
            .map(|(combination, streams)| {
                json!({
                    "driver": combination.driver,
                    "timestamp_source": combination.stamps,
                    "wait_mode": combination.wait_mode,
                    "streams": streams,
                })
            });
        json!({
            "tokenring_version": env!("CARGO_PKG_VERSION"),
            "is_complete": self.incomplete_reason.is_none(),
            "incomplete_reason": self.incomplete_reason,
            "scenario": self.scenario,
            "rows": rows,
            "highest_trusted": trusted.collect::<Vec<_>>(),
        })
    }
}

#[rustfmt::skip]
const HEADER: [&str; 17] = [
    "Streams", "Driver", "Stamps", "Wait", "p50", "p99", "p99.9", "max", "TTFT p99",
    "ITL sd", "server's", "added", "Server late p50/p99/p99.9/max", "CPU ns/token", "Shared", "Lost", "Verdict",
];

fn cells(row: &Row) -> Vec<String> {
    let combination = &row.combination;
    let mut cells = vec![
        row.streams.to_string(),
        combination.driver.to_owned(),
        combination.stamps.to_owned(),
        combination.wait_mode.unwrap_or("-").to_owned(),
    ];
    let Some(sample) = medians(&row.samples) else {
        cells.resize(HEADER.len(), "-".to_owned());
        return cells;
    };
    let us = |nanos: i64| format!("{:.1}", nanos as f64 / 1e3);
    let real_us = |nanos: f64| format!("{:.1}", nanos / 1e3);
    let (error, late) = (&sample.stamp_error, &sample.server_late);
    cells.extend(
        [
            error.p50,
            error.p99,
            error.p999,
            error.max,
            sample.ttft_error.p99,
        ]
        .map(us),
    );
    cells.extend([sample.itl_sd, sample.server_itl_sd, sample.gap_error_sd].map(real_us));
    cells.push(
        [late.p50, late.p99, late.p999, late.max]
            .map(us)
            .join(" / "),
    );
    let cpu = sample.cpu_ns_per_token;
    cells.push(cpu.map_or_else(|| "-".to_owned(), |nanos| format!("{nanos:.0}")));
    cells.push(sample.shared.to_string());
    cells.push(sample.lost.to_string());
    cells.push(sample.verdict.unwrap_or_else(|| "-".to_owned()));
    cells
}

fn row_json(row: &Row) -> Value {
    let combination = &row.combination;
    let mut value = json!({
        "streams": row.streams,
        "driver": combination.driver,
        "timestamp_source": combination.stamps,
        "wait_mode": combination.wait_mode,
        "runs": row.samples.len(),
        "trouble": row.trouble,
    });
    if let Some(sample) = medians(&row.samples) {
        value["median"] = sample_json(&sample);
        value["each"] = row.samples.iter().map(sample_json).collect();
    }
    value
}

fn sample_json(sample: &Sample) -> Value {
    json!({
        "events": sample.events,
        "events_per_s": sample.rate,
        "lost_events": sample.lost,
        "shared_events": sample.shared,
        "stamp_error_ns": spread(&sample.stamp_error),
        "ttft_error_ns": spread(&sample.ttft_error),
        "itl_sd_ns": sample.itl_sd,
        "server_itl_sd_ns": sample.server_itl_sd,
        "itl_sd_beyond_server_ns": sample.itl_sd - sample.server_itl_sd,
        "gap_error_sd_ns": sample.gap_error_sd,
        "server_late_ns": spread(&sample.server_late),
        "cpu_ns_per_token": sample.cpu_ns_per_token,
        "verdict": sample.verdict,
    })
}

fn spread(spread: &Spread) -> Value {
    json!({
        "min": spread.min,
        "p50": spread.p50,
        "p99": spread.p99,
        "p999": spread.p999,
        "max": spread.max,
    })
}

/// Makes the folder that `output` will lie in.
pub(super) fn make_folder(output: &Path) -> Result<(), CalibrateError> {
    let what = format!("--output {}", output.display());
    match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(io(&what))
        }
        _ => Ok(()),
    }
}

/// Says something beside the results.
pub(super) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
