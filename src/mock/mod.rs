//! The built-in server: an independent reading of HTTP and of the APIs.
//!
//! In: requests on a port, loopback's unless another is asked for. Out: replies paced by absolute times. Never: shares code with `wire`, so that one mistake
//! cannot pass twice.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{MockPlan, ZonedAddress};

mod api;
#[cfg(target_os = "linux")]
mod arrival;
mod connection;
#[cfg(target_os = "linux")]
mod crew;
mod form;
mod log;
mod numbers;
mod request;
mod script;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(test)]
mod tests;
#[cfg(any(test, not(target_os = "linux")))]
mod threads;
mod told;
mod wording;

pub use told::read_requests;

use connection::{Shared, Tally};
#[cfg(target_os = "linux")]
use crew::Crew;
#[cfg(not(target_os = "linux"))]
use threads::Crew;

/// Connections that may wait to be accepted; the system may hold fewer.
const BACKLOG: i32 = 65_535;

/// Between two looks at a stop flag in [`Running::wait`].
const WAIT_STEP: Duration = Duration::from_millis(20);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The port is taken or not allowed, or the address is not of this machine.
    #[error(
        "--port {port}: cannot listen on {host}: {source}; choose another port, or 0 for a free one, and with --host an address of this machine"
    )]
    Listen {
        /// As planned.
        host: ZonedAddress,
        /// As planned.
        port: u16,
        /// The system's word.
        source: std::io::Error,
    },
    /// A link-local address is on an interface that is not there.
    #[error(
        "--host {host}: this machine has no such network interface with IPv6 ({source}); `ip link` lists those it has"
    )]
    Zone {
        /// As planned.
        host: ZonedAddress,
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
    shared: Arc<Shared>,
    /// Ends and joins its threads when dropped.
    crew: Crew,
}

/// Starts a server as planned; it listens when this returns.
pub fn start(plan: &MockPlan) -> Result<Running, MockError> {
    let cores = cores(plan)?;
    let place = place(plan).map_err(|source| MockError::Zone {
        host: plan.host.clone(),
        source,
    })?;
    let listener = listen(place).map_err(|source| MockError::Listen {
        host: plan.host.clone(),
        port: plan.port,
        source,
    })?;
    let address = listener.local_addr()?;
    let log = plan.log.as_deref().map(open_log).transpose()?;
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        created: unix_seconds(),
        tally: Tally::default(),
    });
    let count = plan.threads.unwrap_or(cores).max(1);
    let crew = Crew::start(&shared, listener, count, log.as_ref())?;
    Ok(Running {
        address,
        shared,
        crew,
    })
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

/// Where to listen. The system knows the number of a zone's interface.
fn place(plan: &MockPlan) -> std::io::Result<SocketAddr> {
    let MockPlan { host, port, .. } = plan;
    if host.zone.is_none() {
        return Ok(SocketAddr::new(host.ip, *port));
    }
    let mut found = (host.to_string(), *port).to_socket_addrs()?;
    found.next().ok_or_else(|| ErrorKind::NotFound.into())
}

/// The standard library's queue of 128 overflows when a thousand clients connect at once, and each that is turned away tries
/// again only after a second.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // On Windows this would let two servers share the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
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
    file.write_all(log::COLUMNS.as_bytes()).map_err(failed)?;
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
    pub fn stop(self) {
        drop(self.crew);
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
        match (&self.shared.plan.host.zone, self.address) {
            // RFC 6874: the percent sign is escaped.
            (Some(zone), SocketAddr::V6(v6)) => {
                format!("http://[{}%25{zone}]:{}", v6.ip(), v6.port())
            }
            (_, address) => format!("http://{address}"),
        }
    }
}
