//! Help, completions and the man page, out of the flag table.
//!
//! In: the table. Out: texts. Never: reads a command line; clap only formats here.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, ValueEnum};

use super::flags::{self, Flag, Kind};

/// Shells that completions exist for.
pub(super) const SHELLS: &[&str] = &["bash", "zsh", "fish", "elvish", "powershell"];

/// What the program is, in a sentence.
const ABOUT: &str = "Load engine for LLM inference servers";
const EXAMPLE: &str = "Example: tokenring profile --model NAME --url http://HOST:8000 --streaming --concurrency 8 --request-count 100";

/// The overview of the subcommands.
pub(super) fn help() -> String {
    plain(&program().render_help())
}

/// All working flags of `profile`, in groups.
pub(super) fn help_profile() -> String {
    plain(&profile().bin_name("tokenring profile").render_help())
}

/// The flags of `mock-server`.
pub(super) fn help_mock_server() -> String {
    plain(
        &mock_server()
            .bin_name("tokenring mock-server")
            .render_help(),
    )
}

/// The flags of `calibrate`.
pub(super) fn help_calibrate() -> String {
    plain(&calibrate().bin_name("tokenring calibrate").render_help())
}

/// Name and version.
pub(super) fn version() -> String {
    format!("tokenring {}\n", env!("CARGO_PKG_VERSION"))
}

/// The completion script; `None` for a shell that is not in [`SHELLS`].
pub(super) fn completions(shell: &str) -> Option<String> {
    let shell = clap_complete::Shell::from_str(shell, true).ok()?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program(), "tokenring", &mut script);
    String::from_utf8(script).ok()
}

/// One man page: the overview, then the options of each subcommand that has some.
pub(super) fn man() -> String {
    let mut page = Vec::new();
    let write = |page: &mut Vec<u8>| -> std::io::Result<()> {
        clap_mangen::Man::new(program()).render(page)?;
        for subcommand in [profile(), mock_server(), calibrate()] {
            let heading = subcommand.get_name().to_uppercase();
            page.extend_from_slice(format!(".SH \"{heading}\"\n").as_bytes());
            clap_mangen::Man::new(subcommand).render_options_section(page)?;
        }
        Ok(())
    };
    // Writing to memory does not fail; were it to, a short page would still be read.
    match write(&mut page) {
        Ok(()) => String::from_utf8_lossy(&page).into_owned(),
        Err(error) => error.to_string(),
    }
}

fn plain(text: &StyledStr) -> String {
    text.to_string()
}

fn program() -> Command {
    Command::new("tokenring")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(EXAMPLE)
        .subcommand(profile())
        .subcommand(mock_server())
        .subcommand(calibrate())
        .subcommand(
            Command::new("completions")
                .about("Print shell completions")
                .arg(
                    Arg::new("SHELL")
                        .required(true)
                        .value_parser(SHELLS.to_vec()),
                ),
        )
        .subcommand(Command::new("man").about("Print the man page"))
}

fn profile() -> Command {
    let command = Command::new("profile")
        .about("Load a server and measure its replies")
        .after_help(EXAMPLE);
    command.args(flags::WORKING.iter().map(argument))
}

fn mock_server() -> Command {
    let command = Command::new("mock-server").about("Serve made-up replies, on a steady beat");
    command.args(flags::MOCK.iter().map(argument))
}

fn calibrate() -> Command {
    let command = Command::new("calibrate").about(
        "Measure how well this machine measures, against a server whose log tells the truth",
    );
    command.args(flags::CALIBRATE.iter().map(argument))
}

fn argument(flag: &'static Flag) -> Arg {
    let help = if flag.default.is_empty() {
        flag.help.to_owned()
    } else {
        format!("{} [default: {}]", flag.help, flag.default)
    };
    let mut argument = Arg::new(flag.names[0]).help(help).help_heading(flag.group);
    let mut long = false;
    for name in flag.names {
        if let Some(name) = name.strip_prefix("--") {
            argument = if long {
                argument.visible_alias(name)
            } else {
                argument.long(name)
            };
            long = true;
        } else if let (Some(short), 2) = (name.chars().nth(1), name.len()) {
            argument = argument.short(short);
        }
    }
    match flag.kind {
        Kind::Switch => argument.action(ArgAction::SetTrue),
        // Long lists of names, most of which are refused, stay out of the help and the completions.
        Kind::Choice(names) if names.len() <= CHOICES_SHOWN_MOST => argument
            .value_name(Kind::Choice(names).placeholder())
            .value_parser(
                names
                    .iter()
                    .filter(|name| !CHOICES_REFUSED.contains(name))
                    .map(|name| name.replace('_', "-"))
                    .collect::<Vec<_>>(),
            ),
        Kind::Path => argument
            .value_name("PATH")
            .value_hint(clap::ValueHint::AnyPath),
        kind => argument
            .value_name(kind.placeholder())
            .action(ArgAction::Append),
    }
}

/// Longer choices are told in the flag's sentence.
const CHOICES_SHOWN_MOST: usize = 8;
/// Known only to be refused with a reason.
const CHOICES_REFUSED: &[&str] = &["weighted", "gamma", "nic"];
