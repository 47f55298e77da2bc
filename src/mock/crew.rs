//! The server's threads on Linux: one event loop for each core.
//!
//! In: a listener and a number of threads. Out: threads at work, and their end. Never: serves a request itself.

use std::fs::File;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::arrival;
use super::connection::Shared;
use super::serve::{self, Loop, Mailbox, Start};

/// Threads at work. Dropping it ends and joins them.
#[derive(Debug)]
pub(super) struct Crew {
    stop: Arc<AtomicBool>,
    mailboxes: Vec<Mailbox>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Crew {
    /// Starts `count` threads; the first one accepts and deals the sockets out in turn, so that each gets an equal share, which
    /// `SO_REUSEPORT` does not promise for few connections.
    pub(super) fn start(
        shared: &Arc<Shared>,
        listener: TcpListener,
        count: usize,
        log: Option<&File>,
    ) -> std::io::Result<Crew> {
        allow_descriptors();
        listener.set_nonblocking(true)?;
        if log.is_some() {
            // Where it is refused, the log has the time of reading instead.
            let _ = arrival::ask(&listener);
        }
        let mut crew = Crew {
            stop: Arc::new(AtomicBool::new(false)),
            mailboxes: Vec::new(),
            threads: Vec::new(),
        };
        let mut receivers = Vec::new();
        for _ in 0..count {
            let (sockets, receiver) = channel();
            let wake = serve::wake_descriptor()?;
            crew.mailboxes.push(Mailbox { sockets, wake });
            receivers.push(receiver);
        }
        let mut accept = Some((listener, crew.mailboxes.clone()));
        let cpus = &shared.plan.cpus;
        for (index, sockets) in receivers.into_iter().enumerate() {
            let work = Loop::new(Start {
                shared: Arc::clone(shared),
                stop: Arc::clone(&crew.stop),
                sockets,
                wake: Arc::clone(&crew.mailboxes[index].wake),
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
            crew.threads.push(thread);
        }
        Ok(crew)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
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

/// Raises the limit of open files to the hard limit: 1,024 is a common default, and each client needs a descriptor.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused the server works with fewer connections.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}
