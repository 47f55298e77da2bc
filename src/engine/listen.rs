//! Replies that a later turn needs, read between what is due.
//!
//! In: streams under way and replies that have ended. Out: sessions that go on. Never: more than a few events at a time, or anything while a
//! completion waits to be handed over or a send is due.

use std::collections::VecDeque;

use crate::clock::{Nanos, Tick};
use crate::driver::ConnId;
use crate::record::Exchange;

use super::Engine;
use super::session::Session;

/// Events read between two looks at what has come: some ten microseconds of work.
const EVENTS_A_STEP: usize = 32;

/// Reads remembered as not listened to; what came with others is read when its reply has ended.
pub(super) const UNREAD_MOST: usize = 1_024;

/// Before the next step of a reply that has ended, so that what has come meanwhile is stamped first.
const BETWEEN_STEPS: Nanos = Nanos(2_000);

/// Streams whose latest events have not been read.
pub(super) type Unread = VecDeque<ConnId>;

/// A reply that has ended and that its session has yet to hear.
pub(super) struct Unheard {
    pub(super) exchange: Box<Exchange>,
    pub(super) session: Session,
    pub(super) serial: u64,
    pub(super) end: Tick,
}

impl Engine {
    /// A later turn needs something that has come and has not been read.
    pub(super) fn has_to_listen(&self) -> bool {
        !self.unheard.is_empty() || !self.unread.is_empty()
    }

    /// Reads a little. Says when to ask again if a reply that has ended is not read to its end.
    pub(super) fn listen(&mut self, now: Tick) -> Option<Tick> {
        let mut most = EVENTS_A_STEP;
        while most > 0
            && let Some(mut first) = self.unheard.pop_front()
        {
            if let Some(reader) = &mut first.session.reader {
                most -= reader.step(&first.exchange, most);
                if reader.left(&first.exchange) > 0 {
                    self.unheard.push_front(first);
                    break;
                }
            }
            // The rest of it is work too: a whole answer, and the next body.
            most /= 2;
            self.heard(first.session, &first.exchange, first.serial, first.end);
            self.sink.push(first.exchange);
            self.quiet = None;
        }
        while most > 0
            && let Some(conn) = self.unread.pop_front()
        {
            let flight = self.table.current(conn).and_then(|c| c.flight.as_mut());
            let Some(flight) = flight else { continue };
            let reader = flight.session.as_mut().and_then(|s| s.reader.as_mut());
            let Some(reader) = reader else { continue };
            most -= reader.step(&flight.exchange, most);
            if reader.left(&flight.exchange) > 0 {
                self.unread.push_front(conn);
            }
        }
        let pause = self.setup.rate.ticks(BETWEEN_STEPS).max(1);
        (!self.unheard.is_empty()).then(|| now.plus(pause))
    }

    /// Sessions that have yet to hear a reply, and will not go on.
    pub(super) fn drop_unheard(&mut self, now: Tick) {
        for unheard in std::mem::take(&mut self.unheard) {
            let phase = unheard.exchange.id.phase;
            self.drop_session(&unheard.session, phase, now);
            self.ended.push(unheard.exchange);
        }
    }
}
