//! The built-in server: an independent reading of HTTP and of the OpenAI API.
//!
//! In: requests on a loopback port. Out: replies paced by absolute times. Never: shares code with `wire`, so that one mistake
//! cannot pass twice.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::MockPlan;

mod api;
mod connection;
mod request;
mod script;
mod serve;
#[cfg(test)]
mod tests;

use connection::{Shared, Tally};
use serve::{Loop, Mailbox, Start};

/// Between two looks at a stop flag in [`Running::wait`].
const WAIT_STEP: Duration = Duration::from_millis(20);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The port is taken or not allowed.
    #[error(
        "--port {port}: cannot listen on 127.0.0.1: {source}; choose another port, or 0 for a free one"
    )]
    Listen {
        /// As planned.
        port: u16,
        /// The system's word.
        source: std::io::Error,
    },
    /// The log file cannot be opened.
    #[error("--log {}: {source}; choose a file that can be written", path.display())]
    Log {
        /// As planned.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// A core to pin to is not one of this process's.
    #[error("--cpus: core {cpu} is not among those this process may use ({allowed:?})")]
    Core {
        /// As planned.
        cpu: usize,
        /// The process's mask.
        allowed: Vec<usize>,
    },
    /// No thread, descriptor or event queue was to be had.
    #[error("the server's threads cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// A server at work. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    shared: Arc<Shared>,
    mailboxes: Vec<Mailbox>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

/// Starts a server as planned; it listens when this returns.
pub fn start(plan: &MockPlan) -> Result<Running, MockError> {
    let cores = cores(plan)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, plan.port)).map_err(|source| {
        MockError::Listen {
            port: plan.port,
            source,
        }
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let log = plan.log.as_deref().map(open_log).transpose()?;
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        created: unix_seconds(),
        tally: Tally::default(),
    });
    let mut running = Running {
        address,
        stop: Arc::new(AtomicBool::new(false)),
        shared,
        mailboxes: Vec::new(),
        threads: Vec::new(),
    };
    running.spawn(plan.threads.unwrap_or(cores).max(1), listener, log.as_ref())?;
    Ok(running)
}

/// Number of cores to use, after a check of those asked for.
fn cores(plan: &MockPlan) -> Result<usize, MockError> {
    let allowed: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .iter()
        .map(|core| core.id)
        .collect();
    match plan.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(&cpu) => Err(MockError::Core { cpu, allowed }),
        None if plan.cpus.is_empty() => Ok(allowed.len()),
        None => Ok(plan.cpus.len()),
    }
}

fn open_log(path: &Path) -> Result<File, MockError> {
    let failed = |source| MockError::Log {
        path: path.to_owned(),
        source,
    };
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(failed)?;
    file.write_all(b"# connection request event monotonic_ns\n")
        .map_err(failed)?;
    Ok(file)
}

#[expect(
    clippy::disallowed_methods,
    reason = "`created` of the API is wall-clock time"
)]
fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Running {
    /// Ends the server and joins its threads. Replies under way are cut.
    pub fn stop(mut self) {
        self.end();
    }

    /// Blocks until `flag` is up, then ends the server.
    #[expect(
        clippy::disallowed_methods,
        reason = "waiting for a signal; nothing is timed"
    )]
    pub fn wait(self, flag: &AtomicBool) {
        while !flag.load(Ordering::Acquire) {
            std::thread::sleep(WAIT_STEP);
        }
        self.stop();
    }

    /// Requests read to their last byte so far, on every path.
    #[must_use]
    pub fn requests_seen(&self) -> u64 {
        self.shared.tally.requests.load(Ordering::Relaxed)
    }

    /// Base URL, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts the threads; the first one accepts and deals the sockets out in turn.
    fn spawn(
        &mut self,
        count: usize,
        listener: TcpListener,
        log: Option<&File>,
    ) -> Result<(), MockError> {
        let mut receivers = Vec::new();
        for _ in 0..count {
            let (sockets, receiver) = channel();
            let wake = serve::wake_descriptor()?;
            self.mailboxes.push(Mailbox { sockets, wake });
            receivers.push(receiver);
        }
        let mut accept = Some((listener, self.mailboxes.clone()));
        let cpus = self.shared.plan.cpus.clone();
        for (index, sockets) in receivers.into_iter().enumerate() {
            let work = Loop::new(Start {
                shared: Arc::clone(&self.shared),
                stop: Arc::clone(&self.stop),
                sockets,
                wake: Arc::clone(&self.mailboxes[index].wake),
                accept: accept.take(),
                log: log.map(File::try_clone).transpose()?,
            })?;
            let core = cpus.get(index % cpus.len().max(1)).copied();
            let thread = std::thread::Builder::new()
                .name(format!("mock-{index}"))
                .spawn(move || {
                    if let Some(id) = core {
                        core_affinity::set_for_current(core_affinity::CoreId { id });
                    }
                    work.run()
                })?;
            self.threads.push(thread);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        for mailbox in &self.mailboxes {
            mailbox.wake();
        }
        for thread in self.threads.drain(..) {
            // A thread that failed or panicked has ended too.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
