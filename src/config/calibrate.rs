//! `tokenring calibrate`, from its settings to a plan.
//!
//! In: settings. Out: a [`CalibratePlan`], and what was wrong. Never: looks at the machine.

use std::path::PathBuf;

use super::error::Problems;
use super::flags::{self, Kind, Status};
use super::lex::Settings;
use super::value;
use crate::clock::Nanos;

/// Most streams of one run: each needs a descriptor at both ends.
const STREAMS_MOST: u32 = 1 << 16;

/// What is to be measured on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibratePlan {
    /// Numbers of streams, ascending, each once.
    pub streams: Vec<u32>,
    /// Tokens of each stream; at least 2.
    pub tokens: u32,
    /// From a request to its first token.
    pub time_to_first_token: Nanos,
    /// From a token to the next; above 0.
    pub inter_token_latency: Nanos,
    /// Values of `profile --driver`.
    pub drivers: Vec<&'static str>,
    /// Values of `profile --timestamp-source`.
    pub stamps: Vec<&'static str>,
    /// Values of `profile --wait-mode`; empty where `profile` has no such flag.
    pub wait_modes: Vec<&'static str>,
    /// Runs of each combination.
    pub repeat: u32,
    /// Cores of the workers; empty to choose.
    pub cpus: Vec<usize>,
    /// Cores of the server; empty to choose.
    pub server_cpus: Vec<usize>,
    /// When this is over no further run begins.
    pub limit: Nanos,
    /// Where the results go.
    pub output: PathBuf,
}

/// Reads the plan; what is wrong goes to `problems`.
pub(super) fn plan(settings: &Settings, problems: &mut Problems) -> CalibratePlan {
    let millis = |flag: &str, default: f64| {
        Nanos::from_seconds(settings.number(flag).unwrap_or(default) / 1000.0)
    };
    let count = |flag: &str, default: u32| {
        let given = settings.integer(flag).and_then(|n| u32::try_from(n).ok());
        given.unwrap_or(default)
    };
    let plan = CalibratePlan {
        streams: streams(settings.list("--streams"), problems),
        tokens: count("--tokens", 100),
        time_to_first_token: millis("--ttft", 50.0),
        inter_token_latency: millis("--itl", 10.0),
        drivers: names(settings, "--driver", &["ring", "portable"], problems),
        stamps: names(
            settings,
            "--timestamp-source",
            &["kernel", "user"],
            problems,
        ),
        wait_modes: names(settings, "--wait-mode", wait_modes(), problems),
        repeat: count("--repeat", 1),
        cpus: settings.cores("--cpus").to_vec(),
        server_cpus: settings.cores("--server-cpus").to_vec(),
        limit: Nanos::from_seconds(settings.number("--max-seconds").unwrap_or(1200.0)),
        output: settings
            .text("--output")
            .unwrap_or("artifacts/calibration.json")
            .into(),
    };
    if let Some(core) = plan
        .cpus
        .iter()
        .find(|core| plan.server_cpus.contains(core))
    {
        problems.push(format!(
            "--cpus and --server-cpus both name core {core}; client and server must not share one"
        ));
    }
    plan
}

fn streams(list: &[String], problems: &mut Problems) -> Vec<u32> {
    if list.is_empty() {
        return vec![1, 10, 100, 500, 1000];
    }
    let mut counts = Vec::new();
    for word in list {
        match word.parse() {
            Ok(count) if (1..=STREAMS_MOST).contains(&count) => counts.push(count),
            _ => problems.push(format!(
                "--streams {word:?} is not a whole number from 1 to {STREAMS_MOST}"
            )),
        }
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The names given to `flag`, each once, or all that are `known`.
fn names(
    settings: &Settings,
    flag: &str,
    known: &'static [&'static str],
    problems: &mut Problems,
) -> Vec<&'static str> {
    let given = settings.list(flag);
    if given.is_empty() {
        return known.to_vec();
    }
    let mut chosen = Vec::new();
    for word in given {
        match value::choice(word, known) {
            Some(name) if chosen.contains(&name) => {}
            Some(name) => chosen.push(name),
            None if known.is_empty() => problems.push(format!(
                "{flag} {word:?}: profile has no such flag; leave it out"
            )),
            None => problems.push(format!(
                "{flag} {word:?} is not one of {}",
                known.join(", ")
            )),
        }
    }
    chosen
}

/// What `profile --wait-mode` takes; nothing where there is no such flag.
fn wait_modes() -> &'static [&'static str] {
    let mut rows = flags::profile();
    let row = rows.find(|row| row.names.contains(&"--wait-mode") && row.status == Status::Works);
    match row.map(|row| row.kind) {
        Some(Kind::Choice(names)) => names,
        _ => &[],
    }
}
