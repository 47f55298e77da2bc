//! From a name to a tokenizer.
//!
//! In: the plan, the models' names and what the environment says. Out: a tokenizer, and a sentence when the choice may surprise.
//! Never: reads an environment variable after [`Environment::from_process`], or asks the hub before all local places are tried.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::hub::{FILE, Model, Refusal};
use super::templated::Templated;
use super::{Environment, JsonTokenizer, ShippedTokenizer, Tokenizer};
use crate::config::TokenizerPlan;

/// What to give instead, at the end of every message.
const ADVICE: &str =
    "give --tokenizer builtin, --tokenizer gpt2, or a directory that holds tokenizer.json";

/// A tokenizer, ready to use.
pub struct Loaded {
    /// The tokenizer.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// A sentence for the user when the name was not used as given.
    pub note: Option<String>,
}

/// Why there is no tokenizer. `asked` says which flag or model name led here.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file or a directory that is no tokenizer.
    #[error("{asked}: {reason}; {ADVICE}")]
    Local {
        /// What was asked for.
        asked: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Neither shipped nor local, and no id that the hub could know.
    #[error(
        "{asked}: not a tokenizer inside this program, not a path that exists, and not a hub id such as ORG/NAME; {ADVICE}"
    )]
    Unknown {
        /// What was asked for.
        asked: String,
    },
    /// Not in the cache, and downloads are forbidden.
    #[error(
        "{asked}: not in the hub's cache, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids a download; unset it, or {ADVICE}"
    )]
    Offline {
        /// What was asked for.
        asked: String,
    },
    /// The hub knows no such model, revision or file.
    #[error(
        "{asked}: {hub} has no {FILE} for it at revision {revision} (see --tokenizer-revision); {ADVICE}"
    )]
    NotFound {
        /// What was asked for.
        asked: String,
        /// The hub.
        hub: String,
        /// The revision.
        revision: String,
    },
    /// The hub refuses. It does so for models that do not exist, too.
    #[error(
        "{asked}: {hub} has no such model, or lets nobody read it without the right HF_TOKEN; {ADVICE}"
    )]
    Denied {
        /// What was asked for.
        asked: String,
        /// The hub.
        hub: String,
    },
    /// A chat template was asked for, and there is none that can be used.
    #[error(
        "--apply-chat-template: {asked}: {reason}; give --tokenizer the folder or hub id of a model with a chat template, or leave \
         the flag out"
    )]
    Template {
        /// What was asked for.
        asked: String,
        /// What is wrong.
        reason: String,
    },
    /// The download failed.
    #[error("{asked}: the download failed: {reason}; {ADVICE}")]
    Download {
        /// What was asked for.
        asked: String,
        /// What went wrong.
        reason: String,
    },
}

/// Loads the tokenizer that `plan` names: a shipped one, a directory, a file, or a model of the hub, from its cache if there.
/// Without a name the first of `models` is taken as one.
///
/// The names in [`super::SHIPPED`] always mean the shipped ones, whatever lies beside the program or in the cache.
pub fn load(
    plan: &TokenizerPlan,
    models: &[String],
    environment: &Environment,
) -> Result<Loaded, TokenizerError> {
    let model = models.first().map(String::as_str).unwrap_or_default();
    let (name, asked, note) = match &plan.name {
        Some(name) => (name.as_str(), format!("--tokenizer {name}"), None),
        None if looks_like_placeholder(model) => {
            ("builtin", String::new(), Some(placeholder_note(model)))
        }
        None => (
            model,
            format!("--tokenizer not given, so the model name {model} was tried"),
            None,
        ),
    };
    let without_template = |asked: String, reason: &str| TokenizerError::Template {
        asked,
        reason: reason.to_owned(),
    };
    if let Some(shipped) = ShippedTokenizer::new(name) {
        if plan.apply_chat_template {
            let reason =
                "the tokenizers inside this program are of no model, so they have no chat template";
            return Err(without_template(format!("tokenizer {name}"), reason));
        }
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(shipped);
        return Ok(Loaded { tokenizer, note });
    }
    let found = find(
        name,
        &asked,
        plan.name.is_some(),
        &plan.revision,
        environment,
    )?;
    let tokenizer = match JsonTokenizer::parse(name, &found.text) {
        Ok(tokenizer) => Arc::new(tokenizer),
        Err(reason) => {
            let reason = format!("its {FILE} cannot be used: {reason}");
            return Err(TokenizerError::Local { asked, reason });
        }
    };
    let tokenizer: Arc<dyn Tokenizer> = match found.folder {
        _ if !plan.apply_chat_template => tokenizer,
        Some(folder) => Arc::new(
            Templated::read(tokenizer, &folder)
                .map_err(|reason| without_template(asked, &reason))?,
        ),
        None => {
            let reason =
                "there is no cache of the hub to keep its chat template in, set HF_HUB_CACHE";
            return Err(without_template(asked, reason));
        }
    };
    Ok(Loaded {
        tokenizer,
        note: found.note.or(note),
    })
}

/// A `tokenizer.json`.
struct Found {
    text: String,
    /// The folder it lies in, with the model's other files.
    folder: Option<PathBuf>,
    /// A sentence for the user.
    note: Option<String>,
}

/// The `tokenizer.json` of a name that is not shipped. `explicit`: the user gave the name as a tokenizer's.
fn find(
    name: &str,
    asked: &str,
    explicit: bool,
    revision: &str,
    environment: &Environment,
) -> Result<Found, TokenizerError> {
    let asked = asked.to_owned();
    let path = Path::new(name);
    let inside = path.join(FILE);
    // A model's name is a path by chance only, so that a directory must really hold a tokenizer then.
    if path.is_dir() && (explicit || inside.is_file()) {
        return read(&inside, asked);
    }
    if explicit && path.is_file() {
        return read(path, asked);
    }
    let Some(model) = Model::new(name, revision) else {
        return Err(TokenizerError::Unknown { asked });
    };
    if let Some(file) = environment
        .cache
        .as_deref()
        .and_then(|cache| model.cached(cache))
    {
        return read(&file, asked);
    }
    if environment.offline {
        return Err(TokenizerError::Offline { asked });
    }
    let hub = environment.hub.clone();
    let fetched = model.fetch(environment);
    let (text, note) = fetched.map_err(|refusal| match refusal {
        Refusal::NotFound => TokenizerError::NotFound {
            asked,
            hub,
            revision: revision.to_owned(),
        },
        Refusal::Denied => TokenizerError::Denied { asked, hub },
        Refusal::Failed(reason) => TokenizerError::Download { asked, reason },
    })?;
    let kept = environment
        .cache
        .as_deref()
        .and_then(|cache| model.cached(cache));
    Ok(Found {
        text,
        folder: kept.as_deref().and_then(Path::parent).map(Path::to_owned),
        note,
    })
}

fn read(file: &Path, asked: String) -> Result<Found, TokenizerError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => format!("the directory holds no {FILE}"),
            _ => format!("{} cannot be read: {error}", file.display()),
        };
        TokenizerError::Local { asked, reason }
    })?;
    Ok(Found {
        text,
        folder: file.parent().map(Path::to_owned),
        note: None,
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
