//! The token that separates blocks of made-up text.
//!
//! In: the text of a `tokenizer.json`. Out: the text of its token for the beginning of a text, or for the end. Never: the id of one.

use serde_json::Value;

/// Names of such tokens in published models: beginnings first, as in AIPerf.
const NAMES: [&str; 10] = [
    "<s>",
    "<bos>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<｜begin▁of▁sentence｜>",
    "<|endoftext|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
    "[SEP]",
];

/// The first of [`NAMES`] that is a special token of the tokenizer; the file itself does not say what its tokens are for.
pub(super) fn separator(json: &str) -> Option<&'static str> {
    let root: Value = serde_json::from_str(json).ok()?;
    let tokens = root["added_tokens"].as_array()?;
    let special = |name: &str| {
        let mut tokens = tokens.iter();
        tokens.any(|token| token["special"] == true && token["content"] == name)
    };
    NAMES.into_iter().find(|name| special(name))
}
