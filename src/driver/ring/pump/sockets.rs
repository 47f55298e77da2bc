//! Sockets of connections that are being opened.
//!
//! In: a server's address. Out: a socket from a local address that has a port for it. Never: the same local address twice for one
//! connection, or an error while another is untried.

use std::io;
use std::net::SocketAddr;

use socket2::{SockAddr, Socket};

use crate::driver::socket::Tries;
use crate::driver::{WaitMode, ports, stamping};

use super::{BUSY_POLL_MICROS, Pump};

impl Pump {
    /// A socket from the next local address that can be bound to.
    pub(super) fn new_socket(
        &mut self,
        address: SocketAddr,
        tries: &mut Tries,
    ) -> io::Result<(Socket, SockAddr)> {
        let (socket, address) = self.opener.open(address, tries)?;
        stamping::ask(&socket)?;
        if self.waiting.mode == WaitMode::Spin {
            let refused = socket.set_busy_poll(BUSY_POLL_MICROS).is_err();
            self.tally.unpolled += u64::from(refused);
        }
        Ok((socket, address))
    }

    /// A connect found no port: it is tried again in the whole range, then from the next local address. False when nothing is left to try.
    pub(super) fn connect_again(&mut self, place: u32, address: SockAddr) -> io::Result<bool> {
        let Some(link) = self.links.at(place) else {
            return Ok(false);
        };
        let mut tries = link.tries;
        let mut address = address;
        // All ports of its window are taken, perhaps none elsewhere.
        if !(std::mem::take(&mut link.narrowed) && ports::widen(&link.socket).is_ok()) {
            let to = address.as_socket().filter(|_| tries.are_left());
            let opened = to.map(|to| self.new_socket(to, &mut tries));
            let (Some(Ok((socket, to))), Some(link)) = (opened, self.links.at(place)) else {
                return Ok(false);
            };
            link.narrowed = ports::narrow(&socket);
            link.tries = tries;
            link.socket = socket;
            address = to;
        }
        self.begin_connect(place, address)?;
        Ok(true)
    }

    /// Connects the socket at `place` to `address`.
    pub(super) fn begin_connect(&mut self, place: u32, address: SockAddr) -> io::Result<()> {
        if let Some(link) = self.links.at(place) {
            link.operations += 1;
            link.other = Some(self.ring.connect(place, &link.socket, address)?);
        }
        Ok(())
    }
}
