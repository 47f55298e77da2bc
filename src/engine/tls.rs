//! TLS, driven by hand.
//!
//! In: ciphertext. Out: plaintext, and ciphertext to be sent. Never: I/O; rustls works on memory here.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::wire::Fault;

use super::TlsTarget;

/// TLS of one connection.
pub(super) struct Tls {
    inner: rustls::ClientConnection,
    peer_closed: bool,
}

impl Tls {
    /// Begins a handshake; its first bytes wait in [`Tls::take_outgoing`].
    pub(super) fn new(target: &TlsTarget) -> Result<Tls, Fault> {
        let inner = rustls::ClientConnection::new(Arc::clone(&target.config), target.name.clone())
            .map_err(|_| Fault::Tls)?;
        Ok(Tls {
            inner,
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
