//! What the process's environment says about tokenizers.
//!
//! In: environment variables, once. Out: plain values. Never: shows the token.

use std::fmt;
use std::path::PathBuf;

/// Where the hub is and what may be asked of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Folder of the hub's cache: `HF_HUB_CACHE`, else `HF_HOME/hub`, else `~/.cache/huggingface/hub`.
    pub cache: Option<PathBuf>,
    /// `HF_ENDPOINT` without a slash at its end; `https://huggingface.co` by default.
    pub hub: String,
    /// `HF_TOKEN`, else the content of the file `HF_TOKEN_PATH`, else of `HF_HOME/token`.
    pub token: Option<String>,
    /// `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` is set: nothing is downloaded.
    pub offline: bool,
}

impl Environment {
    /// Reads the variables of this process and the token's file.
    #[must_use]
    pub fn from_process() -> Environment {
        Environment::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from any source of variables.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Environment {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let folder = |name: &str| set(name).map(PathBuf::from);
        let home = folder("HF_HOME")
            .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
            .or_else(|| folder("HOME").map(|home| home.join(".cache/huggingface")));
        let token_file =
            folder("HF_TOKEN_PATH").or_else(|| home.as_ref().map(|home| home.join("token")));
        let token = set("HF_TOKEN")
            .or_else(|| token_file.and_then(|file| std::fs::read_to_string(file).ok()))
            .map(|token| token.trim().to_owned())
            .filter(|token| !token.is_empty());
        let hub = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let yes = |name: &str| {
            set(name).is_some_and(|value| {
                ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
            })
        };
        Environment {
            cache: folder("HF_HUB_CACHE").or_else(|| home.map(|home| home.join("hub"))),
            hub: hub.trim().trim_end_matches('/').to_owned(),
            token,
            offline: yes("HF_HUB_OFFLINE") || yes("TRANSFORMERS_OFFLINE"),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Environment")
            .field("cache", &self.cache)
            .field("hub", &self.hub)
            .field("token", &self.token.as_ref().map(|_| "<redacted>"))
            .field("offline", &self.offline)
            .finish()
    }
}
