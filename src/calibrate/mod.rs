//! How well this machine measures: the program against a server whose log tells the truth.
//!
//! In: a plan. Out: a table, a file, an [`Outcome`]. Never: measures anything itself. It runs this program's own `mock-server` and `profile`
//! as processes of their own, as anybody would, and holds the files of one against the other's.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{Clock, Nanos};
use crate::config::CalibratePlan;

mod child;
pub mod claim;
mod layout;
mod outcome;
pub mod sample;
#[cfg(test)]
mod tests;
pub mod truth;

use child::{End, Process, last_line};
use layout::Layout;
pub use outcome::{Combination, Results, Row};
use sample::Sample;

/// Requests come this far apart, so that the server is not held up by a crowd of them.
const REQUESTS_PER_S: u32 = 4_000;
/// What starting, connecting and writing files may take beside the streams themselves.
const ALLOWANCE: Nanos = Nanos::from_millis(60_000);

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// Client and server would share a core.
    #[error(
        "calibrate needs two cores, one for the server and one for the client, and this process may use only one"
    )]
    OneCore,
    /// A core is not one of this process's.
    #[error("{flag}: core {core} is not among those this process may use ({allowed:?})")]
    Core {
        /// Who named it.
        flag: &'static str,
        /// The core.
        core: usize,
        /// The process's mask.
        allowed: Vec<usize>,
    },
    /// One side has all cores.
    #[error("{flag} names every core; leave one for the other side")]
    NoCoreLeft {
        /// Who named them.
        flag: &'static str,
    },
    /// The clock of the server's log and pinning are Linux's.
    #[error("calibrate needs Linux")]
    System,
    /// A file or a process could not be had.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's word.
        source: std::io::Error,
    },
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that this machine can do was measured, and no event was lost.
    Complete,
    /// It was cut, or a run failed, or an event was lost; what there is is written.
    Flawed,
}

impl Outcome {
    /// 0 only for [`Outcome::Complete`].
    #[must_use]
    pub fn exit_code(self) -> u8 {
        u8::from(self != Outcome::Complete)
    }
}

/// Up when all is to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    fn is_up(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Goes up by Ctrl-C, SIGTERM, or the end of the terminal.
    fn by_signals() -> std::io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))?;
        }
        Ok(interrupt)
    }
}

/// Measures as planned, prints the table and writes the file.
pub fn calibrate(plan: &CalibratePlan) -> Result<Outcome, CalibrateError> {
    if !cfg!(target_os = "linux") {
        return Err(CalibrateError::System);
    }
    let mask: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .iter()
        .map(|core| core.id)
        .collect();
    let layout = Layout::choose(plan, &mask)?;
    let interrupt = Interrupt::by_signals().map_err(io("cannot watch for signals"))?;
    // Before the first run: a file that cannot be written must not cost an hour.
    outcome::make_folder(&plan.output)?;
    let folder = tempfile::tempdir().map_err(io("cannot make a temporary folder"))?;
    let mut results = Results::new(plan, &layout.workers, &layout.server);
    let clock = Clock::new();
    let start = clock.now();
    // All combinations in each round, so that a busy minute does not hit one of them alone.
    let row_count = results.rows.len();
    let rounds = (0..plan.repeat).flat_map(|_| 0..row_count);
    for index in rounds {
        if interrupt.is_up() {
            results.cut("stopped by a signal");
            break;
        }
        if clock.rate().nanos(clock.now().since(start)) > plan.limit {
            results.cut("--max-seconds is over");
            break;
        }
        let row = &mut results.rows[index];
        // What was refused once is refused again.
        if row.trouble.is_none() {
            outcome::tell(&row.combination.words(row.streams));
            let run = Run {
                plan,
                layout: &layout,
                folder: folder.path(),
                interrupt: &interrupt,
            };
            match run.carry_out(&row.combination, row.streams) {
                Ok(sample) => row.samples.push(sample),
                // It is the last turn, and what there is is written.
                Err(Trouble::Interrupted) => {
                    results.cut("stopped by a signal");
                    break;
                }
                Err(Trouble::Failed(reason)) => row.trouble = Some(reason),
            }
        }
    }
    results.publish(&plan.output)
}

/// Why a run has no sample.
enum Trouble {
    /// All is to end.
    Interrupted,
    /// A sentence.
    Failed(String),
}

impl<T: std::fmt::Display> From<T> for Trouble {
    fn from(error: T) -> Trouble {
        Trouble::Failed(error.to_string())
    }
}

struct Run<'a> {
    plan: &'a CalibratePlan,
    layout: &'a Layout,
    folder: &'a Path,
    interrupt: &'a Interrupt,
}

impl Run<'_> {
    /// One server, one client, one comparison.
    fn carry_out(&self, combination: &Combination, streams: u32) -> Result<Sample, Trouble> {
        let log = self.folder.join("server.log");
        // The log is appended to.
        let _ = std::fs::remove_file(&log);
        let errors = self.folder.join("server.errors");
        let words = self.server_words(streams, &log);
        let mut server = Process::start(&words, &self.layout.server, Stdio::piped(), &errors)?;
        let url = server.first_line()?;
        if url.is_empty() {
            return Err(Trouble::Failed(last_line(&errors)));
        }
        let files = self.folder.join("client");
        let loaded = self.load(&self.client_words(combination, streams, &url, &files));
        server.end()?;
        loaded?;
        let text = |path: PathBuf| {
            let read = std::fs::read_to_string(&path);
            read.map_err(|error| format!("{}: {error}", path.display()))
        };
        let served = truth::read(&text(log)?)?;
        let claimed = claim::read(
            &text(files.join("profile_export_raw.jsonl"))?,
            &text(files.join("profile_export.jsonl"))?,
        )?;
        let health = claim::health(&text(files.join("profile_export_aiperf.json"))?)?;
        Ok(sample::compare(&served, &claimed, health)?)
    }

    /// Runs the client to its end.
    fn load(&self, words: &[String]) -> Result<(), Trouble> {
        let errors = self.folder.join("client.errors");
        let mut client = Process::start(words, &self.layout.client, Stdio::null(), &errors)?;
        let plan = self.plan;
        let stream = plan
            .inter_token_latency
            .0
            .saturating_mul(u64::from(plan.tokens) + 1);
        let limit = Nanos(stream.saturating_mul(4)) + plan.time_to_first_token + ALLOWANCE;
        match client.wait(limit, self.interrupt)? {
            End::Exited(status) if status.success() => Ok(()),
            End::Exited(_) => Err(Trouble::Failed(last_line(&errors))),
            End::Interrupted => Err(Trouble::Interrupted),
            End::TooLong => Err(Trouble::Failed(format!(
                "the client was not done after {:.0} s",
                limit.seconds()
            ))),
        }
    }

    fn server_words(&self, streams: u32, log: &Path) -> Vec<String> {
        let plan = self.plan;
        let words = format!(
            "mock-server --pace spin --spread {streams} --ttft {} --itl {} --tokens {} --threads {} --cpus {}",
            plan.time_to_first_token.millis(),
            plan.inter_token_latency.millis(),
            plan.tokens,
            self.layout.server.len(),
            list(&self.layout.server),
        );
        with_path(&words, "--log", log)
    }

    fn client_words(
        &self,
        combination: &Combination,
        streams: u32,
        url: &str,
        files: &Path,
    ) -> Vec<String> {
        // The smallest tokenizer that ships inside; the server's counts are used, so it only makes the prompts.
        let mut words = format!(
            "profile --model mock-model --url {url} --tokenizer gpt2 --streaming --use-server-token-count --isl 8 --osl {} \
             --request-count {streams} --concurrency {streams} --request-rate {REQUESTS_PER_S} --arrival-pattern constant \
             --random-seed 1 --export-level raw --export-http-trace --ui-type none --cpus {}",
            self.plan.tokens,
            list(&self.layout.workers),
        );
        for (flag, value) in combination.flags() {
            words.push_str(&format!(" {flag} {value}"));
        }
        with_path(&words, "--output-artifact-dir", files)
    }
}

/// Words without spaces in them, and a flag whose path may have some.
fn with_path(words: &str, flag: &str, path: &Path) -> Vec<String> {
    let words = words.split_whitespace().map(str::to_owned);
    let path = path.to_string_lossy().into_owned();
    words.chain([flag.to_owned(), path]).collect()
}

fn list(cores: &[usize]) -> String {
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    cores.join(",")
}

fn io(what: &str) -> impl FnOnce(std::io::Error) -> CalibrateError {
    let what = what.to_owned();
    move |source| CalibrateError::Io { what, source }
}
