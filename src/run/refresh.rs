//! Names looked up again while the load is on.
//!
//! In: an interval, how to look up. Out: the latest addresses, for workers to take. Never: makes a worker wait, or takes addresses away when a
//! look-up fails.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::clock::Nanos;
use crate::driver::priority;

use super::RunError;

/// Addresses of each URL.
pub(super) type Lists = Vec<Vec<SocketAddr>>;

/// What look-ups found, shared with the workers.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// Grows with each change.
    version: AtomicU64,
    lists: Mutex<Arc<Lists>>,
    looked_up: AtomicU64,
    failed: AtomicU64,
}

impl Published {
    /// The addresses, if they have changed since version `seen`. A worker that comes just while they are being changed gets them the next
    /// time that it asks.
    pub(super) fn since(&self, seen: u64) -> Option<(u64, Arc<Lists>)> {
        if self.version.load(Ordering::Acquire) == seen {
            return None;
        }
        let lists = self.lists.try_lock().ok()?;
        Some((self.version.load(Ordering::Acquire), Arc::clone(&lists)))
    }

    fn publish(&self, lists: Lists) {
        // Nobody can die while holding it: the holders only assign.
        if let Ok(mut held) = self.lists.lock() {
            *held = Arc::new(lists);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// What became of it, for people; `None` when no look-up was due.
    pub(super) fn told(&self) -> Option<String> {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (all, failed) = (count(&self.looked_up), count(&self.failed));
        let changes = count(&self.version);
        (all > 0).then(|| format!("{all} times, {changes} with other addresses, {failed} failed"))
    }
}

/// Looks up until it is dropped.
pub(super) struct Refresher {
    /// Whose end is the thread's.
    _stop: mpsc::Sender<()>,
}

/// Starts a thread that looks up `every` so often; `first` are the addresses that workers begin with, and a URL for which none are found
/// keeps what it had, so that no request fails for want of an address. The thread is not waited for: a
/// resolver may take half a minute to give up.
pub(super) fn start(
    every: Nanos,
    published: &Arc<Published>,
    first: Lists,
    mut look_up: impl FnMut() -> Lists + Send + 'static,
) -> Result<Refresher, RunError> {
    let (stop, stopped) = mpsc::channel();
    let published = Arc::clone(published);
    let every = Duration::from_nanos(every.0);
    let mut known = first;
    let work = move || {
        // It must not cost a worker its core.
        priority::give_way();
        while stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
            published.looked_up.fetch_add(1, Ordering::Relaxed);
            let mut found = look_up();
            let gone = found.iter().any(Vec::is_empty);
            published
                .failed
                .fetch_add(u64::from(gone), Ordering::Relaxed);
            for (list, known) in found.iter_mut().zip(&known) {
                if list.is_empty() {
                    list.clone_from(known);
                }
            }
            // Resolvers change the order from answer to answer; that is no change.
            if sorted(&found) != sorted(&known) {
                known.clone_from(&found);
                published.publish(found);
            }
        }
    };
    let builder = std::thread::Builder::new().name("resolver".to_owned());
    let started = builder.spawn(work);
    started.map_err(|error| {
        RunError::Thread(format!("cannot start the resolver's thread: {error}"))
    })?;
    Ok(Refresher { _stop: stop })
}

fn sorted(lists: &Lists) -> Lists {
    let mut lists = lists.clone();
    lists.iter_mut().for_each(|list| list.sort_unstable());
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_addresses_are_published_and_failures_change_nothing() {
        let list = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect();
        let lists = |one: &[&str], other: &[&str]| -> Lists { vec![list(one), list(other)] };
        let first = lists(&["1.1.1.1:1", "[::1]:1"], &["9.9.9.9:1"]);
        let answers = [
            lists(&[], &[]),
            lists(&["[::1]:1", "1.1.1.1:1"], &["9.9.9.9:1"]),
            // One name has an address and the other has none.
            lists(&["2.2.2.2:1"], &[]),
            lists(&[], &[]),
            lists(&[], &["8.8.8.8:1"]),
        ];
        let published = Arc::new(Published::default());
        let (tell, hear) = mpsc::channel();
        let mut answers = answers.into_iter();
        let refresher = start(Nanos(1_000), &published, first, move || {
            let answer = answers.next();
            if answer.is_none() {
                let _ = tell.send(());
            }
            answer.unwrap_or_else(|| vec![Vec::new(); 2])
        });
        hear.recv().unwrap();
        drop(refresher.unwrap());
        let (version, latest) = published.since(0).unwrap();
        assert_eq!(
            (version, &*latest),
            (2, &lists(&["2.2.2.2:1"], &["8.8.8.8:1"]))
        );
        assert_eq!(published.since(version), None);
        let told = published.told().unwrap();
        assert!(told.contains("2 with other addresses"), "{told}");
    }
}
