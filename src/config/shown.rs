//! A command line that anybody may see.
//!
//! In: the arguments as given. Out: the same with secrets hidden. Never: a judgement whether they are right; that is the parser's.

use super::echo::redact;
use super::flags;
use super::lex::{find, looks_like_flag};

/// The arguments of `profile` as they may stand in a list of processes; `None` when there is nothing to hide, or another subcommand.
#[must_use]
pub fn shown_arguments(arguments: &[String]) -> Option<Vec<String>> {
    let (first, words) = arguments.split_first()?;
    if first != "profile" {
        return None;
    }
    let table: Vec<&'static flags::Flag> = flags::profile().collect();
    let mut shown = vec![first.clone()];
    let mut flag = None;
    for word in words {
        if looks_like_flag(word) {
            let (spelling, joined) = match word.split_once('=') {
                Some((spelling, value)) => (spelling, Some(value)),
                None => (word.as_str(), None),
            };
            flag = find(&table, spelling);
            shown.push(match (flag, joined) {
                (Some(flag), Some(value)) => format!("{spelling}={}", redact(flag, value)),
                _ => word.clone(),
            });
        } else {
            shown.push(flag.map_or_else(|| word.clone(), |flag| redact(flag, word)));
        }
    }
    (shown != arguments).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secrets_are_hidden() {
        for (given, expected) in [
            (
                "profile --api-key KEY --model m",
                Some("profile --api-key <redacted> --model m"),
            ),
            (
                "profile --api-key=KEY -u h?token=KEY",
                Some("profile --api-key=<redacted> -u h?token=<redacted>"),
            ),
            (
                "profile -H Authorization:KEY X-A:b",
                Some("profile -H Authorization:<redacted> X-A:b"),
            ),
            (
                "profile --url u:KEY@h,i --extra-inputs api_key:KEY",
                Some("profile --url <redacted>@h,i --extra-inputs api_key:<redacted>"),
            ),
            ("profile --model m --header X-A:b --url h", None),
            ("mock-server --api-key KEY", None),
            ("", None),
        ] {
            let words = |line: &str| {
                line.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                shown_arguments(&words(given)),
                expected.map(words),
                "{given}"
            );
        }
    }
}
