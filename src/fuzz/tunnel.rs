//! What a proxy answers to CONNECT.
//!
//! In: arbitrary bytes. Out: a panic when two readings of them disagree. Never: what passes through a tunnel.

use super::{SMALL, cut, lengths_and_input};
use crate::wire::{ConnectReply, Step};

/// A count, as many lengths of pieces, and an answer: the pieces, one read, and a byte at a time end alike. Only of an answer that opens a
/// tunnel is it told what follows it in the same read, which is wrong then: so that one is looked at as far as its head goes.
///
/// # Panics
/// When an invariant breaks.
pub fn tunnel(data: &[u8]) {
    let Some((lengths, answer)) = lengths_and_input(data) else {
        return;
    };
    let (bytewise, used) = read(answer.chunks(1));
    if let Step::Done(status) = bytewise {
        assert!(
            (101..1_000).contains(&status),
            "an interim answer was taken for the final one"
        );
        // What follows a refusal is its body; what follows a tunnel's head came too early.
        let (whole, _) = read([answer]);
        let early = (200..300).contains(&status) && used < answer.len();
        assert_eq!(whole != bytewise, early, "one read");
    }
    let head = &answer[..used];
    assert_eq!(read([head]).0, bytewise, "one read of the head");
    assert_eq!(read(cut(head, lengths)).0, bytewise, "cut into {lengths:?}");
}

/// How it ends, and after how many bytes.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Step<u16>, usize) {
    let mut reply = ConnectReply::default();
    let mut used = 0;
    for piece in pieces {
        used += piece.len();
        match reply.feed(piece, &SMALL) {
            Step::More => {}
            Step::Done(status) => {
                let head = reply.head_bytes();
                assert!(head.len() <= SMALL.head_bytes, "a head over the limit");
                return (Step::Done(status), used);
            }
            wrong @ Step::Wrong(_) => return (wrong, used),
        }
    }
    (Step::More, used)
}
