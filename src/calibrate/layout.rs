//! Which process runs on which cores.
//!
//! In: the process's mask and the plan. Out: [`Layout`]. Never: a core for both sides.

use super::CalibrateError;
use crate::config::CalibratePlan;

/// The cores of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// For the client's workers.
    pub(super) workers: Vec<usize>,
    /// For the client's process: its workers' cores and those that nobody else has.
    pub(super) client: Vec<usize>,
    /// For the server's process.
    pub(super) server: Vec<usize>,
}

impl Layout {
    /// Deals out the cores of `mask`: what the plan names, else the last two for one server and one worker.
    pub(super) fn choose(plan: &CalibratePlan, mask: &[usize]) -> Result<Layout, CalibrateError> {
        if mask.len() < 2 {
            return Err(CalibrateError::OneCore);
        }
        let named = [("--cpus", &plan.cpus), ("--server-cpus", &plan.server_cpus)];
        for (flag, cores) in named {
            if let Some(&core) = cores.iter().find(|core| !mask.contains(core)) {
                let allowed = mask.to_vec();
                return Err(CalibrateError::Core {
                    flag,
                    core,
                    allowed,
                });
            }
        }
        // The last of the mask that the other side does not have; there are two at least, but the plan may have taken all.
        let last = |taken: &[usize], flag| {
            let free = mask.iter().rev().find(|core| !taken.contains(core));
            free.map(|core| vec![*core])
                .ok_or(CalibrateError::NoCoreLeft { flag })
        };
        let server = match plan.server_cpus.as_slice() {
            [] => last(&plan.cpus, "--cpus")?,
            cores => cores.to_vec(),
        };
        let workers = match plan.cpus.as_slice() {
            [] => last(&server, "--server-cpus")?,
            cores => cores.to_vec(),
        };
        let client = mask.iter().copied().filter(|core| !server.contains(core));
        Ok(Layout {
            client: client.collect(),
            workers,
            server,
        })
    }
}
