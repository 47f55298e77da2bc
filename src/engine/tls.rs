//! TLS, driven by hand.
//!
//! In: ciphertext. Out: plaintext, and ciphertext to be sent. Never: I/O, rustls works on memory here; or more than one long record
//! decrypted before the driver may look at what has completed.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::clock::Tick;
use crate::driver::{CloseReason, ConnId, Stamp};
use crate::record::Outcome;
use crate::wire::Fault;

use super::conn::State;
use super::flight::arrival;
use super::records::{Records, STRETCH};
use super::{Engine, TlsTarget};

/// TLS of one connection.
pub(super) struct Tls {
    inner: rustls::ClientConnection,
    records: Records,
    peer_closed: bool,
}

impl Tls {
    /// Begins a handshake; its first bytes wait in [`Tls::take_outgoing`].
    pub(super) fn new(target: &TlsTarget) -> Result<Tls, Fault> {
        let inner = rustls::ClientConnection::new(Arc::clone(&target.config), target.name.clone())
            .map_err(|_| Fault::Tls)?;
        Ok(Tls {
            inner,
            records: Records::default(),
            peer_closed: false,
        })
    }

    /// The handshake is over: requests may be sent.
    pub(super) fn is_ready(&self) -> bool {
        !self.inner.is_handshaking()
    }

    /// The peer said that it sends nothing more (close_notify).
    pub(super) fn closed_cleanly(&self) -> bool {
        self.peer_closed
    }

    /// How much of `data` may be decrypted at a stretch in which `spent` was, and what that costs. A step of the handshake takes longer
    /// than any record, and is a stretch of its own.
    fn next_stretch(&mut self, data: &[u8], spent: usize) -> (usize, usize) {
        let early = !self.is_ready();
        let room = if early { 0 } else { STRETCH };
        let left = room.saturating_sub(spent);
        let (taken, cost) = self.records.take(data, left, spent == 0);
        (taken, if early && cost > 0 { STRETCH } else { cost })
    }

    /// Takes ciphertext; appends the plaintext it held to `plain`.
    pub(super) fn receive(&mut self, mut data: &[u8], plain: &mut Vec<u8>) -> Result<(), Fault> {
        while !data.is_empty() {
            if self.inner.read_tls(&mut data).map_err(|_| Fault::Tls)? == 0 {
                // Nothing is read after close_notify.
                return Ok(());
            }
            let early = self.inner.is_handshaking();
            let state = self
                .inner
                .process_new_packets()
                .map_err(|error| fault(&error, early))?;
            let begin = plain.len();
            plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            self.inner
                .reader()
                .read_exact(&mut plain[begin..])
                .map_err(|_| Fault::Tls)?;
            self.peer_closed |= state.peer_has_closed();
        }
        Ok(())
    }

    /// Encrypts `plain`; the ciphertext waits in [`Tls::take_outgoing`].
    pub(super) fn send(&mut self, plain: &[u8]) -> Result<(), Fault> {
        self.inner.writer().write_all(plain).map_err(|_| Fault::Tls)
    }

    /// No bound on the plaintext that waits for encryption: a request is one body, whose size the plan chose.
    pub(super) fn unbound(&mut self) {
        self.inner.set_buffer_limit(None);
    }

    /// Appends the ciphertext that waits to be sent.
    pub(super) fn take_outgoing(&mut self, out: &mut Vec<u8>) {
        while self.inner.wants_write() {
            if self.inner.write_tls(out).is_err() {
                return;
            }
        }
    }
}

/// What was decrypted since the driver last looked at what has completed, and how far the read under way is.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    spent: usize,
    within: bool,
    /// Bytes of the read under way that were taken in earlier stretches.
    taken: usize,
}

impl Stretch {
    /// A read was taken in part, and the rest of it is to come.
    pub(super) fn is_within_a_read(&self) -> bool {
        self.within
    }

    /// The driver looks now.
    pub(super) fn ended(&mut self) {
        self.spent = 0;
    }
}

impl Engine {
    /// Decrypts as much of `data` as may be at a stretch. What it held is handed on when the whole read is decrypted: it has one stamp.
    pub(super) fn on_ciphertext(&mut self, conn: ConnId, data: &[u8], stamp: Stamp) -> usize {
        let tls = self.table.current(conn).and_then(|c| c.tls.as_mut());
        let Some(tls) = tls else { return data.len() };
        if !self.stretch.within {
            self.plain.clear();
            self.stretch.taken = 0;
        }
        let came = arrival(stamp, self.setup.stamps);
        let (taken, cost) = tls.next_stretch(data, self.stretch.spent);
        let outcome = tls.receive(&data[..taken], &mut self.plain);
        self.stretch.taken += taken;
        self.stretch.within = outcome.is_ok() && taken < data.len();
        if self.stretch.within {
            self.stretch.ended();
            return taken;
        }
        self.stretch.spent += cost;
        match outcome {
            Ok(()) => self.read_decrypted(conn, stamp, came),
            Err(fault) => self.finish(conn, Outcome::Fault(fault), came),
        }
        data.len()
    }

    /// All plaintext of a read is there.
    fn read_decrypted(&mut self, conn: ConnId, stamp: Stamp, came: Tick) {
        self.flush_tls(conn);
        self.after_handshake(conn, came);
        let plain = std::mem::take(&mut self.plain);
        if !plain.is_empty() {
            self.on_plain(conn, &plain, self.stretch.taken, stamp);
        }
        self.plain = plain;
        let over = self.table.current(conn).and_then(|c| c.tls.as_ref());
        if over.is_some_and(|tls| tls.closed_cleanly()) {
            // close_notify ends the peer's side, whether or not the connection ends with it (RFC 8446 section 6.1).
            self.on_closed(conn, CloseReason::Eof, stamp.tick);
        }
    }

    fn after_handshake(&mut self, conn: ConnId, tick: Tick) {
        let Some(c) = self.table.current(conn) else {
            return;
        };
        let ready = c.tls.as_ref().is_some_and(|tls| tls.is_ready());
        if c.state == State::Handshaking && ready {
            c.tls_end = c.tls_end.min(tick);
            let Some(flight) = &mut c.flight else {
                return self.opened_ahead(conn);
            };
            flight.exchange.ticks.tls_end = tick;
            c.state = State::Busy;
            self.send_request(conn);
        }
    }
}

/// Which fault an error of rustls is. `early`: the handshake was not over.
fn fault(error: &rustls::Error, early: bool) -> Fault {
    use rustls::CertificateError as Wrong;
    match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::UnknownIssuer => Fault::TlsUnknownAuthority,
            Wrong::Expired
            | Wrong::ExpiredContext { .. }
            | Wrong::NotValidYet
            | Wrong::NotValidYetContext { .. } => Fault::TlsExpired,
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => Fault::TlsWrongName,
            _ => Fault::TlsCertificate,
        },
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) if early => {
            Fault::TlsNotSpoken
        }
        rustls::Error::AlertReceived(_) => Fault::TlsRefused,
        _ => Fault::Tls,
    }
}
