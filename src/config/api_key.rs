//! Where the key comes from.
//!
//! In: settings, a variable of the environment, a file. Out: the key. Never: a key in a sentence, so that it stays out of logs.

use super::endpoint::fits_header;
use super::error::Problems;
use super::lex::Settings;

/// The three ways to give it.
const FLAGS: [&str; 3] = ["--api-key", "--api-key-env", "--api-key-file"];

/// The key, by the one flag that gives it.
pub(super) fn api_key(settings: &Settings, problems: &mut Problems) -> Option<String> {
    let given: Vec<&str> = FLAGS
        .into_iter()
        .filter(|flag| settings.given(flag))
        .collect();
    if given.len() > 1 {
        problems.push(format!(
            "{} each give the key; leave all but one out",
            given.join(" and ")
        ));
        return None;
    }
    let [plain, variable, file] = FLAGS.map(|flag| settings.text(flag));
    let (flag, found) = match (plain, variable, file) {
        (Some(key), ..) => (FLAGS[0].to_owned(), Ok(key.to_owned())),
        (_, Some(name), _) => {
            let value = std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => "is not set; export it".to_owned(),
                std::env::VarError::NotUnicode(_) => "is not UTF-8".to_owned(),
            });
            (format!("{} {name}", FLAGS[1]), value)
        }
        (.., Some(path)) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| format!("cannot be read as UTF-8 text: {error}"));
            (format!("{} {path:?}", FLAGS[2]), text)
        }
        (None, None, None) => return None,
    };
    // A key on the command line is what it says; around one in a file stands a line end.
    let key = match found {
        Ok(key) if given == ["--api-key"] => key,
        Ok(key) => key.trim().to_owned(),
        Err(sentence) => {
            problems.push(format!("{flag} {sentence}"));
            return None;
        }
    };
    if key.is_empty() && given != ["--api-key"] {
        problems.push(format!("{flag} holds nothing; write the key there"));
    }
    if !fits_header(&key) {
        problems.push(format!(
            "{flag} has a control character in it, which no header may have; give the key alone"
        ));
    }
    Some(key)
}
