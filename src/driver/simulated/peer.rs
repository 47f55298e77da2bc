//! The server's side of one simulated connection.
//!
//! In: bytes that the engine sent. Out: requests, and bytes for the engine. Never: decides what is answered, or when.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use crate::clock::Nanos;

use super::answer::Ending;
use super::proxy::Proxy;

/// What the peer of one connection knows.
pub(super) struct Peer {
    tls: Option<rustls::ServerConnection>,
    /// What stands before it, until there is a tunnel.
    pub(super) proxy: Option<Proxy>,
    /// Plaintext not yet taken as a request.
    inbox: Vec<u8>,
    /// Pieces of the answer that are still to come.
    pub(super) script: VecDeque<(Nanos, Vec<u8>)>,
    /// What comes after them.
    pub(super) ending: Ending,
    /// It closes after the answer.
    pub(super) closes: bool,
    /// What it sends below TLS after an orderly end.
    pub(super) after_end: Vec<u8>,
    /// A request is being answered.
    pub(super) answering: bool,
    /// Requests taken.
    pub(super) served: u32,
    /// It sends nothing more.
    pub(super) ended: bool,
    /// It takes what still comes, and says nothing to it.
    pub(super) deaf: bool,
    /// It has taken what came first, and never says anything.
    pub(super) mute: bool,
}

/// A request's head and body.
pub(super) type HeadAndBody = (Vec<u8>, Vec<u8>);

impl Peer {
    pub(super) fn new(tls: Option<&Arc<rustls::ServerConfig>>) -> Peer {
        let tls = tls.map(|config| {
            rustls::ServerConnection::new(Arc::clone(config))
                .expect("a server configuration makes connections")
        });
        Peer {
            tls,
            proxy: None,
            inbox: Vec::new(),
            script: VecDeque::new(),
            ending: Ending::Whole,
            closes: false,
            after_end: Vec::new(),
            answering: false,
            served: 0,
            ended: false,
            deaf: false,
            mute: false,
        }
    }

    /// Its bytes are TLS.
    pub(super) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Takes bytes off the wire. False when TLS cannot read them.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> bool {
        let Some(tls) = &mut self.tls else {
            self.inbox.extend_from_slice(bytes);
            return true;
        };
        while !bytes.is_empty() {
            if !matches!(tls.read_tls(&mut bytes), Ok(1..)) {
                return false;
            }
            let Ok(state) = tls.process_new_packets() else {
                return false;
            };
            let begin = self.inbox.len();
            self.inbox
                .resize(begin + state.plaintext_bytes_to_read(), 0);
            if tls.reader().read_exact(&mut self.inbox[begin..]).is_err() {
                return false;
            }
        }
        true
    }

    /// Whether a request has begun to arrive.
    pub(super) fn has_bytes(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The head of the request that is arriving, once it is whole.
    pub(super) fn head(&self) -> Option<&[u8]> {
        let end = self.inbox.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        Some(&self.inbox[..end])
    }

    /// Takes the next whole request, if it is there.
    pub(super) fn take_request(&mut self) -> Option<HeadAndBody> {
        let head = self.head()?;
        let length = content_length(head);
        let body_begin = head.len();
        if self.inbox.len() < body_begin + length {
            return None;
        }
        let rest = self.inbox.split_off(body_begin + length);
        let mut head = std::mem::replace(&mut self.inbox, rest);
        let body = head.split_off(body_begin);
        Some((head, body))
    }

    /// Takes a head as a request without waiting for the body.
    pub(super) fn take_early(&mut self) -> Option<HeadAndBody> {
        let head = self.head()?.to_vec();
        let body = self.inbox.split_off(head.len());
        self.inbox.clear();
        Some((head, body))
    }

    /// Puts plaintext onto the wire.
    pub(super) fn say(&mut self, plain: &[u8]) -> Vec<u8> {
        let Some(tls) = &mut self.tls else {
            return plain.to_vec();
        };
        tls.set_buffer_limit(None);
        // Writing to memory cannot fail without a limit.
        let _ = tls.writer().write_all(plain);
        self.outgoing()
    }

    /// The last bytes before an orderly end: close_notify in TLS.
    pub(super) fn farewell(&mut self) -> Vec<u8> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.outgoing()
    }

    /// Bytes that TLS wants to send.
    pub(super) fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() && matches!(tls.write_tls(&mut bytes), Ok(1..)) {}
        }
        bytes
    }
}

fn content_length(head: &[u8]) -> usize {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = text
        .split("\r\n")
        .find_map(|line| line.strip_prefix("content-length:"));
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}
