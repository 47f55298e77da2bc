//! What the server makes of bytes, without a socket.
//!
//! In: bytes in pieces. Out: the requests in words, and why no more were read. Never: an answer.

use super::form;
use super::request::RequestReader;

/// Reads the requests that arrive in `pieces`, each in words; the last word is the refusal, if there was one.
#[must_use]
pub fn read_requests<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut reader = RequestReader::new();
    let mut told = Vec::new();
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next() {
                Ok(Some(request)) => {
                    let parts = form::parts(&request.content_type, &request.body);
                    let parts = parts.map(|parts| parts.len());
                    told.push(format!("{request:?} {parts:?}"));
                }
                Ok(None) => break,
                Err(refusal) => {
                    told.push(format!("{refusal:?}"));
                    return told;
                }
            }
        }
    }
    told
}
