//! The conductor: plan, corpus, workers, join, merge, summary, files.
//!
//! In: a plan. Out: an [`Ending`]. The only junction besides the drivers. Never: a formula, a byte of HTTP, or a number that
//! no other room computed.

use std::sync::Arc;

use crate::clock::{Anchor, Calibration, Clock};
use crate::config::{LogLevel, MockPlan, Plan};
use crate::metric::health::MachineFacts;
use crate::record::Interpreter;
use crate::report::{ArtifactNames, Log, ReportError, tell};

mod ask;
mod client;
mod cores;
mod feeder;
mod finish;
mod gate;
mod inputs;
mod machine;
mod marks;
mod names;
mod needs;
mod prepare;
mod public;
mod queue;
mod ready;
mod recorder;
mod refresh;
mod rivals;
mod title;
mod tls;
mod watch;
mod watched;
mod workers;
mod workload;
mod zones;

use cores::Cores;
use feeder::FedTally;
use gate::Gate;
use machine::Machine;
use prepare::Prepared;
use recorder::{Live, Recorded, Recorder, RecorderParts};
use rivals::Rivals;
pub use title::arguments;
use watched::Watched;

/// Why a run could not start. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The goodput names a metric that this run has not.
    #[error(transparent)]
    Plan(#[from] crate::config::Problems),
    /// A dialect's own settings are wrong.
    #[error(transparent)]
    Api(#[from] crate::endpoint::ApiError),
    /// No tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    /// A public dataset is not to be had.
    #[error("{0}")]
    PublicDataset(String),
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
    #[error("{flag} {url}: no address for {host}: {source}; check the name")]
    Resolve {
        /// Which flag has it.
        flag: &'static str,
        /// As given.
        url: String,
        /// Its host.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// A link-local address is on an interface that is not there.
    #[error(
        "{flag} {address}: this machine has no network interface {zone} with IPv6; it has {known}"
    )]
    Zone {
        /// Which flag has it.
        flag: &'static str,
        /// The address, with its zone.
        address: String,
        /// The zone.
        zone: String,
        /// Interfaces with IPv6.
        known: String,
    },
    /// A host name has no address of the version asked for.
    #[error("--ip-version {1}: {0} has no such address; leave the flag out, or correct the name")]
    IpVersion(String, u8),
    /// A host has no address of a local one's version.
    #[error(
        "--local-address: none is of the IP version of {0}'s addresses; give one that is, or leave the flag out"
    )]
    LocalAddress(String),
    /// This machine does not grant what sockets are to be like.
    #[error(transparent)]
    Socket(#[from] crate::driver::RefusedOption),
    /// The kernel's stamps were asked for where there are none.
    #[error(
        "--timestamp-source kernel: only TCP is stamped on receipt, and --unix-socket is none; use --timestamp-source user"
    )]
    UnixStamps,
    /// A host name cannot stand in a certificate.
    #[error(
        "--url or --tls-server-name {0}: this name cannot be checked against a certificate; use a DNS name or an IP address"
    )]
    ServerName(String),
    /// TLS could not be set up.
    #[error("{0}")]
    Tls(String),
    /// The workers cannot spin.
    #[error(
        "--wait-mode spin needs the ring, and this machine gives the portable driver ({0}); use --wait-mode hybrid"
    )]
    Spin(String),
    /// Real-time priority is not permitted.
    #[error(transparent)]
    Realtime(#[from] crate::driver::priority::Refused),
    /// A core was named that this process may not use.
    #[error("--cpus {asked}: this process may use only {allowed}")]
    Cores {
        /// The core.
        asked: usize,
        /// The mask.
        allowed: String,
    },
    /// Too few files may be opened.
    #[error("--concurrency: {0}")]
    Descriptors(#[from] crate::driver::TooFew),
    /// Another limit of this machine is too low.
    #[error("--concurrency: {0}")]
    Limits(String),
    /// The driver that was asked for is refused.
    #[error("--driver ring: {0}; or use --driver portable")]
    Ring(String),
    /// The kernel's stamps were asked for and cannot be had.
    #[error(
        "--timestamp-source kernel: only Linux stamps what TCP receives ({0}); use --timestamp-source user"
    )]
    Stamps(String),
    /// No connection could be opened before the start.
    #[error(
        "--pre-connect: none of {count} connections to {server} could be opened before the start ({why}); start the server, or correct --url"
    )]
    PreConnect {
        /// How many were tried.
        count: u64,
        /// Where to.
        server: String,
        /// Why the first of them failed.
        why: &'static str,
    },
    /// The readiness probe gave up.
    #[error("--wait-for-model-timeout: {0}")]
    NotReady(String),
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
    /// All went well, but the client's health is not trusted, and `--require-trusted` asks for that.
    NotTrusted,
}

impl Ending {
    /// 0 only for [`Ending::Complete`], 3 for [`Ending::NotTrusted`], else 1.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Complete => 0,
            Ending::NotTrusted => 3,
            Ending::Partial | Ending::NothingSucceeded | Ending::FilesIncomplete => 1,
        }
    }
}

/// Runs `plan` and writes its reports. The table goes to standard output, everything else to standard error.
pub fn profile(mut plan: Plan) -> Result<Ending, RunError> {
    let seed = *plan.random_seed.get_or_insert_with(rand::random);
    let names = ArtifactNames::new(&plan.output);
    watch::outlive_file_limits()?;
    names.check_folder()?;
    let log = Arc::new(Log::create(&names.log(), plan.output.log_level)?);
    names.take_mark_away()?;
    log.line(
        LogLevel::Info,
        &format!(
            "tokenring {}: {}",
            env!("CARGO_PKG_VERSION"),
            plan.cli_command
        ),
    );
    let cores = Cores::choose(&plan)?;
    needs::open_files(&plan, &cores)?;
    public::fetch(&mut plan)?;
    let server = start_built_in_server(&mut plan, &cores)?;
    let mut prepared = Prepared::new(plan, seed)?;
    let near = needs::check(&prepared.material.plan, &prepared.addresses, &cores)?;
    prepared.notes.extend(near);
    for note in &prepared.notes {
        log.line(LogLevel::Warning, note);
        tell(&format!("Note: {note}"));
    }
    if let Some(server) = &server {
        tell(&format!(
            "No --url given: measuring the built-in server on {} instead.",
            server.url()
        ));
    }
    ready::wait(&prepared)?;
    prepared.log_details(&log);
    // Until here Ctrl-C does what it does to any program: nothing was sent, so there is nothing to write.
    let signals = watch::Signals::new()?;
    let run = conduct(&prepared, &cores, &log, &signals)?;
    if let Some(server) = server {
        server.stop();
    }
    finish::finish(&prepared, &cores, &log, run)
}

/// What the load left.
struct Run {
    recorded: Recorded,
    workers: workers::Ended,
    calibration: Calibration,
    clock: Clock,
    reach: client::Reach,
    /// What became of a streamed dataset.
    fed: Option<FedTally>,
    interrupted: bool,
    machine: MachineFacts,
    /// What became of a worker that did not do its work.
    failure: Option<String>,
    /// How names were looked up again.
    names: Option<String>,
}

/// An error if connections were to be open ahead and not one was: then nothing was sent.
fn some_opened(plan: &Plan, gate: &Gate) -> Result<(), RunError> {
    let Some((count, fault)) = gate.nothing_opened() else {
        return Ok(());
    };
    let servers = plan.endpoint.urls.iter();
    let servers = servers.map(|url| format!("{}:{}", url.host, url.port));
    Err(RunError::PreConnect {
        count,
        server: servers.collect::<Vec<_>>().join(", "),
        why: fault.message().trim_end_matches('.'),
    })
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
    let (ends, queues) = (0..worker_count).map(|_| queue::queue()).unzip();
    let material = &prepared.material;
    // Before the recorder, which empties an earlier run's files: a refused driver must cost nobody their records.
    let reach = client::reach(plan, &prepared.all_addresses())?;
    let recorder = Recorder::new(RecorderParts {
        plan: Arc::clone(plan),
        bodies: Arc::clone(&material.bodies),
        interpreter: interpreter(prepared),
        queues,
        clock: clock.clone(),
        start,
        gate: Arc::clone(&gate),
        live: Arc::clone(&live),
        log: Arc::clone(log),
    })?;
    inputs::write_loaded(prepared)?;
    log_driver(log, &reach, cores);
    let machine = Machine::read(cores);
    let rivals = Rivals::begin(cores, &clock);
    let (feeder, feeds) = feeder::start(prepared, cores, &gate, &clock)?;
    let refresher = prepared.refresh_names(&gate.names)?;
    let workers = workers::start(prepared, cores, &clock, &reach, &gate, (ends, feeds))?;
    let recorder = cores.spawn_recorder(recorder)?;
    let mut watched = Watched::new(&clock, workers.numbers());
    let over = (&workers, &mut watched);
    let watching = || watch::until_over(plan, &gate, &live, &clock, signals, over);
    let interrupted = cores::on_idle_thread("watcher", watching)?;
    let (mut workers, mut failure) = workers.join();
    drop(refresher);
    let fed = feeder::join(feeder, &mut failure);
    let machine = MachineFacts {
        rivals: rivals.found(&workers.health),
        ..machine.facts()
    };
    for (index, health) in &mut workers.health {
        watched.complete(*index, health);
    }
    let calibration = Calibration::fit(&clock, start, Anchor::take(&clock));
    let recorded = recorder
        .join()
        .map_err(|_| RunError::Thread("the recorder thread died".to_owned()))?
        .complete();
    some_opened(plan, &gate)?;
    Ok(Run {
        recorded,
        workers,
        calibration,
        reach,
        clock,
        fed,
        interrupted,
        machine,
        failure,
        names: gate.names.told(),
    })
}

fn interpreter(prepared: &Prepared) -> Interpreter {
    let material = &prepared.material;
    Interpreter::new(
        Arc::clone(&material.plan),
        material.api.clone(),
        Arc::clone(&material.corpus),
        Arc::clone(&material.bodies),
        Arc::clone(&prepared.tokenizer),
    )
}

fn log_driver(log: &Log, reach: &client::Reach, cores: &Cores) {
    log.line(
        LogLevel::Info,
        &format!(
            "driver: {} ({}); workers on cores {:?}",
            reach.driver.name(),
            reach.driver.reason(),
            cores.workers
        ),
    );
}
