//! What a multishot receive leaves in a buffer: a header, control data, the bytes.
//!
//! In: the filled part of a buffer. Out: the bytes, and the kernel's receive stamp. Never: an unchecked length.

use crate::driver::stamping::{stamp, word};

/// `struct io_uring_recvmsg_out`: lengths of name, control data and payload, and flags, 32 bits each.
const HEADER_BYTES: usize = 16;

/// One receive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// Empty at the end of the stream.
    pub(super) bytes: &'a [u8],
    /// When the kernel received the newest segment, wall clock in nanoseconds; `None` where it did not say.
    pub(super) wall_ns: Option<u64>,
}

impl Message<'_> {
    /// Takes a buffer apart, in front of whose bytes there was room for `control_bytes` of control data. `None` when it is shorter
    /// than it says.
    pub(super) fn parse(buffer: &[u8], control_bytes: usize) -> Option<Message<'_>> {
        let control_length = word(buffer, 4)? as usize;
        let length = word(buffer, 8)? as usize;
        let control = buffer.get(HEADER_BYTES..HEADER_BYTES + control_bytes)?;
        let bytes = buffer.get(HEADER_BYTES + control_bytes..)?;
        Some(Message {
            // A payload longer than the buffer stands in the header with its full length; a stream never has one.
            bytes: bytes.get(..length)?,
            wall_ns: stamp(control.get(..control_length)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::stamping::CONTROL_BYTES;
    use proptest::prelude::*;

    fn control(kind: i32, seconds: i64, nanos: i64) -> Vec<u8> {
        let mut bytes = 32i64.to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(seconds.to_ne_bytes());
        bytes.extend(nanos.to_ne_bytes());
        bytes
    }

    fn buffer(control: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [0, control.len(), payload.len(), 0] {
            bytes.extend(u32::try_from(word).unwrap().to_ne_bytes());
        }
        bytes.extend(control);
        bytes.resize(HEADER_BYTES + CONTROL_BYTES, 0);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn stamps_and_bytes_are_found() {
        let stamp = control(libc::SCM_TIMESTAMPNS, 1_700_000_000, 5);
        let other = control(libc::SCM_TIMESTAMPNS + 1, 1, 1);
        let both = [other.clone(), stamp.clone()].concat();
        for (control, wall_ns) in [
            (&stamp, Some(1_700_000_000_000_000_005)),
            (&both, Some(1_700_000_000_000_000_005)),
            (&other, None),
            (&Vec::new(), None),
            (&control(libc::SCM_TIMESTAMPNS, -1, 5), None),
        ] {
            let whole = buffer(control, b"data: x");
            let message = Message::parse(&whole, CONTROL_BYTES);
            assert_eq!(
                message,
                Some(Message {
                    bytes: b"data: x",
                    wall_ns
                })
            );
            assert_eq!(
                Message::parse(&whole[..whole.len() - 1], CONTROL_BYTES),
                None
            );
        }
        let end = buffer(&[], b"");
        assert_eq!(
            Message::parse(&end, CONTROL_BYTES).map(|m| m.bytes.len()),
            Some(0)
        );
    }

    proptest! {
        #[test]
        fn no_buffer_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), control in 0usize..100) {
            let _ = Message::parse(&bytes, control);
            let _ = stamp(&bytes);
        }
    }
}
