//! What can be done before it is needed.
//!
//! In: connections that were read, a reply that begins. Out: memory at hand, room for what comes. Never: a change that anybody could see.

use crate::driver::ConnId;
use crate::record::Exchange;

use super::Engine;

/// Room is made for at most this many events; a longer reply grows as it comes.
const EVENTS_MOST: usize = 8_192;

/// Room is made for at most so much body. An exchange that is used again keeps as much, since it is not made room in twice.
pub const BODY_BYTES_MOST: usize = 2 << 20;

/// Events beside those of tokens: a role, a finish reason, usage, `[DONE]`.
const OTHER_EVENTS: usize = 4;

impl Engine {
    /// Asks for the memory that [`Engine::on_received`] will need for each of `conns`. Each step of the way would wait for it in turn; asked
    /// for together, the waits are two: for where everything is, and for that.
    pub fn look_ahead(&self, conns: impl Iterator<Item = ConnId> + Clone) {
        for conn in conns.clone() {
            self.table.fetch_slot(conn);
        }
        for conn in conns {
            self.table.fetch_flight(conn);
        }
    }
}

/// Makes room in an exchange that is used for the first time for `tokens` events of `event_bytes` each. Growing by and by would copy a
/// reply as often as it doubles, in memory that is touched for the first time; what is never written costs nothing.
pub(super) fn make_room(exchange: &mut Exchange, tokens: u32, event_bytes: u64) {
    let events = (tokens as usize + OTHER_EVENTS).min(EVENTS_MOST);
    if exchange.events.capacity() >= events {
        return;
    }
    exchange.events.reserve(events);
    exchange.reads.reserve(events);
    let event_bytes = usize::try_from(event_bytes).unwrap_or(usize::MAX);
    let bytes = events.saturating_mul(event_bytes).min(BODY_BYTES_MOST);
    exchange.body.reserve(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_once_and_within_bounds() {
        let mut exchange = Exchange::default();
        make_room(&mut exchange, 300, 200);
        let room = |exchange: &Exchange| {
            let reads = exchange.reads.capacity();
            (exchange.events.capacity(), reads, exchange.body.capacity())
        };
        let first = room(&exchange);
        assert!(first.0 >= 304 && first.1 >= 304 && first.2 >= 304 * 200);
        make_room(&mut exchange, 300, 10_000);
        assert_eq!(room(&exchange), first, "one that was used has its size");
        let mut endless = Exchange::default();
        make_room(&mut endless, u32::MAX, u64::MAX);
        let (events, reads, body) = room(&endless);
        assert!(events.max(reads) < 2 * EVENTS_MOST && body <= BODY_BYTES_MOST);
    }
}
