//! Command lines and what they become.
//!
//! In: `tests/cli/*.txt` (see `tests/cli/README.md`) and the flag table. Out: a verdict; with `BLESS=1`, rewritten files. Never:
//! sends a request.

#[path = "cli/words.rs"]
mod words;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use tokenring::config::flags::{self, Flag, Kind, Status};
use tokenring::config::{Command, MockPlan, Plan, Problems, SlotPlan, parse};

fn run(words: &[&str]) -> Result<Command, Problems> {
    parse(words.iter().map(OsString::from))
}

/// A command line with all that is needed, and `more`.
fn profile(more: &[&str]) -> Result<Plan, Problems> {
    let words: Vec<&str> = ["profile", "--model", "m", "--url", "h"]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    match run(&words)? {
        Command::Profile(plan) => Ok(*plan),
        other => panic!("{words:?} became {other:?}"),
    }
}

fn printed(words: &[&str]) -> String {
    match run(words) {
        Ok(Command::Print(text)) => text,
        other => panic!("{words:?} became {other:?}"),
    }
}

/// One line for each part of a plan.
fn plan_lines(plan: &Plan) -> Vec<String> {
    let mut lines = vec![
        format!("models: {:?} {:?}", plan.models, plan.model_selection),
        format!(
            "kind: {:?} streaming {}",
            plan.endpoint.kind, plan.endpoint.streaming
        ),
        format!("built_in_server: {}", plan.endpoint.built_in_server),
        format!("timeout: {:?}", plan.endpoint.request_timeout),
        format!("api_key: {:?}", plan.endpoint.api_key),
        format!("headers: {:?}", plan.endpoint.headers),
        format!("session_header: {:?}", plan.endpoint.session_header),
        format!(
            "extra_inputs: {}",
            serde_json::Value::Object(plan.endpoint.extra_inputs.clone())
        ),
        format!(
            "usage: legacy {} server {} chunk {}",
            plan.endpoint.use_legacy_max_tokens,
            plan.endpoint.use_server_token_count,
            plan.endpoint.per_chunk_usage
        ),
        format!("reuse: {:?}", plan.endpoint.reuse),
        format!("network: {:?}", plan.endpoint.network),
        format!("url_strategy: {:?}", plan.endpoint.url_strategy),
        format!("wait_for_model: {:?}", plan.endpoint.wait_for_model),
        format!("tokenizer: {:?}", plan.tokenizer),
        format!("source: {:?}", plan.dataset.source),
        format!(
            "schedule: {:?} {:?}",
            plan.dataset.fixed_schedule, plan.dataset.trace
        ),
        format!(
            "dataset: {} entries {:?} output {:?} system {:?}",
            plan.dataset.entries,
            plan.dataset.sampling,
            plan.dataset.output_tokens,
            plan.dataset.system_prompt
        ),
        format!("prompts: {:?}", plan.dataset.prompts),
    ];
    lines.extend(output_lines(plan));
    lines.extend(
        plan.endpoint
            .urls
            .iter()
            .map(|u| format!("url: {} -> {}", u.base, u.target)),
    );
    lines.extend(
        plan.endpoint
            .urls
            .iter()
            .map(|u| format!("host: {} tls {}", u.host_header(), u.tls)),
    );
    for phase in &plan.phases {
        let (stop, kind) = (phase.stop, phase.kind.name());
        lines.push(format!(
            "phase: {kind} {:?} concurrency {:?} requests {:?} sessions {:?} duration {:?} grace {:?}",
            phase.arrivals, phase.concurrency, stop.requests, stop.sessions, stop.duration, phase.grace
        ));
        if phase.slots != SlotPlan::default() {
            lines.push(format!("slots: {kind} {:?}", phase.slots));
        }
    }
    lines
}

/// The lines about what is written and shown.
fn output_lines(plan: &Plan) -> Vec<String> {
    vec![
        format!("goodput: {:?}", plan.goodput),
        format!("directory: {}", plan.output.directory.display()),
        format!(
            "output: prefix {:?} {:?} outputs_json {} http_trace {} show_trace {} {:?} {:?} stats {:?}",
            plan.output.prefix,
            plan.output.level,
            plan.output.outputs_json,
            plan.output.http_trace,
            plan.output.show_trace_timing,
            plan.output.ui,
            plan.output.log_level,
            plan.output.stats_interval
        ),
        format!("workers: {:?}", plan.workers),
        format!("seed: {:?}", plan.random_seed),
        format!(
            "failed_request_threshold: {:?}",
            plan.failed_request_threshold
        ),
        format!("cancellation: {:?}", plan.cancellation),
        format!("cli_command: {}", plan.cli_command),
        format!("input_config: {}", plan.input_config),
    ]
}

/// What a command line becomes; of a plan, only what differs from the plain one.
fn outcome(line: &str) -> String {
    let words = words::split(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let lines: Vec<String> = match run(&words) {
        Ok(Command::Profile(plan)) => {
            let plain = plan_lines(&profile(&[]).expect("the plain command line is whole"));
            plan_lines(&plan)
                .into_iter()
                .filter(|l| !plain.contains(l))
                .collect()
        }
        Ok(Command::MockServer(plan)) => vec![format!("{plan:?}")],
        Ok(Command::Calibrate(plan)) => vec![format!("{plan:?}")],
        Ok(Command::Print(text)) => vec![format!(
            "prints: {}",
            text.lines().next().unwrap_or_default()
        )],
        Err(problems) => problems
            .to_string()
            .lines()
            .map(|l| format!("! {l}"))
            .collect(),
    };
    lines.iter().map(|l| format!("{l}\n")).collect()
}

#[test]
fn command_lines_become_what_the_files_say() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let mut cases = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "txt") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let mut now = String::new();
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                cases += 1;
                now.push_str(&format!("{line}\n{}\n", outcome(command)));
            } else if line.starts_with('#') {
                now.push_str(&format!("{line}\n"));
            }
        }
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, &now).unwrap();
        }
        let first = now
            .lines()
            .zip(text.lines())
            .find(|(now, then)| now != then);
        assert!(
            std::env::var_os("BLESS").is_some() || now == text,
            "{}: now and then differ, first in {first:#?}\nBLESS=1 rewrites the file",
            path.display()
        );
    }
    assert!(cases > 60, "only {cases} cases were found");
}

/// A value that a working flag takes.
fn sample(flag: &Flag) -> String {
    match flag.names[0] {
        "--endpoint-type" => "chat".to_owned(),
        "--input-file" | "--system-prompt-file" => {
            format!("{}/tests/cli/one.jsonl", env!("CARGO_MANIFEST_DIR"))
        }
        // A variable that every environment has.
        "--api-key-env" => "PATH".to_owned(),
        "--api-key-file" => format!("{}/tests/cli/one.key", env!("CARGO_MANIFEST_DIR")),
        "--request-rate-series" => {
            format!("{}/tests/cli/series.json", env!("CARGO_MANIFEST_DIR"))
        }
        "--custom-dataset-type" => "single_turn".to_owned(),
        "--seq-dist" => "256,128:100".to_owned(),
        "--image-source" => "noise".to_owned(),
        "--audio-depths" => "8,24".to_owned(),
        "--audio-sample-rates" => "8,44.1".to_owned(),
        "--random-range-ratio" => "0.5".to_owned(),
        "--url-weights" => "3".to_owned(),
        "--resolve" => "h:80:127.0.0.1".to_owned(),
        "--local-address" => "127.0.0.1".to_owned(),
        "--proxy" => "http://proxy:3128".to_owned(),
        _ => match flag.kind {
            Kind::Switch => String::new(),
            Kind::Choice(names) => names[0].to_owned(),
            Kind::Integer(least, _) => least.max(1).to_string(),
            Kind::AtLeast(_) | Kind::Above(_) => "2.5".to_owned(),
            Kind::Between(_, high) => high.min(2.5).to_string(),
            Kind::Pairs => "name:value".to_owned(),
            Kind::Objectives => "request_latency:5".to_owned(),
            Kind::Cores => "0,2-3".to_owned(),
            Kind::AutoOr(_) => "auto".to_owned(),
            Kind::Text | Kind::List | Kind::Path => "text".to_owned(),
        },
    }
}

/// Flags that cannot stand alone, with what they need.
fn company(flag: &Flag) -> Vec<String> {
    let text = match flag.names[0] {
        "--keep-alive-resets-idle" => "--idle-timeout-seconds 1",
        "--benchmark-grace-period" => "--benchmark-duration 1",
        "--warmup-grace-period" | "--warmup-seamless" => "--warmup-duration 1",
        "--arrival-smoothness" | "--request-rate-ramp-duration" | "--late-policy" => {
            "--request-rate 5"
        }
        "--warmup-request-rate-ramp-duration" => "--request-rate 5 --warmup-duration 1",
        "--prompt-input-tokens-block-size" => {
            "--custom-dataset-type mooncake_trace --input-file tests/cli/traces.jsonl"
        }
        "--insecure" | "--cacert" | "--tls-server-name" => "--url https://h",
        "--cert" => "--url https://h --key key.pem",
        "--key" => "--url https://h --cert cert.pem",
        "--skip-bad-lines" | "--uuid-and-strip" => "--input-file tests/cli/one.jsonl",
        "--public-dataset" => "--input-file tests/datasets/sharegpt.json",
        "--ignore-trace-delays"
        | "--synthesis-speedup-ratio"
        | "--synthesis-prefix-len-multiplier"
        | "--synthesis-prefix-root-multiplier"
        | "--synthesis-prompt-len-multiplier"
        | "--synthesis-output-len-multiplier"
        | "--synthesis-max-isl"
        | "--synthesis-max-osl"
        | "--inter-turn-delay-cap-seconds" => "--input-file tests/cli/traces.jsonl",
        "--fixed-schedule" => "--input-file tests/cli/traces.jsonl",
        "--fixed-schedule-auto-offset"
        | "--fixed-schedule-start-offset"
        | "--fixed-schedule-end-offset" => "--fixed-schedule --input-file tests/cli/traces.jsonl",
        "--slice-attribution" => "--slice-duration 1",
        "--url-weights" => "--url-strategy weighted",
        "--user-centric-rate" => "--conversation-turn-mean 2 --num-users 2",
        "--num-users" => "--conversation-turn-mean 2 --user-centric-rate 2",
        "--request-cancellation-delay" => "--request-cancellation-rate 5",
        "--per-chunk-usage" => "--streaming --use-server-token-count",
        "--wait-for-model-mode" | "--wait-for-model-interval" => "--wait-for-model-timeout 1",
        "--prompt-prefix-pool-size" => "--prompt-prefix-length 5",
        "--prompt-prefix-length" => "--prompt-prefix-pool-size 5",
        "--user-context-prompt-length" => "--num-dataset-entries 5",
        "--concurrency-ramp-duration" | "--warmup-concurrency-ramp-duration" => "--concurrency 9",
        "--prefill-concurrency" | "--warmup-prefill-concurrency" => "--streaming --concurrency 99",
        "--prefill-concurrency-ramp-duration" | "--warmup-prefill-concurrency-ramp-duration" => {
            "--streaming --concurrency 9 --prefill-concurrency 5"
        }
        "--prompt-output-tokens-stddev" => "--osl 5",
        "--image-width-mean" => "--image-height-mean 5",
        name if name.starts_with("--image") && name != "--image-height-mean" => {
            "--image-width-mean 5 --image-height-mean 5"
        }
        "--image-height-mean" => "--image-width-mean 5",
        name if name.starts_with("--audio") && name != "--audio-length-mean" => {
            "--audio-length-mean 1"
        }
        name if name.starts_with("--rankings") => "--endpoint-type nim_rankings",
        "--random-range-ratio" => "--isl 5 --osl 5",
        "--cache-bust" => "--warmup-request-count 2",
        "--random-corpus-style" => "--prompt-corpus random",
        "--tokenize-prompt" => "--endpoint-type completions",
        "--custom-dataset-type" => {
            return vec![
                "--input-file".to_owned(),
                format!("{}/tests/cli/one.jsonl", env!("CARGO_MANIFEST_DIR")),
            ];
        }
        _ => "",
    };
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_spelling_of_every_working_flag_is_taken() {
    for flag in flags::WORKING {
        for name in flag.names {
            let value = sample(flag);
            let mut forms = vec![vec![(*name).to_owned()]];
            if flag.kind != Kind::Switch {
                forms = vec![
                    vec![(*name).to_owned(), value.clone()],
                    vec![format!("{name}={value}")],
                ];
            }
            for form in forms {
                let mut words = vec!["profile".to_owned()];
                for (required, value) in [("--model-names", "m"), ("--url", "h")] {
                    if flag.names[0] != required {
                        words.extend([required.to_owned(), value.to_owned()]);
                    }
                }
                words.extend(company(flag).into_iter().chain(form));
                if flag.names[0] == "--url" {
                    words.extend(["--model".to_owned(), "m".to_owned()]);
                }
                words.dedup();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let taken = run(&words);
                assert!(
                    matches!(taken, Ok(Command::Profile(_))),
                    "{words:?}: {taken:?}"
                );
            }
        }
    }
}

#[test]
fn the_spellings_of_a_flag_mean_the_same() {
    for flag in flags::WORKING
        .iter()
        .filter(|f| !["--model-names", "--url"].contains(&f.names[0]))
    {
        let plans: Vec<String> = flag
            .names
            .iter()
            .map(|name| {
                let mut more = company(flag);
                more.push((*name).to_owned());
                more.extend(Some(sample(flag)).filter(|v| !v.is_empty()));
                let more: Vec<&str> = more.iter().map(String::as_str).collect();
                let mut plan = profile(&more).unwrap();
                plan.cli_command.clear();
                format!("{plan:?}")
            })
            .collect();
        assert!(
            plans.windows(2).all(|pair| pair[0] == pair[1]),
            "{:?} differ",
            flag.names
        );
    }
}

#[test]
fn refused_flags_say_so_once_and_take_their_values_along() {
    let mut refused = 0;
    for flag in flags::profile() {
        let (Status::Later(sentence) | Status::Never(sentence)) = flag.status else {
            continue;
        };
        assert!(sentence.len() > 20, "{:?}", flag.names);
        for name in flag.names {
            refused += 1;
            let more: &[&str] = if flag.kind == Kind::Switch {
                &[name]
            } else {
                &[name, "1"]
            };
            let problems = profile(more).unwrap_err();
            assert_eq!(problems.0.len(), 1, "{name}: {problems}");
            let text = problems.to_string();
            assert!(
                text.starts_with(&format!("{name} is an AIPerf flag that tokenring does not")),
                "{text}"
            );
            assert!(text.ends_with(sentence), "{text}");
        }
    }
    assert!(refused > 130, "{refused}");
}

#[test]
fn the_table_holds_all_flags_and_no_spelling_twice() {
    // 264 of AIPerf 0.13, and --cpus, --driver, --timestamp-source, --wait-mode, --spin-us, --reap-window-us, --realtime,
    // --require-trusted, --warmup-seamless, --slice-attribution, --url-weights, --pre-connect,
    // --tokenize-prompt, --late-policy, --stream-input, --skip-bad-lines, --insecure, --cacert, --cert, --key and --tls-server-name.
    // And of the network: --resolve, --ip-version, --unix-socket, --local-address, --interface, --tcp-nodelay, --tcp-quickack, --so-rcvbuf,
    // --so-sndbuf, --happy-eyeballs-timeout-ms, --keepalive-idle-seconds,
    // --proxy, --dns-refresh-seconds. And --connect-timeout-seconds, --first-byte-timeout-seconds, --idle-timeout-seconds,
    // --keep-alive-resets-idle, --api-key-env and --api-key-file.
    assert_eq!(flags::profile().count(), 304);
    let mut names: Vec<&str> = flags::profile().flat_map(|f| f.names).copied().collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn help_and_man_page_mention_every_working_flag() {
    let help = printed(&["profile", "--help"]);
    let page = printed(&["man"]).replace("\\-", "-");
    for flag in flags::WORKING {
        for name in flag.names.iter().filter(|n| n.starts_with("--")) {
            assert!(help.contains(name), "{name} is not in the help");
        }
        assert!(
            page.contains(flag.names[0]),
            "{} is not in the man page",
            flag.names[0]
        );
    }
    assert!(
        !help.contains("random, or weighted"),
        "the help offers what is refused"
    );
    assert_eq!(help, printed(&["help", "profile"]));
    let both = [
        ("mock-server", flags::MOCK),
        ("calibrate", flags::CALIBRATE),
    ];
    for (subcommand, flag) in both
        .into_iter()
        .flat_map(|(name, table)| table.iter().map(move |flag| (name, flag)))
    {
        let help = printed(&[subcommand, "-h"]);
        assert!(
            help.contains(flag.names[0]) && page.contains(flag.names[0]),
            "{}",
            flag.names[0]
        );
    }
}

#[test]
fn completions_know_the_flags_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        for flag in flags::WORKING {
            let name = flag.names[0].trim_start_matches('-');
            assert!(
                script.contains(name),
                "{name} is not in the completions of {shell}"
            );
        }
    }
}

#[test]
fn the_mock_server_has_the_plan_s_defaults() {
    match run(&["mock-server"]) {
        Ok(Command::MockServer(plan)) => assert_eq!(plan, MockPlan::default()),
        other => panic!("{other:?}"),
    }
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_not_text_is_named_by_its_position() {
    use std::os::unix::ffi::OsStringExt;
    let words = vec![
        OsString::from("profile"),
        OsString::from_vec(vec![b'-', 0xff]),
    ];
    let problems = parse(words).unwrap_err().to_string();
    assert!(
        problems.starts_with("argument 2 is not UTF-8"),
        "{problems}"
    );
}

#[test]
fn secrets_are_in_no_text_that_is_written() {
    let plan = profile(&[
        "--api-key",
        "hush1",
        "--header",
        "X-Auth-Token:hush2",
        "-H",
        r#"{"Cookie":"hush3, hush3"}"#,
        "--extra-inputs",
        r#"api_key:hush4,max_tokens:7"#,
        "--extra-inputs",
        r#"{"inner":{"password":"hush5"}}"#,
    ])
    .unwrap();
    let written = format!("{} {}", plan.cli_command, plan.input_config);
    assert!(!written.contains("hush"), "{written}");
    assert!(written.contains("max_tokens:7"), "{written}");
    assert_eq!(plan.endpoint.api_key.as_deref(), Some("hush1"));
}

#[test]
fn unknown_objectives_are_found_with_the_metrics_in_hand() {
    let plan = profile(&["--goodput", "known:1 unknown:2"]).unwrap();
    let problems = tokenring::config::check_goodput(&plan, &["other", "known"]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].0.contains("\"unknown\""));
    assert!(problems[0].0.ends_with(" are other, known"));
}

/// Words that make trouble likely.
fn word() -> impl Strategy<Value = String> {
    let names: Vec<String> = flags::profile()
        .flat_map(|f| f.names.iter().map(|n| (*n).to_owned()))
        .chain(["mock-server".to_owned()])
        .collect();
    let values = [
        "",
        "-",
        "--",
        "=",
        "-1",
        "1e999",
        "1e300",
        "NaN",
        "inf",
        "1,2",
        "1,",
        ",",
        "{",
        "{}",
        "[",
        "[(1,1):100]",
        "{\"a\":1}",
        "a:b",
        "a:b:c",
        ":",
        "http://[::1]:80/v1?x",
        "http://[",
        "h:99999",
        "0-99999999999",
        "5-1",
        "é",
        "chat",
        "completions",
        "single_turn",
        "1|2,3|4:100",
    ];
    prop_oneof![
        4 => proptest::sample::select(names.clone()),
        3 => proptest::sample::select(values.map(str::to_owned).to_vec()),
        1 => (proptest::sample::select(names), "[ -~]{0,8}").prop_map(|(name, value)| format!("{name}={value}")),
        1 => "\\PC{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever is typed, the answer is a plan or problems, and each problem is a line.
    #[test]
    fn no_command_line_panics(words in proptest::collection::vec(word(), 0..12), subcommand in 0..3usize) {
        let first = ["profile", "mock-server", "completions"][subcommand].to_owned();
        let all: Vec<OsString> = std::iter::once(first).chain(words).map(OsString::from).collect();
        match parse(all) {
            Err(problems) => prop_assert!(!problems.0.is_empty()),
            Ok(Command::Profile(plan)) => {
                prop_assert!(plan.profiling().stop != Default::default());
                prop_assert!(!plan.models.is_empty());
                prop_assert!(plan.endpoint.path().bytes().all(|b| b.is_ascii_graphic()));
                prop_assert!(plan.endpoint.built_in_server == plan.endpoint.urls.is_empty());
            }
            Ok(_) => {}
        }
    }

    /// A URL that is taken gives a request target that can stand in a request line.
    #[test]
    fn joined_urls_fit_a_request_line(url in "(https?://)?[a-z0-9.:@\\[\\]-]{0,10}[/?a-z0-9 =#]{0,12}", path in "[/a-z0-9?]{0,12}") {
        if let Ok(joined) = tokenring::config::join(&url, &path) {
            prop_assert!(joined.target.starts_with('/'));
            prop_assert!(joined.target.bytes().all(|b| b.is_ascii_graphic()));
            prop_assert!(joined.port > 0 && !joined.host.is_empty());
        }
    }
}
