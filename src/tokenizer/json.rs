//! Tokenizers described by a `tokenizer.json`.
//!
//! In: the text of a file, of any version of that format. Out: a tokenizer that adds no special tokens. Never: opens a file.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineTokenizer};

use super::Tokenizer;
use super::separator::separator;

/// A tokenizer read from a file.
pub struct JsonTokenizer {
    name: String,
    pipeline: PipelineTokenizer,
    options: EncodeOptions,
    vocabulary_size: u32,
    id_count: u32,
    special_ids: Vec<u32>,
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
        let ids = Ids::of(&canonical);
        Ok(JsonTokenizer {
            name: name.to_owned(),
            vocabulary_size: ids.ordinary,
            id_count: ids.all,
            special_ids: ids.special,
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

    fn id_count(&self) -> u32 {
        self.id_count
    }

    fn special_ids(&self) -> Vec<u32> {
        self.special_ids.clone()
    }

    fn block_separator(&self) -> Option<&str> {
        self.separator
    }

    fn added_special_count(&self) -> usize {
        self.added_special_count
    }
}

/// Ids that a file names.
#[derive(Default)]
struct Ids {
    /// One more than the greatest id of the model's own vocabulary that is not an added special token: below it lie the ordinary ids.
    ordinary: u32,
    /// One more than the greatest id of all.
    all: u32,
    /// Ids of added special tokens.
    special: Vec<u32>,
}

impl Ids {
    fn of(json: &str) -> Ids {
        let Ok(root) = serde_json::from_str::<Value>(json) else {
            return Ids::default();
        };
        let short = |id: u64| u32::try_from(id).unwrap_or(u32::MAX);
        let mut all = 0;
        let mut special = Vec::new();
        for token in root["added_tokens"].as_array().into_iter().flatten() {
            let Some(id) = token["id"].as_u64().map(short) else {
                continue;
            };
            all = all.max(id.saturating_add(1));
            if token["special"] == true {
                special.push(id);
            }
        }
        let known: HashSet<u32> = special.iter().copied().collect();
        let greatest = match &root["model"]["vocab"] {
            Value::Object(map) => {
                let ids = map.values().filter_map(Value::as_u64).map(short);
                ids.filter(|id| !known.contains(id)).max()
            }
            // Unigram: a list of pieces with scores; the index is the id.
            Value::Array(list) => (list.len() as u64).checked_sub(1).map(short),
            _ => None,
        };
        let ordinary = greatest.map_or(0, |id| id.saturating_add(1));
        Ids {
            ordinary,
            all: all.max(ordinary),
            special,
        }
    }
}
