//! The end of a run.
//!
//! In: sockets that are still open when the engine has finished. Out: none, or how many the kernel held. Never: waits without an end.

use std::io;

use crate::driver::last_waits::LastWaits;
use crate::driver::ring::links::State;
use crate::driver::ring::{LAST_WAIT, Wait};

use super::{Pump, READY_MOST};

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
        let mut waits = LastWaits::new(LAST_WAIT);
        while let Some(wait) = waits.next()
            && self.links.count() > 0
        {
            let before = self.ring.busy();
            self.enter(Wait::For(wait))?;
            self.deliver()?;
            waits.over(before, self.ring.busy());
        }
        self.tally.held = self.links.count() as u64;
        Ok(())
    }
}
