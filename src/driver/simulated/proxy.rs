//! A simulated proxy.
//!
//! In: a CONNECT, cut anyhow. Out: an answer, once its blank line is there. Never: looks at what passes through the tunnel.

/// A proxy before a server, until it has opened a tunnel.
#[derive(Debug)]
pub(super) struct Proxy {
    status: u16,
    asked: Vec<u8>,
}

impl Proxy {
    /// Answers with `status`; with 0 in something that is no HTTP.
    pub(super) fn new(status: u16) -> Proxy {
        Proxy {
            status,
            asked: Vec::new(),
        }
    }

    /// The answer, and whether there is a tunnel then; `None` while the head is not whole. An error names a breach.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Option<(Vec<u8>, bool)>, String> {
        self.asked.extend_from_slice(bytes);
        let four = self.asked.windows(4);
        let Some(at) = four.into_iter().position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        if !self.asked.starts_with(b"CONNECT ") || at + 4 < self.asked.len() {
            let asked = String::from_utf8_lossy(&self.asked);
            return Err(format!("a proxy was asked {asked:?}"));
        }
        let opens = (200..300).contains(&self.status);
        let answer = match self.status {
            0 => "SSH-2.0-x\r\n\r\n".to_owned(),
            status => format!("HTTP/1.1 {status} x\r\nVia: 1.1 y\r\n\r\n"),
        };
        Ok(Some((answer.into_bytes(), opens)))
    }
}
