//! Tunnels through a proxy.
//!
//! In: a connection to a proxy, its answer. Out: a connection to the server, or a fault that names the proxy. Never: a request before the tunnel
//! is there.

use crate::clock::Tick;
use crate::driver::ConnId;
use crate::record::Outcome;
use crate::wire::{ConnectReply, Fault, Step};

use super::Engine;
use super::conn::State;

/// The proxy wants to know who asks.
const AUTHENTICATION_REQUIRED: u16 = 407;

impl Engine {
    /// TCP to the proxy is there: a tunnel is asked for.
    pub(super) fn ask_for_tunnel(&mut self, conn: ConnId) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let Some(asks) = &self.setup.targets[usize::from(c.target)].tunnel else {
            return;
        };
        c.state = State::Tunnelling;
        c.tunnel = Some(ConnectReply::default());
        c.outbox.extend_from_slice(asks);
        self.start_send(conn);
    }

    /// The proxy answered, at least in part.
    pub(super) fn on_tunnel(&mut self, conn: ConnId, data: &[u8], came: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        // With the answer there, what follows before we have spoken is nobody's.
        let step = match &mut c.tunnel {
            Some(reply) => reply.feed(data, &self.setup.limits),
            None => Step::Wrong(Fault::ProxyBadReply),
        };
        let fault = match step {
            Step::More => return,
            Step::Done(200..300) => {
                c.tunnel = None;
                c.connect_end = came;
                if let Some(flight) = &mut c.flight {
                    flight.exchange.ticks.connect_end = came;
                }
                return self.link_up(conn, came);
            }
            Step::Done(AUTHENTICATION_REQUIRED) => Fault::ProxyAuthentication,
            Step::Done(_) => Fault::ProxyRefused,
            Step::Wrong(fault) => fault,
        };
        if let (Some(flight), Some(reply)) = (&mut c.flight, &c.tunnel) {
            // Its status and reason stand in the record.
            let bytes = &mut flight.exchange.head_bytes;
            bytes.clear();
            bytes.extend_from_slice(reply.head_bytes());
        }
        self.finish(conn, Outcome::Fault(fault), came);
    }
}
