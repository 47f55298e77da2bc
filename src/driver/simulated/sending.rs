//! Sends of a simulation.
//!
//! In: bytes of an engine. Out: the same at its peer, whole or in parts, and the buffer given back once. Never: a second send on a
//! connection before the first is over.

use crate::driver::{CloseReason, ConnId, Sent};

use super::faults::strikes;
use super::pump::Completion;
use super::world::{Event, World};

/// A send of which the kernel has taken a part.
pub(super) struct Sending {
    pub(super) link: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) sent: Sent,
    /// Bytes taken so far, and to be taken before an error comes or the end.
    from: usize,
    most: usize,
}

impl World {
    pub(super) fn send(&mut self, engine: usize, conn: ConnId, bytes: Vec<u8>) {
        self.buffers_out += 1;
        let now = self.now;
        let mut sent = Sent {
            first: now,
            last: now,
            writes: 1,
            error: None,
        };
        self.known(engine, conn, "sent on");
        let Some(link) = self.link_of(engine, conn) else {
            sent.error = Some(CloseReason::Io);
            self.buffers_out -= 1;
            return self.workers[engine].engine.on_sent(conn, bytes, sent);
        };
        if std::mem::replace(&mut self.links[link].sending, true) {
            self.breaches
                .push(format!("{conn:?} was given two sends at once"));
        }
        let mut taken = bytes.len();
        if self.links[link].ended == Some(CloseReason::Reset) {
            taken = 0;
            sent.writes = 0;
            sent.error = Some(CloseReason::Reset);
        } else if strikes!(self, send_error) {
            taken = self.chance.index(bytes.len());
            sent.error = Some([CloseReason::Reset, CloseReason::Io][self.chance.index(2)]);
        }
        if taken > 1 && strikes!(self, short_write) {
            return self.send_on(Sending {
                link,
                bytes,
                sent,
                from: 0,
                most: taken,
            });
        }
        let mut from = 0;
        if strikes!(self, request_split) {
            from = self.chance.index(taken);
            sent.writes += u32::from(from > 0);
            if from > 0 {
                self.send_to_peer(link, bytes[..from].to_vec());
            }
        }
        if from < taken {
            self.send_to_peer(link, bytes[from..taken].to_vec());
        }
        if strikes!(self, late_sent) {
            sent.last = now.plus(self.chance.below(4_000_000));
            self.schedule(sent.last, Event::Sent { link, bytes, sent });
        } else {
            self.links[link].sending = false;
            self.buffers_out -= 1;
            self.workers[engine].engine.on_sent(conn, bytes, sent);
        }
    }

    /// The kernel takes another part, of at least a quarter.
    pub(super) fn send_on(&mut self, mut sending: Sending) {
        let link = sending.link;
        let state = &self.links[link];
        if state.closed || state.ended == Some(CloseReason::Reset) {
            let closed = state.closed;
            sending.sent.error = Some([CloseReason::Reset, CloseReason::Io][usize::from(closed)]);
            sending.most = sending.from;
        }
        let left = sending.most - sending.from;
        let least = sending.most.div_ceil(4).min(left);
        let part = least + self.chance.index(left - least + 1);
        if part > 0 {
            let end = sending.from + part;
            self.send_to_peer(link, sending.bytes[sending.from..end].to_vec());
            sending.sent.writes += u32::from(sending.from > 0);
            sending.from = end;
        }
        if sending.from < sending.most {
            let at = self.now.plus(1 + self.chance.below(2_000_000));
            return self.schedule(at, Event::SendOn(sending));
        }
        sending.sent.last = self.now;
        self.links[link].sending = false;
        self.give_back(link, sending.bytes, sending.sent);
    }

    pub(super) fn give_back(&mut self, link: usize, bytes: Vec<u8>, sent: Sent) {
        self.buffers_out -= 1;
        self.report(link, Completion::Sent { bytes, sent });
    }
}
