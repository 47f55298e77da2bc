//! One request and its answer, before the load.
//!
//! In: a URL's addresses, how it is reached. Out: a status and a body. Never: another way than the load's: addresses, sockets, proxy and TLS
//! are the same.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::TargetUrl;
use crate::driver::{Blocking, SocketOptions};
use crate::wire::{ConnectReply, Limits, Response, Step, write_request_head};

/// How a URL is reached.
pub(super) struct Way<'a> {
    /// The URL.
    pub(super) url: &'a TargetUrl,
    /// What goes into the `Host` header.
    pub(super) host: &'a str,
    /// Where connections go.
    pub(super) addresses: &'a [SocketAddr],
    /// How sockets are made.
    pub(super) sockets: &'a Arc<SocketOptions>,
    /// What asks a proxy for a tunnel.
    pub(super) tunnel: Option<&'a [u8]>,
    /// TLS, and the name that is asked for.
    pub(super) tls: Option<(
        Arc<rustls::ClientConfig>,
        rustls::pki_types::ServerName<'static>,
    )>,
}

/// What is asked.
pub(super) struct Question<'a> {
    /// `GET` or `POST`.
    pub(super) method: &'static str,
    /// Path and query.
    pub(super) target: &'a str,
    /// Header lines, whole.
    pub(super) fields: &'a [u8],
    /// Body, empty for none.
    pub(super) body: &'a [u8],
}

/// What was answered.
pub(super) struct Reply {
    /// Status.
    pub(super) status: u16,
    /// Body.
    pub(super) body: Vec<u8>,
}

/// Most bytes of an answer's body.
const BODY_MOST: usize = 16 << 20;

/// Asks, and waits for the whole answer up to `limit`.
///
/// # Errors
///
/// Why there is none, in words.
pub(super) fn ask(
    way: &Way<'_>,
    question: &Question<'_>,
    limit: Duration,
) -> Result<Reply, String> {
    let mut link =
        Blocking::connect(way.sockets, way.addresses, limit).map_err(|e| e.to_string())?;
    if let Some(tunnel) = way.tunnel {
        open_tunnel(&mut link, tunnel)?;
    }
    match &way.tls {
        None => converse(&mut link, way.host, question),
        Some((config, name)) => {
            let session = rustls::ClientConnection::new(Arc::clone(config), name.clone());
            let session = session.map_err(|error| error.to_string())?;
            converse(
                &mut rustls::StreamOwned::new(session, link),
                way.host,
                question,
            )
        }
    }
}

fn open_tunnel(link: &mut Blocking, tunnel: &[u8]) -> Result<(), String> {
    link.write_all(tunnel).map_err(|error| error.to_string())?;
    let mut reply = ConnectReply::default();
    let mut byte = [0; 1];
    loop {
        // One by one: what follows the answer is the server's.
        let count = link.read(&mut byte).map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("the proxy closed the connection".to_owned());
        }
        match reply.feed(&byte, &Limits::default()) {
            Step::More => {}
            Step::Done(200..300) => return Ok(()),
            Step::Done(status) => return Err(format!("the proxy answered {status}")),
            Step::Wrong(fault) => return Err(fault.message().to_owned()),
        }
    }
}

fn converse(
    link: &mut (impl Read + Write),
    host: &str,
    question: &Question<'_>,
) -> Result<Reply, String> {
    let mut head = Vec::new();
    let fields = |out: &mut Vec<u8>| out.extend_from_slice(question.fields);
    let Question {
        method,
        target,
        body,
        ..
    } = *question;
    write_request_head(&mut head, method, target, host, fields, body.len());
    let sent = link.write_all(&head).and_then(|()| link.write_all(body));
    sent.and_then(|()| link.flush())
        .map_err(|error| error.to_string())?;
    let limits = Limits {
        body_bytes: BODY_MOST,
        ..Limits::default()
    };
    let mut response = Response::new(limits);
    let (mut head_bytes, mut body) = (Vec::new(), Vec::new());
    let mut piece = vec![0; 16 << 10];
    loop {
        let step = match link.read(&mut piece) {
            Ok(count) if count > 0 => response.feed(&piece[..count], &mut head_bytes, &mut body),
            Ok(_) => match response.eof() {
                Ok(()) => Step::Done(0),
                Err(fault) => Step::Wrong(fault),
            },
            // rustls calls an end without close_notify an error; the framing knows whether all is there.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err("the connection ended inside the answer".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        };
        match step {
            Step::More => {}
            Step::Done(_) => {
                let status = response.head().map_or(0, |head| head.status);
                return Ok(Reply { status, body });
            }
            Step::Wrong(fault) => return Err(fault.message().to_owned()),
        }
    }
}
