//! The command line, from its words to a [`Command`].
//!
//! In: arguments. Out: a plan, or all problems at once. Never: prints, exits, or does load.

use std::ffi::OsString;

use super::calibrate::{self, CalibratePlan};
use super::error::{Problem, Problems};
use super::flags::{self, Flag};
use super::lex::Settings;
use super::mock::MockPlan;
use super::pace::Pace;
use super::plan::{ModelSelection, Plan, Slo, TokenizerPlan};
use super::zone::ZonedAddress;
use super::{cancellation, data, echo, endpoint, load, manual, output};
use crate::clock::Nanos;

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Command {
    /// Run a benchmark.
    Profile(Box<Plan>),
    /// Serve the built-in model.
    MockServer(MockPlan),
    /// Measure this machine.
    Calibrate(CalibratePlan),
    /// Print this and exit with 0: help, version, completions or the man page.
    Print(String),
}

/// The model that the built-in server answers as.
const MODEL_BUILT_IN: &str = "mock-model";

/// Reads a command line without the program's name.
///
/// # Errors
///
/// Everything that is wrong with it, each with the flag, the value and what would be right.
///
/// ```
/// use tokenring::config::{Command, parse};
/// let words = "profile --model m --url localhost:8000 --concurrency 8".split(' ').map(Into::into);
/// let Ok(Command::Profile(plan)) = parse(words) else { panic!() };
/// assert_eq!(plan.profiling().concurrency, Some(8));
/// ```
pub fn parse<I: IntoIterator<Item = OsString>>(arguments: I) -> Result<Command, Problems> {
    let mut problems = Problems::default();
    let mut words = Vec::new();
    for (index, argument) in arguments.into_iter().enumerate() {
        match argument.into_string() {
            Ok(word) => words.push(word),
            Err(argument) => {
                let position = index + 1;
                problems.push(format!(
                    "argument {position} is not UTF-8 ({argument:?}); write it in UTF-8"
                ));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let Some((first, rest)) = words.split_first() else {
        return Ok(Command::Print(manual::help()));
    };
    match first.as_str() {
        "profile" => profile(rest),
        "mock-server" => mock_server(rest),
        "calibrate" => calibrate(rest),
        "completions" => completions(rest).map(Command::Print),
        "man" => alone(first, rest).map(|()| Command::Print(manual::man())),
        "help" if rest == ["profile"] => Ok(Command::Print(manual::help_profile())),
        "help" if rest == ["mock-server"] => Ok(Command::Print(manual::help_mock_server())),
        "help" if rest == ["calibrate"] => Ok(Command::Print(manual::help_calibrate())),
        "help" | "-h" | "--help" => Ok(Command::Print(manual::help())),
        "--version" | "-V" => Ok(Command::Print(manual::version())),
        _ => {
            problems.push(unknown_subcommand(first));
            Err(problems)
        }
    }
}

fn unknown_subcommand(word: &str) -> String {
    const OF_AIPERF: &[&str] = &[
        "analyze",
        "analyze-trace",
        "chat",
        "config",
        "kube",
        "plot",
        "plugins",
        "proxy",
        "service",
        "speed-bench-report",
        "synthesize",
        "validate",
    ];
    let ours = "profile, mock-server, calibrate, completions or man";
    if OF_AIPERF.contains(&word) {
        format!("{word} is an AIPerf subcommand that tokenring does not have; use {ours}")
    } else if word.starts_with('-') {
        format!("{word} stands before a subcommand; write tokenring profile {word} ...")
    } else {
        format!("{word:?} is not a subcommand; use {ours}")
    }
}

fn alone(subcommand: &str, rest: &[String]) -> Result<(), Problems> {
    match rest.first() {
        None => Ok(()),
        Some(word) => Err(Problems(vec![Problem(format!(
            "{subcommand} takes no arguments; leave {word:?} out"
        ))])),
    }
}

fn completions(rest: &[String]) -> Result<String, Problems> {
    let shell = match rest {
        [shell] => manual::completions(shell),
        _ => None,
    };
    shell.ok_or_else(|| {
        Problems(vec![Problem(format!(
            "completions needs one shell: {}",
            manual::SHELLS.join(", ")
        ))])
    })
}

fn profile(words: &[String]) -> Result<Command, Problems> {
    let table: Vec<&'static Flag> = flags::profile().collect();
    let mut problems = Problems::default();
    let settings = Settings::read(words, &table, &mut problems);
    if settings.help {
        return Ok(Command::Print(manual::help_profile()));
    }
    let plan = plan(&settings, &mut problems);
    if problems.is_empty() {
        Ok(Command::Profile(Box::new(plan)))
    } else {
        Err(problems)
    }
}

fn plan(settings: &Settings, problems: &mut Problems) -> Plan {
    let endpoint = endpoint::endpoint(settings, problems);
    let models = models(settings, endpoint.built_in_server, problems);
    let dataset = data::dataset(settings, endpoint.kind, problems);
    let phases = load::phases(settings, dataset.fixed_schedule.is_some(), problems);
    let profiling = &phases[phases.len() - 1];
    let output = output::output(settings, &models, endpoint.kind, profiling, problems);
    let goodput = settings.objectives("--goodput").iter();
    let mut plan = Plan {
        models,
        model_selection: model_selection(settings, problems),
        dataset,
        endpoint,
        tokenizer: TokenizerPlan {
            apply_chat_template: settings.given("--apply-chat-template"),
            name: settings.text("--tokenizer").map(str::to_owned),
            revision: settings
                .text("--tokenizer-revision")
                .unwrap_or("main")
                .to_owned(),
        },
        phases,
        goodput: goodput
            .map(|(tag, threshold)| Slo {
                tag: tag.clone(),
                threshold: *threshold,
            })
            .collect(),
        output,
        workers: output::workers(settings, problems),
        random_seed: settings.integer("--random-seed"),
        failed_request_threshold: settings.number("--failed-request-threshold"),
        cancellation: cancellation::cancellation(settings, problems),
        cli_command: echo::cli_command(settings),
        input_config: serde_json::Value::Null,
    };
    plan.input_config = echo::input_config(settings, &plan);
    plan
}

fn models(settings: &Settings, built_in: bool, problems: &mut Problems) -> Vec<String> {
    let models = settings.list("--model-names");
    if !models.is_empty() {
        return models.to_vec();
    }
    if !built_in && !settings.given("--model-names") {
        problems.push("--model is missing: say which model the server at --url is to run, such as --model NAME");
    }
    vec![MODEL_BUILT_IN.to_owned()]
}

fn model_selection(settings: &Settings, problems: &mut Problems) -> ModelSelection {
    match settings.choice("--model-selection-strategy") {
        Some("random") => ModelSelection::Random,
        Some("weighted") => {
            problems.push(
                "--model-selection-strategy weighted needs weights, which no flag gives; use round-robin or random".to_owned(),
            );
            ModelSelection::RoundRobin
        }
        _ => ModelSelection::RoundRobin,
    }
}

/// `--host`, where it is given and can be listened on.
fn mock_host(settings: &Settings, problems: &mut Problems) -> Option<ZonedAddress> {
    let text = settings.text("--host")?;
    let address = ZonedAddress::written(text);
    match &address {
        None => problems.push(format!(
            "--host {text:?} is no address; give an IPv4 or IPv6 address of this machine, such as 127.0.0.1, ::1 or, where it is link-local, fe80::1%eth0"
        )),
        Some(address) if address.lacks_zone() => problems.push(format!(
            "--host {address} is link-local, so that it must say on which network interface; write {address}%eth0 (`ip link` lists them)"
        )),
        Some(_) => {}
    }
    address
}

fn mock_server(words: &[String]) -> Result<Command, Problems> {
    let table: Vec<&'static Flag> = flags::MOCK.iter().collect();
    let mut problems = Problems::default();
    let settings = Settings::read(words, &table, &mut problems);
    if settings.help {
        return Ok(Command::Print(manual::help_mock_server()));
    }
    let default = MockPlan::default();
    let host = mock_host(&settings, &mut problems).unwrap_or(default.host);
    if !problems.is_empty() {
        return Err(problems);
    }
    let nanos = |flag: &str| {
        settings
            .number(flag)
            .map(|millis| Nanos::from_seconds(millis / 1000.0))
    };
    let small = |flag: &str| settings.integer(flag).and_then(|n| u32::try_from(n).ok());
    let models = settings.list("--model").to_vec();
    Ok(Command::MockServer(MockPlan {
        host,
        port: settings
            .integer("--port")
            .and_then(|n| u16::try_from(n).ok())
            .unwrap_or(default.port),
        time_to_first_token: nanos("--ttft").unwrap_or(default.time_to_first_token),
        inter_token_latency: nanos("--itl").unwrap_or(default.inter_token_latency),
        tokens: small("--tokens").unwrap_or(default.tokens),
        tokens_per_chunk: small("--tokens-per-chunk").unwrap_or(default.tokens_per_chunk),
        events_per_write: small("--events-per-write").unwrap_or(default.events_per_write),
        seed: settings.integer("--seed").unwrap_or(default.seed),
        threads: settings.size("--threads"),
        cpus: settings.cores("--cpus").to_vec(),
        models: if models.is_empty() {
            default.models
        } else {
            models
        },
        log: settings.text("--log").map(Into::into),
        pace: match settings.choice("--pace") {
            Some("spin") => Pace::Spin,
            _ => Pace::Sleep,
        },
        spread: small("--spread"),
    }))
}

fn calibrate(words: &[String]) -> Result<Command, Problems> {
    let table: Vec<&'static Flag> = flags::CALIBRATE.iter().collect();
    let mut problems = Problems::default();
    let settings = Settings::read(words, &table, &mut problems);
    if settings.help {
        return Ok(Command::Print(manual::help_calibrate()));
    }
    let plan = calibrate::plan(&settings, &mut problems);
    if problems.is_empty() {
        Ok(Command::Calibrate(plan))
    } else {
        Err(problems)
    }
}

/// Objectives on what no request of this run has a value of. `known` are the tags that one may name, which a later room knows.
#[must_use]
pub fn check_goodput(plan: &Plan, known: &[&str]) -> Vec<Problem> {
    let unknown = plan.goodput.iter();
    let unknown = unknown.filter(|slo| !known.contains(&slo.tag.as_str()));
    unknown
        .map(|slo| {
            Problem(format!(
                "--goodput names {:?}, of which no request of this run has a value; those that have one are {}",
                slo.tag,
                known.join(", ")
            ))
        })
        .collect()
}
