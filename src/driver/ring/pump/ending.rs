//! The end of a run.
//!
//! In: sockets that are still open when the engine has finished. Out: none, or how many the kernel held. Never: waits without an end.

use std::io;
use std::time::Duration;

use crate::driver::ring::Wait;
use crate::driver::ring::links::State;

use super::{Pump, READY_MOST};

/// After the engine has finished, so many waits of [`LAST_WAIT`] in which no operation ends are enough.
const LAST_WAITS: u32 = 100;

/// See [`LAST_WAITS`].
const LAST_WAIT: Duration = Duration::from_millis(10);

impl Pump {
    /// Closes every socket and waits for the kernel to let go of them. Linux 6.13 and later end some 20 operations in one wait, so it
    /// is not the waits that are bounded, but those in which nothing ends.
    pub(super) fn close_all(&mut self) -> io::Result<()> {
        for (index, place) in self.links.places().into_iter().enumerate() {
            let closing = self
                .links
                .at(place)
                .is_none_or(|l| l.state == State::Closing);
            if !closing {
                self.close_place(place)?;
            }
            // As in the load: a long list of closes must not fill the queue of completions.
            if index % READY_MOST == READY_MOST - 1 {
                self.enter(Wait::No)?;
                self.deliver()?;
            }
        }
        let mut in_vain = 0;
        while self.links.count() > 0 && in_vain < LAST_WAITS {
            let before = self.ring.busy();
            self.enter(Wait::For(LAST_WAIT))?;
            self.deliver()?;
            in_vain = if self.ring.busy() < before {
                0
            } else {
                in_vain + 1
            };
        }
        self.tally.held = self.links.count() as u64;
        Ok(())
    }
}
