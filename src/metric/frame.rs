//! What of a phase's plan and start decides its windows.
//!
//! In: a phase's plan, its start. Out: the window of the windowed metrics, the target of the steady state. Never: changes once set.

use super::Window;
use crate::config::{Arrivals, PhasePlan};

/// A phase as it was planned and begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseFrame {
    /// Its start, wall clock in nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// When sending ends by the clock.
    pub deadline_ns: Option<u64>,
    /// A number of requests or sessions, or a stop from outside, may end sending before.
    pub may_end_early: bool,
    /// `--concurrency` of the phase.
    pub concurrency: Option<u64>,
    /// A request is due when its slot came free.
    pub closed_loop: bool,
    /// A request is due when the dataset says.
    pub fixed_schedule: bool,
}

impl PhaseFrame {
    /// The frame of `phase`, begun at `start_ns`.
    #[must_use]
    pub fn of(phase: &PhasePlan, start_ns: u64) -> PhaseFrame {
        let duration = phase.stop.duration;
        PhaseFrame {
            start_ns,
            deadline_ns: duration.map(|length| start_ns.saturating_add(length.0)),
            may_end_early: phase.stop.requests.or(phase.stop.sessions).is_some(),
            concurrency: phase.concurrency.map(|most| most as u64),
            closed_loop: phase.arrivals == Arrivals::ClosedLoop,
            fixed_schedule: phase.arrivals == Arrivals::FixedSchedule,
        }
    }

    /// The interval that windowed metrics are of, when the phase's requests filled `measured`: from its start to the end of its duration.
    /// Without one, and where something else ended sending before, to the end of its last request, if that was before.
    #[must_use]
    pub fn window(&self, measured: Window) -> Window {
        let end_ns = match self.deadline_ns {
            Some(deadline) if !self.may_end_early => deadline,
            Some(deadline) => deadline.min(measured.end_ns),
            None => measured.end_ns,
        };
        Window {
            start_ns: self.start_ns.min(measured.start_ns),
            end_ns,
        }
    }
}
