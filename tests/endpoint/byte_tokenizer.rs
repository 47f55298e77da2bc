//! A tokenizer for tests.
//!
//! In: text. Out: a token for each byte. Never: a file.

use tokenring::tokenizer::Tokenizer;

/// One token for each byte.
pub(crate) struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn name(&self) -> &str {
        "bytes"
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        ids.iter().filter_map(|&id| char::from_u32(id)).collect()
    }

    fn vocabulary_size(&self) -> u32 {
        256
    }
}
