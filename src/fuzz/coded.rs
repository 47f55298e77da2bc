//! Packed bodies.
//!
//! In: arbitrary bytes. Out: a panic when two readings of them disagree, or a body grows over its limit. Never: a coding that is asked for.

use super::{End, SMALL, Seen, cut, lengths_and_input, observe};
use crate::wire::{Coding, Fault, Limits};

/// Room for what a packed body may become; a few hundred bytes make more.
const ROOM: Limits = Limits {
    body_bytes: 16 << 10,
    ..SMALL
};

/// A byte that picks the coding, a count, as many lengths of pieces, and a body packed so: the pieces, one read, and a byte at a time give
/// the same.
///
/// # Panics
/// When an invariant breaks.
pub fn coded(data: &[u8]) {
    let Some((&pick, rest)) = data.split_first() else {
        return;
    };
    let Some((lengths, packed)) = lengths_and_input(rest) else {
        return;
    };
    let coding = Coding::ALL[usize::from(pick) % Coding::ALL.len()];
    let name = coding.name();
    let mut input = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {name}\r\n\r\n").into_bytes();
    input.extend_from_slice(packed);
    let whole = observe(ROOM, [&input[..]], true);
    if whole.end == End::Wrong(Fault::BodyTooLarge) && packed.len() <= ROOM.body_bytes {
        assert_eq!(whole.body.len(), ROOM.body_bytes, "what fits is kept");
    }
    alike(
        &whole,
        &observe(ROOM, cut(&input, lengths), true),
        "in pieces",
    );
    alike(
        &whole,
        &observe(ROOM, input.chunks(1), true),
        "a byte at a time",
    );
}

/// The same; of a body that is no such packing, how far a decoder came before it saw that may hang on the pieces, and so whether a limit
/// was passed first.
fn alike(whole: &Seen, pieces: &Seen, how: &str) {
    let broken = End::Wrong(Fault::BadEncoding);
    if whole.end != broken && pieces.end != broken {
        return assert_eq!(whole, pieces, "{how}");
    }
    for end in [whole.end, pieces.end] {
        let too_much = [Fault::BodyTooLarge, Fault::EncodingTooDense].map(End::Wrong);
        assert!(end == broken || too_much.contains(&end), "{how}: {end:?}");
    }
    let shared = whole.body.len().min(pieces.body.len());
    assert_eq!(whole.body[..shared], pieces.body[..shared], "{how}");
}
