//! The conductor: plan, corpus, workers, join, merge, summary, files.
//!
//! In: a plan. Out: an [`Ending`]. The only junction besides the drivers. Never: a formula, a byte of HTTP, or a number that
//! no other room computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Anchor, Calibration, Clock};
use crate::config::{LogLevel, MockPlan, PhaseKind, Plan};
use crate::driver::{Driver, StampSource};
use crate::metric::Summary;
use crate::record::Interpreter;
use crate::report::{self, ArtifactNames, InputBodies, Log, PhaseReport, ReportError, RunReport};

mod client;
mod cores;
mod gate;
mod prepare;
mod queue;
mod ready;
mod recorder;
mod watch;
mod workers;
mod workload;

use cores::Cores;
use gate::Gate;
use prepare::Prepared;
use recorder::{Live, Recorded, Recorder, RecorderParts};

/// Why a run could not start. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The goodput names a metric that this run has not.
    #[error(transparent)]
    Plan(#[from] crate::config::Problems),
    /// No tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    /// No conversations.
    #[error(transparent)]
    Dataset(#[from] crate::dataset::DatasetError),
    /// A file could not be created or written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The built-in server did not start.
    #[error(transparent)]
    Mock(#[from] crate::mock::MockError),
    /// A host name has no address.
    #[error("--url {url}: no address for {host}: {source}; check the name")]
    Resolve {
        /// As given.
        url: String,
        /// Its host.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// A host name cannot stand in a certificate.
    #[error(
        "--url {0}: this name cannot be checked against a certificate; use a DNS name or an IP address"
    )]
    ServerName(String),
    /// TLS could not be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// A core was named that this process may not use.
    #[error("--cpus {asked}: this process may use only {allowed}")]
    Cores {
        /// The core.
        asked: usize,
        /// The mask.
        allowed: String,
    },
    /// The driver that was asked for is refused.
    #[error("--driver ring: {0}; or use --driver portable")]
    Ring(String),
    /// The kernel's stamps were asked for and cannot be had.
    #[error("--timestamp-source kernel needs the ring: {0}; use --timestamp-source user")]
    Stamps(String),
    /// The readiness probe gave up.
    #[error("--wait-for-model-timeout: {0}")]
    NotReady(String),
    /// A signal came before the load began.
    #[error("interrupted before any request was sent")]
    Interrupted,
    /// A thread could not be started, or died.
    #[error("{0}")]
    Thread(String),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It did what was asked, also when some requests failed.
    Complete,
    /// It was stopped by a signal or an abort; what there was is written.
    Partial,
    /// Not one request succeeded.
    NothingSucceeded,
    /// A per-request file could not be written to its end.
    FilesIncomplete,
}

impl Ending {
    /// 0 only for [`Ending::Complete`].
    #[must_use]
    pub fn exit_code(self) -> u8 {
        u8::from(self != Ending::Complete)
    }
}

/// Runs `plan` and writes its reports. The table goes to standard output, everything else to standard error.
pub fn profile(mut plan: Plan) -> Result<Ending, RunError> {
    let signals = watch::Signals::new()?;
    let seed = *plan.random_seed.get_or_insert_with(rand::random);
    let names = ArtifactNames::new(&plan.output);
    let log = Arc::new(Log::create(&names.log(), plan.output.log_level)?);
    log.line(
        LogLevel::Info,
        &format!(
            "tokenring {}: {}",
            env!("CARGO_PKG_VERSION"),
            plan.cli_command
        ),
    );
    let cores = Cores::choose(&plan)?;
    let server = start_built_in_server(&mut plan, &cores)?;
    let prepared = Prepared::new(plan, seed)?;
    for note in &prepared.notes {
        log.line(LogLevel::Warning, note);
        eprintln!("Note: {note}");
    }
    if let Some(server) = &server {
        eprintln!(
            "No --url given: measuring the built-in server on {} instead.",
            server.url()
        );
    }
    ready::wait(&prepared.material.plan, &signals)?;
    let run = conduct(&prepared, &cores, &log, &signals)?;
    if let Some(server) = server {
        server.stop();
    }
    finish(&prepared, &cores, &log, run)
}

/// What the load left.
struct Run {
    recorded: Recorded,
    workers: workers::Ended,
    calibration: Calibration,
    driver: Driver,
    stamps: StampSource,
    overflowed: u64,
    interrupted: bool,
}

fn start_built_in_server(
    plan: &mut Plan,
    cores: &Cores,
) -> Result<Option<crate::mock::Running>, RunError> {
    if !plan.endpoint.built_in_server {
        return Ok(None);
    }
    let mock = MockPlan {
        cpus: cores.server.clone(),
        models: plan.models.clone(),
        ..MockPlan::default()
    };
    let server = crate::mock::start(&mock)?;
    let url = crate::config::join(&server.url(), plan.endpoint.path());
    plan.endpoint.urls = vec![url.map_err(RunError::Thread)?];
    Ok(Some(server))
}

fn conduct(
    prepared: &Prepared,
    cores: &Cores,
    log: &Arc<Log>,
    signals: &watch::Signals,
) -> Result<Run, RunError> {
    let plan = &prepared.material.plan;
    let clock = Clock::new();
    let start = Anchor::take(&clock);
    let worker_count = cores.workers.len();
    let gate = Arc::new(Gate::new(&clock, worker_count, plan.phases.len()));
    let live = Arc::new(Live::default());
    let overflowed = Arc::new(AtomicU64::new(0));
    let (ends, queues) = (0..worker_count).map(|_| queue::queue(&overflowed)).unzip();
    let material = &prepared.material;
    let interpreter = Interpreter::new(
        Arc::clone(plan),
        Arc::clone(&material.corpus),
        Arc::clone(&material.bodies),
        Arc::clone(&prepared.tokenizer),
    );
    let recorder = Recorder::new(RecorderParts {
        plan: Arc::clone(plan),
        bodies: Arc::clone(&material.bodies),
        interpreter,
        queues,
        clock: clock.clone(),
        start,
        gate: Arc::clone(&gate),
        live: Arc::clone(&live),
        log: Arc::clone(log),
    })?;
    let (driver, stamps) = client::driver(&plan.workers)?;
    log.line(
        LogLevel::Info,
        &format!(
            "driver: {} ({}); workers on cores {:?}",
            driver.name(),
            driver.reason(),
            cores.workers
        ),
    );
    let workers = workers::start(prepared, cores, &clock, (&driver, stamps), &gate, ends)?;
    let recorder = cores.spawn_recorder(recorder)?;
    let interrupted = watch::until_over(plan, &gate, &live, &clock, signals, &workers);
    let workers = workers.join()?;
    let calibration = Calibration::fit(&clock, start, Anchor::take(&clock));
    let recorded = recorder
        .join()
        .map_err(|_| RunError::Thread("the recorder thread died".to_owned()))?;
    let overflowed = overflowed.load(Ordering::Relaxed);
    Ok(Run {
        recorded,
        workers,
        calibration,
        driver,
        stamps,
        overflowed,
        interrupted,
    })
}

fn finish(prepared: &Prepared, cores: &Cores, log: &Log, run: Run) -> Result<Ending, RunError> {
    let plan = &prepared.material.plan;
    let client = client::report(plan, cores, &run);
    let reason = match (&run.recorded.aborted, run.interrupted) {
        (Some(reason), _) => Some(reason.clone()),
        (None, true) => Some("stopped by a signal".to_owned()),
        (None, false) => None,
    };
    let partial = reason.is_some();
    let summaries: Vec<Summary> = run
        .recorded
        .accumulators
        .into_iter()
        .map(crate::metric::Accumulator::summary)
        .collect();
    let of_kind = |kind| {
        plan.phases
            .iter()
            .position(|phase| phase.kind == kind)
            .map(|index| summaries[index].clone())
    };
    let profiling = of_kind(PhaseKind::Profiling).unwrap_or_default();
    let phases = plan
        .phases
        .iter()
        .zip(&summaries)
        .enumerate()
        .map(|(index, (phase, summary))| PhaseReport {
            name: phase.kind.name().to_owned(),
            kind: phase.kind,
            index,
            start_ns: summary.window.start_ns,
            end_ns: summary.window.end_ns,
            was_cancelled: partial,
            summary: summary.clone(),
        });
    let report = RunReport {
        plan: Arc::clone(plan),
        benchmark_id: format!("{:012x}", rand::random::<u64>() >> 16),
        random_seed: prepared.material.seed,
        warmup: of_kind(PhaseKind::Warmup),
        phases: phases.collect(),
        profiling,
        was_cancelled: partial,
        incomplete_reason: reason,
        client,
    };
    let body = |conversation: usize, turn: usize| prepared.body(conversation, turn);
    let inputs = InputBodies {
        corpus: &prepared.material.corpus,
        body: &body,
    };
    let files = report::write_all(&report, Some(&inputs), &run.recorded.files)?;
    print!(
        "{}",
        report::render_console(&report, console_width(), &files)
    );
    if let Some(error) = &run.recorded.write_error {
        log.line(LogLevel::Error, &error.to_string());
        eprintln!("Error: {error}");
    }
    Ok(match () {
        () if report.profiling.success_count == 0 => Ending::NothingSucceeded,
        () if partial => Ending::Partial,
        () if run.recorded.write_error.is_some() => Ending::FilesIncomplete,
        () => Ending::Complete,
    })
}

/// Columns of the terminal, 140 where there is none.
fn console_width() -> u16 {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| width.0);
    columns.or_else(terminal).unwrap_or(140)
}
