//! A tunnel through an HTTP proxy.
//!
//! In: where to, what the proxy answers. Out: the bytes that ask for a tunnel, and whether there is one. Never: a byte of what passes through it.

use super::{Fault, Limits, Step, head};

/// What asks a proxy for a tunnel to `authority`, a host and port (RFC 9110 section 9.3.6).
#[must_use]
pub fn connect_head(authority: &str, authorization: Option<&str>) -> Vec<u8> {
    let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(value) = authorization {
        head.push_str("Proxy-Authorization: ");
        head.push_str(value);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// Reads a proxy's answer to CONNECT. A 2xx answer has no body, whatever its fields say: the next byte is the server's.
#[derive(Debug, Default)]
pub struct ConnectReply {
    buffer: Vec<u8>,
}

impl ConnectReply {
    /// Feeds one read. Done carries the status of the final answer.
    pub fn feed(&mut self, input: &[u8], limits: &Limits) -> Step<u16> {
        self.buffer.extend_from_slice(input);
        loop {
            let Some(end) = end_of_head(&self.buffer) else {
                if self.buffer.len() > limits.head_bytes {
                    return Step::Wrong(Fault::ProxyBadReply);
                }
                return Step::More;
            };
            let status = match head::parse(&self.buffer[..end], limits.header_count) {
                Ok(parsed) if end <= limits.head_bytes => parsed.status(),
                _ => return Step::Wrong(Fault::ProxyBadReply),
            };
            match status {
                // 101 would be another protocol, which nobody asked for.
                100 | 102..200 => drop(self.buffer.drain(..end)),
                // Neither HTTP nor TLS lets the server speak first.
                200..300 if self.buffer.len() > end => return Step::Wrong(Fault::ProxyBadReply),
                _ => {
                    self.buffer.truncate(end);
                    return Step::Done(status);
                }
            }
        }
    }

    /// The head of the final answer, once it is done.
    #[must_use]
    pub fn head_bytes(&self) -> &[u8] {
        &self.buffer
    }
}

/// One past the blank line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match bytes.get(at + 1..) {
        Some([b'\n', ..]) => Some(at + 2),
        Some([b'\r', b'\n', ..]) => Some(at + 3),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Step<u16> {
        let mut reply = ConnectReply::default();
        let mut step = Step::More;
        for piece in pieces {
            assert_eq!(step, Step::More);
            step = reply.feed(piece, &Limits::default());
        }
        step
    }

    #[test]
    fn answers_are_read_however_they_are_cut() {
        let wrong = Step::Wrong(Fault::ProxyBadReply);
        for (answer, right) in [
            (
                &b"HTTP/1.1 200 Connection established\r\n\r\n"[..],
                Step::Done(200),
            ),
            (
                b"HTTP/1.0 200\r\nContent-Length: 5\r\n\r\n",
                Step::Done(200),
            ),
            (
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 x\n\n",
                Step::Done(204),
            ),
            (
                b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                Step::Done(407),
            ),
            (b"HTTP/1.1 101 Switching\r\n\r\n", Step::Done(101)),
            (b"SSH-2.0-OpenSSH\r\n\r\n", wrong),
            (b"HTTP/1.1 200 OK\r\n", Step::More),
            (b"", Step::More),
        ] {
            assert_eq!(read(&[answer]), right, "{answer:?}");
            for cut in 0..answer.len() {
                let (first, rest) = answer.split_at(cut);
                assert_eq!(read(&[first, rest]), right, "{answer:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_follows_is_a_refusal_s_body_or_an_error() {
        assert_eq!(
            read(&[b"HTTP/1.1 502 Bad\r\n\r\nno such host"]),
            Step::Done(502)
        );
        let wrong = Step::Wrong(Fault::ProxyBadReply);
        assert_eq!(read(&[b"HTTP/1.1 200 OK\r\n\r\nx"]), wrong);
        assert_eq!(read(&[&vec![b'x'; 65_537]]), wrong, "no end in sight");
    }

    #[test]
    fn the_request_names_the_server_and_who_asks() {
        let head = connect_head("[::1]:443", Some("Basic YTpi"));
        assert_eq!(
            head,
            b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nProxy-Authorization: Basic YTpi\r\n\r\n"
        );
    }
}
