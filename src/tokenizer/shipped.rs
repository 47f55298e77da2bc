//! Tokenizers whose data are inside the program.
//!
//! In: a name. Out: a tokenizer, built from the crate's rank data in well under a second. Never: opens a file or a connection.

use std::collections::HashMap;
use std::sync::Mutex;

use tiktoken_rs::CoreBPE;

use super::Tokenizer;

/// Names that need no file and no network. `builtin` is `o200k_base`; `gpt2` and `r50k_base` give the same ids.
pub const SHIPPED: [&str; 8] = [
    "builtin",
    "gpt2",
    "r50k_base",
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
    "p50k_base",
    "p50k_edit",
];

/// Most bytes given to the crate's encoder at once: on a million spaces the stack of its expression engine overflows, which
/// is a panic there. Longer texts are cut where no token can reach across.
const PIECE_BYTES: usize = 32 * 1024;

/// Threads that can count at once, each with a memory of its own.
const MEMORIES: usize = 64;

/// Words whose counts are remembered, and the most bytes of one: some megabytes for each thread.
const WORDS_MOST: usize = 1 << 16;

/// See [`WORDS_MOST`].
const WORD_BYTES: usize = 32;

/// A byte-pair encoding of OpenAI's family.
pub struct ShippedTokenizer {
    name: &'static str,
    encoding: CoreBPE,
    vocabulary_size: u32,
    /// Tokens of words seen in [`Tokenizer::count`]: replies say the same words over and over, and a look-up costs a tenth of
    /// cutting and encoding them anew.
    words: [Mutex<HashMap<Box<str>, usize>>; MEMORIES],
}

impl ShippedTokenizer {
    /// The tokenizer called `name`; `None` when no such one is inside. Takes about 0.06 s (`gpt2`) to 0.3 s (`builtin`).
    #[must_use]
    pub fn new(name: &str) -> Option<ShippedTokenizer> {
        let name = *SHIPPED.iter().find(|known| **known == name)?;
        let (encoding, vocabulary_size) = match name {
            "gpt2" | "r50k_base" => (tiktoken_rs::r50k_base(), 50_256),
            "p50k_base" => (tiktoken_rs::p50k_base(), 50_281),
            "p50k_edit" => (tiktoken_rs::p50k_edit(), 50_281),
            "cl100k_base" => (tiktoken_rs::cl100k_base(), 100_256),
            "o200k_harmony" => (tiktoken_rs::o200k_harmony(), 199_998),
            _ => (tiktoken_rs::o200k_base(), 199_998),
        };
        // The data are constants of the program; a test builds each of them.
        let encoding = encoding.ok()?;
        Some(ShippedTokenizer {
            name,
            encoding,
            vocabulary_size,
            words: std::array::from_fn(|_| Mutex::default()),
        })
    }

    fn count_with(&self, words: &mut HashMap<Box<str>, usize>, text: &str) -> usize {
        let mut sum = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (word, tail) = rest.split_at(word_end(rest));
            rest = tail;
            sum += match words.get(word) {
                Some(&count) => count,
                None => {
                    let count = self.encode(word).len();
                    if word.len() <= WORD_BYTES && words.len() < WORDS_MOST {
                        words.insert(word.into(), count);
                    }
                    count
                }
            };
        }
        sum
    }
}

impl Tokenizer for ShippedTokenizer {
    fn name(&self) -> &str {
        self.name
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        if text.len() <= PIECE_BYTES {
            return self.encoding.encode_ordinary(text);
        }
        let mut ids = Vec::with_capacity(text.len() / 4);
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(piece_end(rest));
            ids.extend(self.encoding.encode_ordinary(piece));
            rest = tail;
        }
        ids
    }

    fn count(&self, text: &str) -> usize {
        // Threads that count at once do not wait for each other.
        match self.words.iter().find_map(|words| words.try_lock().ok()) {
            Some(mut words) => self.count_with(&mut words, text),
            None => self.encode(text).len(),
        }
    }

    fn decode(&self, ids: &[u32]) -> String {
        let bytes = self.encoding.decode_bytes(ids).unwrap_or_else(|_| {
            // An id outside the vocabulary: keep the others.
            let known = |id: &u32| self.encoding.decode_bytes(std::slice::from_ref(id)).ok();
            ids.iter().filter_map(known).flatten().collect()
        });
        match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(wrong) => String::from_utf8_lossy(wrong.as_bytes()).into_owned(),
        }
    }

    fn vocabulary_size(&self) -> u32 {
        self.vocabulary_size
    }

    fn id_count(&self) -> u32 {
        let special = self.special_ids().into_iter().max();
        special.map_or(self.vocabulary_size, |id| self.vocabulary_size.max(id + 1))
    }

    fn special_ids(&self) -> Vec<u32> {
        let names = self.encoding.special_tokens().into_iter();
        names
            .flat_map(|name| self.encoding.encode_with_special_tokens(name))
            .collect()
    }
}

/// No token reaches across this place, which has a byte on both sides: between an ASCII letter and a single space that a letter follows.
/// In all patterns a word ends there and the space begins the next word, so the ids of both sides are those of the whole text.
fn is_clean(bytes: &[u8], at: usize) -> bool {
    bytes[at] == b' ' && bytes[at - 1].is_ascii_alphabetic() && bytes[at + 1].is_ascii_alphabetic()
}

/// The first clean place in `text`, or its end.
fn word_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let inner = 1..bytes.len().saturating_sub(1);
    let mut spaces = inner.filter(|&at| is_clean(bytes, at));
    spaces.next().unwrap_or(bytes.len())
}

/// Where to cut `text`, at most [`PIECE_BYTES`] in: the last clean place. A text without such a place in the second half of the piece
/// is cut at the limit, where a token may then be split.
fn piece_end(text: &str) -> usize {
    if text.len() <= PIECE_BYTES {
        return text.len();
    }
    (PIECE_BYTES / 2..PIECE_BYTES - 1)
        .rev()
        .find(|&at| is_clean(text.as_bytes(), at))
        .unwrap_or_else(|| {
            let boundary = |at: &usize| text.is_char_boundary(*at);
            // A character has at most four bytes, so one of these is its border.
            (PIECE_BYTES - 3..=PIECE_BYTES)
                .rev()
                .find(boundary)
                .unwrap_or(PIECE_BYTES)
        })
}
