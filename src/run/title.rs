//! The command line, out of everybody's sight.
//!
//! In: the process's arguments. Out: the same, while a list of processes shows them without secrets. Never: a run that fails because its
//! title could not be changed.

use std::ffi::OsString;

use crate::config::shown_arguments;

/// Carries the arguments to the process that this one becomes. Only its owner can read a process's environment, and anybody its
/// arguments.
const VARIABLE: &str = "TOKENRING_ARGUMENTS";

/// The arguments. Where there are secrets among them, the process replaces itself by one whose title has none; for that moment they
/// could be seen. A key in a file or in the environment never can.
#[must_use]
pub fn arguments() -> Vec<OsString> {
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let texts = given.iter().cloned().map(OsString::into_string);
    let Ok(words) = texts.collect::<Result<Vec<String>, _>>() else {
        return given;
    };
    if let Some(carried) = carried(&words) {
        return carried.into_iter().map(OsString::from).collect();
    }
    if let Some(shown) = shown_arguments(&words) {
        replace(&words, &shown);
    }
    given
}

/// What was carried here, if it is what `words` show.
fn carried(words: &[String]) -> Option<Vec<String>> {
    let text = std::env::var(VARIABLE).ok()?;
    let carried: Vec<String> = serde_json::from_str(&text).ok()?;
    (shown_arguments(&carried)? == words).then_some(carried)
}

/// Returns only when it fails.
#[cfg(unix)]
fn replace(words: &[String], shown: &[String]) {
    use std::os::unix::process::CommandExt;

    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let name = std::env::args_os().next();
    // Text always becomes JSON.
    let Ok(text) = serde_json::to_string(words) else {
        return;
    };
    let mut command = std::process::Command::new(program);
    if let Some(name) = name {
        command.arg0(name);
    }
    let _ = command.args(shown).env(VARIABLE, text).exec();
}

#[cfg(not(unix))]
fn replace(_: &[String], _: &[String]) {}
