//! The sockets of the ring driver.
//!
//! In: connections of the engine. Out: their sockets, each kept until the kernel is done with it. Never: closes a descriptor that
//! an operation still names, or gives its place away before.

use socket2::Socket;

use crate::clock::Tick;
use crate::driver::socket::Tries;
use crate::driver::window::Gaps;
use crate::driver::{ConnId, Sent, fetch_front};

/// Where a socket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Being opened since then.
    Connecting(Tick),
    /// Open; also after the peer has closed its side, until the engine closes ours.
    Open,
    /// Nothing of it is reported any more; it goes when its last operation has.
    Closing,
}

/// One socket. What every read needs stands first, in one line.
#[repr(C, align(64))]
pub(super) struct Link {
    pub(super) conn: ConnId,
    pub(super) state: State,
    /// Between its reads.
    pub(super) gaps: Gaps,
    pub(super) socket: Socket,
    /// Operations that the kernel holds.
    pub(super) operations: u32,
    /// It may take a port of one window only.
    pub(super) narrowed: bool,
    /// Local addresses that it is still to be tried from.
    pub(super) tries: Tries,
    /// Key of the receive under way.
    pub(super) receive: Option<u64>,
    /// Key of the connect or send under way.
    pub(super) other: Option<u64>,
    /// The send under way: how it goes, and how much is done.
    pub(super) sending: Option<(Sent, usize)>,
}

/// All sockets of one worker.
#[derive(Default)]
pub(super) struct Links {
    slots: Vec<Option<Link>>,
    free: Vec<u32>,
    /// By the engine's index of a connection: the link that carries it now.
    current: Vec<Option<u32>>,
}

impl Links {
    /// Whose the link in `place` is.
    pub(super) fn conn(&self, place: u32) -> Option<ConnId> {
        let link = self.slots.get(place as usize)?.as_ref()?;
        Some(link.conn)
    }

    /// Asks for what a read needs of the link in `place`.
    pub(super) fn fetch(&self, place: u32) {
        if let Some(slot) = self.slots.get(place as usize) {
            fetch_front(slot, 1);
        }
    }

    /// A place for a new socket.
    pub(super) fn open(&mut self, conn: ConnId, socket: Socket, started: Tick) -> u32 {
        let link = Link {
            conn,
            state: State::Connecting(started),
            gaps: Gaps::default(),
            socket,
            operations: 0,
            narrowed: false,
            tries: Tries::default(),
            receive: None,
            other: None,
            sending: None,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = Some(link);
                place
            }
            None => {
                self.slots.push(Some(link));
                u32::try_from(self.slots.len() - 1).expect("descriptors fit 32 bits")
            }
        };
        let index = conn.index as usize;
        if self.current.len() <= index {
            self.current.resize(index + 1, None);
        }
        self.current[index] = Some(place);
        place
    }

    /// The link that carries `conn` now.
    pub(super) fn find(&self, conn: ConnId) -> Option<u32> {
        let place = (*self.current.get(conn.index as usize)?)?;
        let link = self.slots[place as usize].as_ref()?;
        (link.conn == conn && link.state != State::Closing).then_some(place)
    }

    /// The link in `place`.
    pub(super) fn at(&mut self, place: u32) -> Option<&mut Link> {
        self.slots.get_mut(place as usize)?.as_mut()
    }

    /// The link in `place` is closed as soon as the kernel is done with it; says whether it still has operations.
    pub(super) fn close(&mut self, place: u32) -> bool {
        let Some(link) = self.at(place) else {
            return false;
        };
        link.state = State::Closing;
        let (index, busy) = (link.conn.index as usize, link.operations > 0);
        if self.current[index] == Some(place) {
            self.current[index] = None;
        }
        if !busy {
            self.free(place);
        }
        busy
    }

    /// An operation of the link in `place` is over.
    pub(super) fn ended(&mut self, place: u32) {
        let Some(link) = self.at(place) else { return };
        link.operations -= 1;
        if link.operations == 0 && link.state == State::Closing {
            self.free(place);
        }
    }

    /// Places of all links.
    pub(super) fn places(&self) -> Vec<u32> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.is_some())
            .map(|(place, _)| place)
            .collect()
    }

    /// Sockets held.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Drops the socket, which closes its descriptor.
    fn free(&mut self, place: u32) {
        self.slots[place as usize] = None;
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};

    fn conn(index: u32, generation: u32) -> ConnId {
        ConnId { index, generation }
    }

    fn socket() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
    }

    #[test]
    fn a_socket_stays_until_its_last_operation() {
        let mut links = Links::default();
        let old = links.open(conn(5, 0), socket(), Tick(1));
        links.at(old).unwrap().operations = 2;
        assert!(links.close(old));
        assert_eq!(links.find(conn(5, 0)), None, "it is closed to the engine");
        // The engine uses the index again while the kernel still has the old socket.
        let new = links.open(conn(5, 1), socket(), Tick(2));
        assert_ne!(old, new);
        assert_eq!(links.find(conn(5, 1)), Some(new));
        assert_eq!(links.find(conn(5, 0)), None);
        links.ended(old);
        assert_eq!(links.count(), 2);
        links.ended(old);
        assert_eq!(links.count(), 1);
        assert_eq!(
            links.find(conn(5, 1)),
            Some(new),
            "closing the old one left the new one"
        );
        assert!(!links.close(new));
        assert_eq!((links.count(), links.places()), (0, Vec::new()));
        assert_eq!(links.find(conn(99, 0)), None);
    }
}
