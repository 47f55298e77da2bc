//! Tokenizers described by a `tokenizer.json`.
//!
//! In: the text of a file, of any version of that format. Out: a tokenizer that adds no special tokens. Never: opens a file.

use std::fmt;

use tokenizers::pipeline::{EncodeOptions, Override, PipelineTokenizer};

use super::Tokenizer;
use super::separator::separator;

/// A tokenizer read from a file.
pub struct JsonTokenizer {
    name: String,
    pipeline: PipelineTokenizer,
    options: EncodeOptions,
    vocabulary_size: u32,
    added_special_count: usize,
    separator: Option<&'static str>,
}

impl fmt::Debug for JsonTokenizer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("JsonTokenizer")
            .field("name", &self.name)
            .field("vocabulary_size", &self.vocabulary_size)
            .finish_non_exhaustive()
    }
}

impl JsonTokenizer {
    /// Reads the text of a `tokenizer.json`; `name` is what the report calls it.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, in one sentence.
    pub fn parse(name: &str, text: &str) -> Result<JsonTokenizer, String> {
        // Older files are rewritten into the one form that the reader takes.
        let canonical = tokenizers::canonicalize_str(text).map_err(|error| error.to_string())?;
        let pipeline = tokenizers::from_json(&canonical).map_err(|error| error.to_string())?;
        // Padding and truncation in the file would falsify counts, and special tokens in a text are the server's to judge.
        let options = EncodeOptions {
            add_special_tokens: false,
            encode_special_tokens: false,
            padding: Override::Off,
            truncation: Override::Off,
        };
        Ok(JsonTokenizer {
            name: name.to_owned(),
            vocabulary_size: ordinary_ids(&canonical),
            added_special_count: pipeline.get_post_processor().single.n_special(),
            separator: separator(&canonical),
            pipeline,
            options,
        })
    }
}

impl Tokenizer for JsonTokenizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 4);
        // A model that cannot encode a text (an unknown letter and no token for such) has no ids for it.
        match self.pipeline.encode_into(text, &self.options, &mut ids) {
            Ok(()) => ids.into_iter().map(u32::from).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn decode(&self, ids: &[u32]) -> String {
        self.pipeline.decode(ids, false).unwrap_or_default()
    }

    fn vocabulary_size(&self) -> u32 {
        self.vocabulary_size
    }

    fn block_separator(&self) -> Option<&str> {
        self.separator
    }

    fn added_special_count(&self) -> usize {
        self.added_special_count
    }
}

/// One more than the greatest id of the model's own vocabulary that is not an added special token: below it lie the
/// ordinary ids.
fn ordinary_ids(json: &str) -> u32 {
    let Ok(root) = serde_json::from_str::<serde_json::Value>(json) else {
        return 0;
    };
    let special: std::collections::HashSet<u64> = root["added_tokens"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|token| token["special"] == true)
        .filter_map(|token| token["id"].as_u64())
        .collect();
    let greatest = match &root["model"]["vocab"] {
        serde_json::Value::Object(map) => map
            .values()
            .filter_map(serde_json::Value::as_u64)
            .filter(|id| !special.contains(id))
            .max(),
        // Unigram: a list of pieces with scores; the index is the id.
        serde_json::Value::Array(list) => (list.len() as u64).checked_sub(1),
        _ => None,
    };
    greatest.map_or(0, |id| u32::try_from(id + 1).unwrap_or(u32::MAX))
}
