//! Kept connections that wait too long for a request.
//!
//! In: the time. Out: closed connections. Never: closes one that carries a request.
//!
//! Servers and what stands before them close idle connections after a time of their own. A request that goes out on such a connection
//! just then is lost or has to be sent again, so the client closes first.

use crate::clock::Tick;
use crate::driver::ConnId;

use super::Engine;
use super::conn::State;

impl Engine {
    /// Closes pooled connections that have waited too long, oldest first. Called at least every 20 ms while a run is on.
    pub(super) fn sweep_idle(&mut self, now: Tick) {
        let Some(most) = self.setup.connects.idle else {
            return;
        };
        let most = self.setup.rate.ticks(most);
        for conn in self.table.take_idle_since(now, most) {
            self.close(conn);
            self.counts.idle_closed += 1;
        }
    }

    /// A session's own connection `conn` may carry its next request; one that has waited too long is closed.
    pub(super) fn is_fresh(&mut self, conn: ConnId, now: Tick) -> bool {
        let most = self.setup.connects.idle;
        let Some(c) = self.table.current(conn) else {
            return false;
        };
        if c.state != State::Idle {
            return false;
        }
        let most = most.map(|most| self.setup.rate.ticks(most));
        let stale = most.is_some_and(|most| now.since(c.idle_since) >= most);
        if stale {
            self.close(conn);
            self.counts.idle_closed += 1;
        }
        !stale
    }
}
