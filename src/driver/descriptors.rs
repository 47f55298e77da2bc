//! How many files this process may open.
//!
//! In: the number of connections a run can need. Out: a limit that allows it, or the number that is missing. Never: waits for the
//! kernel to refuse in mid-run.

/// Descriptors beside the connections: files, rings, timers, the standard streams, and some to spare.
const BESIDE: u64 = 64;

/// Raises the limit of open files to the hard limit, and that where the system lets this process, and says what is allowed where that is too few for `connections`.
#[cfg(unix)]
pub fn make_room(connections: u64) -> Result<(), TooFew> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let needed = connections.saturating_add(BESIDE);
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < needed) {
        // Only a privileged process may do this; elsewhere it changes nothing.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(needed),
                maximum: Some(needed),
            },
        );
    }
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // A refusal leaves the limit as it was, which is then what counts.
    let _ = setrlimit(Resource::Nofile, raised);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if allowed >= needed {
        Ok(())
    } else {
        Err(TooFew { needed, allowed })
    }
}

/// The limit of open files is too low for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this run can need {needed} open files, and this process may open {allowed}: raise the limit (ulimit -n {needed}), or ask for less --concurrency"
)]
pub struct TooFew {
    /// What the run can need.
    pub needed: u64,
    /// What the system allows.
    pub allowed: u64,
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_no_system_allows_is_refused_with_the_number() {
        assert_eq!(make_room(1), Ok(()));
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if let Some(allowed) = allowed {
            let refusal = make_room(allowed).unwrap_err();
            assert_eq!(refusal.needed, allowed + BESIDE);
            assert!(refusal.to_string().contains("--concurrency"), "{refusal}");
        }
    }
}
