//! Text to token ids and back, with the network off.
//!
//! In: a name, a folder or a hub id. Out: a [`Tokenizer`]. Never: opens a connection unless a hub id is not in the cache and
//! `HF_HUB_OFFLINE` allows it.

mod environment;
mod hub;
mod hub_dataset;
mod json;
mod load;
mod separator;
mod shipped;
mod template;
mod templated;

pub use environment::Environment;
pub use hub_dataset::DatasetFile;
pub use json::JsonTokenizer;
pub use load::{Loaded, TokenizerError, load};
pub use shipped::{SHIPPED, ShippedTokenizer};
pub use template::{ChatTemplate, Dialogue};
pub use templated::read as read_chat_template;

/// Counts and makes tokens. Shared by threads.
pub trait Tokenizer: Send + Sync {
    /// Name for the report.
    fn name(&self) -> &str;
    /// Token ids of `text`, without special tokens.
    fn encode(&self, text: &str) -> Vec<u32>;
    /// Text of `ids`; bytes that are no UTF-8 become U+FFFD.
    fn decode(&self, ids: &[u32]) -> String;
    /// Number of tokens of `text`, without special tokens.
    fn count(&self, text: &str) -> usize {
        self.encode(text).len()
    }
    /// Ids that are ordinary tokens are below this number.
    fn vocabulary_size(&self) -> u32;
    /// All ids are below this number, those of special tokens too.
    fn id_count(&self) -> u32 {
        self.vocabulary_size()
    }
    /// Ids of special tokens.
    fn special_ids(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Text of the token that begins a text, or else of the one that ends it, where the tokenizer has such and it counts as one token.
    fn block_separator(&self) -> Option<&str> {
        None
    }
    /// Special tokens that the tokenizer would add to a text by itself.
    fn added_special_count(&self) -> usize {
        0
    }
    /// Tokens that come on top of a user's text: those of the chat template where one is applied, else the special ones.
    fn prompt_overhead(&self) -> usize {
        self.added_special_count()
    }
    /// The chat template to count with; `None` when input is counted as plain text.
    fn chat_template(&self) -> Option<&ChatTemplate> {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests;
