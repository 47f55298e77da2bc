//! Flags of files, of the screen and of threads.
//!
//! In: settings and the other parts of the plan. Out: [`OutputPlan`] and [`WorkerPlan`]. Never: makes a folder.

use std::path::PathBuf;

use super::dialect::EndpointKind;
use super::driver::{DriverKind, StampKind, WaitKind, WaitPlan};
use super::error::Problems;
use super::lex::Settings;
use super::load::stimulus;
use super::plan::{ExportLevel, LogLevel, OutputPlan, PhasePlan, UiKind, WorkerPlan};
use crate::clock::Nanos;

/// Seconds between live lines, as AIPerf has them away from its dashboard.
const STATS_SECONDS_DEFAULT: f64 = 30.0;

/// Endings that AIPerf strips from `--profile-export-prefix`, longest first.
const ENDINGS: &[&str] = &[
    "_server_metrics.parquet",
    "_server_metrics.jsonl",
    "_server_metrics.json",
    "_server_metrics.csv",
    "_network_latency.jsonl",
    "_gpu_telemetry.jsonl",
    "_timeslices.csv",
    "_timeslices.json",
    "_console.txt",
    "_raw.jsonl",
    ".parquet",
    ".csv",
    ".jsonl",
    ".json",
];

/// Reads everything about files and the screen.
pub(super) fn output(
    settings: &Settings,
    models: &[String],
    kind: EndpointKind,
    profiling: &PhasePlan,
    problems: &mut Problems,
) -> OutputPlan {
    let directory = match settings.text("--output-artifact-dir") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from("artifacts").join(run_name(models, kind, profiling)),
    };
    let loud = settings.given("--verbose") || settings.given("--extra-verbose");
    let stats = settings
        .number("--stats-interval")
        .unwrap_or(STATS_SECONDS_DEFAULT);
    OutputPlan {
        directory,
        prefix: prefix(settings, problems),
        level: match settings.choice("--export-level") {
            Some("summary") => ExportLevel::Summary,
            Some("raw") => ExportLevel::Raw,
            _ => ExportLevel::Records,
        },
        outputs_json: settings.given("--export-outputs-json"),
        http_trace: settings.given("--export-http-trace"),
        show_trace_timing: settings.given("--show-trace-timing"),
        ui: match settings.choice("--ui-type") {
            Some("none") if !loud => UiKind::None,
            _ => UiKind::Simple,
        },
        log_level: log_level(settings),
        stats_interval: (stats > 0.0).then(|| Nanos::from_seconds(stats)),
        slices: super::slices::slices(settings, problems),
    }
}

/// `MODEL-openai-TYPE-STIMULUS`.
fn run_name(models: &[String], kind: EndpointKind, profiling: &PhasePlan) -> String {
    let model = models.first().map_or("", String::as_str).replace('/', "_");
    let several = if models.len() > 1 { "_multi" } else { "" };
    format!(
        "{model}{several}-openai-{}-{}",
        kind.name(),
        stimulus(profiling)
    )
}

fn prefix(settings: &Settings, problems: &mut Problems) -> Option<String> {
    let given = settings.text("--profile-export-prefix")?;
    let spelling = settings.spelling("--profile-export-prefix");
    let stripped = ENDINGS
        .iter()
        .find_map(|ending| given.strip_suffix(ending))
        .unwrap_or(given);
    if stripped.contains('/') || [".", "..", ""].contains(&stripped) {
        problems.push(format!("{spelling} {given:?} is no file name; give a base name here and the folder with --artifact-dir"));
    }
    Some(stripped.to_owned())
}

fn log_level(settings: &Settings) -> LogLevel {
    if settings.given("--extra-verbose") {
        return LogLevel::Trace;
    }
    if settings.given("--verbose") {
        return LogLevel::Debug;
    }
    match settings.choice("--log-level") {
        Some("trace") => LogLevel::Trace,
        Some("debug") => LogLevel::Debug,
        Some("warning") => LogLevel::Warning,
        Some("error" | "critical") => LogLevel::Error,
        _ => LogLevel::Info,
    }
}

/// Threads, cores, and how they reach the kernel.
pub(super) fn workers(settings: &Settings, problems: &mut Problems) -> WorkerPlan {
    let driver = match settings.choice("--driver") {
        Some("ring") => DriverKind::Ring,
        Some("portable") => DriverKind::Portable,
        _ => DriverKind::Auto,
    };
    let stamps = match settings.choice("--timestamp-source") {
        Some("user") => Some(StampKind::User),
        Some("kernel") => Some(StampKind::Kernel),
        Some("nic") => {
            problems.push("--timestamp-source nic cannot be used: it needs a network card that stamps what it receives and keeps its clock in step with the system's, and a reader of such stamps, which is not there yet; use --timestamp-source kernel");
            None
        }
        _ => None,
    };
    let wait = waiting(settings);
    if driver == DriverKind::Portable && wait.mode == WaitKind::Spin {
        problems.push("--wait-mode spin needs the ring, and --driver portable has none; use --wait-mode hybrid, or leave out --driver");
    }
    let windowed = wait.window.is_some_and(|window| window.0 > 0);
    if windowed && stamps == Some(StampKind::User) {
        problems.push("--reap-window-us leaves reads unread, which --timestamp-source user would count as the server's time; leave one of them out");
    }
    WorkerPlan {
        max: settings.size("--workers-max"),
        cpus: settings.cores("--cpus").to_vec(),
        driver,
        stamps,
        wait,
        require_trusted: settings.given("--require-trusted"),
    }
}

fn waiting(settings: &Settings) -> WaitPlan {
    let mode = match settings.choice("--wait-mode") {
        Some("sleep") => WaitKind::Sleep,
        Some("spin") => WaitKind::Spin,
        _ => WaitKind::Hybrid,
    };
    let window = settings.integer("--reap-window-us");
    let fallback = WaitPlan::default();
    WaitPlan {
        mode,
        spin: settings
            .number("--spin-us")
            .map_or(fallback.spin, |micros| Nanos::from_seconds(micros / 1e6)),
        window: window.map(|micros| Nanos(micros * 1_000)),
        realtime: settings.switched("--realtime"),
    }
}
