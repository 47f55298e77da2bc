//! Runs the cases of `cases/*.txt`; `README.md` has their form.
//!
//! In: text files. Out: a verdict on each case, all failures of a file at once. Never: a case that is passed over in silence.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::server::{Script, Server};
use super::tool::{Mock, Run, Tool};

/// One case, as its file has it.
#[derive(Default)]
struct Case {
    name: String,
    mock: Option<String>,
    built_in: bool,
    script: Script,
    flags: String,
    files: Vec<(String, String)>,
    env: Vec<(String, String)>,
    checks: Vec<String>,
}

/// Runs every case of a file.
pub fn run_file(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/e2e/cases")
        .join(name);
    let cases = read(&fs::read_to_string(&path).unwrap());
    assert!(!cases.is_empty(), "{name} has no cases");
    let failures: Vec<String> = cases.iter().flat_map(run).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn read(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().map(str::trim_end) {
        let (word, rest) = line
            .trim_start()
            .split_once(' ')
            .unwrap_or((line.trim_start(), ""));
        if let Some(name) = line.strip_prefix("case ") {
            cases.push(Case {
                name: name.to_owned(),
                ..Case::default()
            });
            continue;
        }
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        let case = cases.last_mut().expect("a file begins with a case");
        let (first, last) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "mock" => case.mock = Some(rest.to_owned()),
            "built-in" => case.built_in = true,
            "answer" => case.script = std::mem::take(&mut case.script).answer(first, last),
            "models" => case.script.models = rest.split(' ').map(|s| s.parse().unwrap()).collect(),
            "flags" => case.flags = format!("{} {rest}", case.flags),
            "env" => case.env.push((first.to_owned(), last.to_owned())),
            "write" => match case.files.iter_mut().find(|(name, _)| name == first) {
                Some((_, text)) => *text += &format!("{last}\n"),
                None => case.files.push((first.to_owned(), format!("{last}\n"))),
            },
            _ => case.checks.push(line.trim_start().to_owned()),
        }
    }
    cases
}

fn run(case: &Case) -> Vec<String> {
    let mock = case.mock.as_deref().map(Mock::start);
    let server = Server::start(case.script.clone());
    let url = mock
        .as_ref()
        .map_or_else(|| server.url(), |mock| mock.url.clone());
    let mut flags = case
        .flags
        .replace("{url}", &url)
        .replace("{port}", &server.address.port().to_string());
    for (names, default) in [
        (&["--model "][..], "--model m".to_owned()),
        (&["--url "], format!("--url {url}")),
        (&["--tokenizer "], "--tokenizer gpt2".to_owned()),
        (
            &[
                "--isl ",
                "--synthetic-input-tokens-mean ",
                "--input-file ",
                "--seq-dist ",
            ],
            "--isl 16".to_owned(),
        ),
        (
            &["--artifact-dir ", "no-artifact-dir"],
            "--artifact-dir out".to_owned(),
        ),
        (&["--ui-type ", "no-ui"], "--ui-type none".to_owned()),
    ] {
        let given = names.iter().any(|name| flags.contains(name));
        if !given && !(case.built_in && names[0] == "--url ") {
            flags = format!("{flags} {default}");
        }
    }
    let flags = flags.replace("no-artifact-dir", "").replace("no-ui", "");
    let mut tool = Tool::profile(&flags);
    for (name, text) in &case.files {
        tool = tool.file(name, text);
    }
    for (name, value) in &case.env {
        tool = tool.env(name, value);
    }
    let run = tool.run();
    let wrong: Vec<String> = case
        .checks
        .iter()
        .filter_map(|check| verdict(check, &run, &server).err())
        .collect();
    if wrong.is_empty() {
        return wrong;
    }
    vec![format!(
        "case {}\n  {}\n{run}",
        case.name,
        wrong.join("\n  ")
    )]
}

fn verdict(check: &str, run: &Run, server: &Server) -> Result<(), String> {
    let words: Vec<&str> = check.split(' ').collect();
    let rest = |from: usize| words[from..].join(" ");
    let number = |at: usize| {
        words[at]
            .parse::<f64>()
            .unwrap_or_else(|_| panic!("{check}"))
    };
    let log = server.log();
    let holds = |good: bool, found: &dyn std::fmt::Debug| {
        if good {
            Ok(())
        } else {
            Err(format!("`{check}`: found {found:?}"))
        }
    };
    let within =
        |value: f64, low: usize| holds(value >= number(low) && value <= number(low + 1), &value);
    match words[0] {
        "exit" => holds(
            run.code.is_some_and(|code| f64::from(code) == number(1)),
            &run.code,
        ),
        "records" => {
            let counts = run.counts();
            let wanted = [1, 3, 5, 7].map(|at| words.get(at).map_or(0, |_| number(at) as usize));
            holds(counts == wanted, &counts)
        }
        "warmup" => within(run.records("warmup").len() as f64, 1),
        "seen" => within(log.load().len() as f64, 1),
        "probes" => within((log.requests.len() - log.load().len()) as f64, 1),
        "peak" => within(log.open_most as f64, 1),
        "connections" => within(log.connections as f64, 1),
        "wall" => within(run.wall.as_secs_f64(), 1),
        "folder" => holds(run.artifact_folder() == rest(1), &run.artifact_folder()),
        "file" => holds(run.artifacts().join(words[1]).is_file(), &"none"),
        "no-file" => holds(!run.artifacts().join(words[1]).exists(), &"one"),
        "no-artifacts" => holds(
            !run.files().keys().any(|f| f.contains("profile_export")),
            &run.files(),
        ),
        "metric" => within(run.metric(words[1], words[2]), 3),
        "no-metric" => holds(
            run.summary().get(words[1]).is_none(),
            &run.summary()[words[1]],
        ),
        "each" => {
            let values = run
                .records("profiling")
                .into_iter()
                .filter(|r| r.get("error").is_none());
            let values: Vec<f64> = values
                .filter_map(|r| r["metrics"][words[1]]["value"].as_f64())
                .collect();
            let inside = |v: &f64| *v >= number(2) && *v <= number(3);
            holds(!values.is_empty() && values.iter().all(inside), &values)
        }
        "error" => {
            let summary = run.summary();
            let found = summary["error_summary"].as_array().into_iter().flatten();
            let count = found
                .filter(|e| e["error_details"]["type"] == rest(2))
                .filter_map(|e| e["count"].as_f64());
            holds(count.sum::<f64>() == number(1), &summary["error_summary"])
        }
        "json" => {
            let summary = run.summary();
            let found = summary.pointer(words[1]);
            let wanted: Option<Value> =
                (words[2] != "absent").then(|| serde_json::from_str(&rest(2)).unwrap());
            holds(found == wanted.as_ref(), &found)
        }
        "body" => {
            let wanted: Option<Value> =
                (words[2] != "absent").then(|| serde_json::from_str(&rest(2)).unwrap());
            let bad = log
                .load()
                .into_iter()
                .find(|seen| seen.body.pointer(words[1]) != wanted.as_ref());
            holds(
                bad.is_none() && !log.load().is_empty(),
                &bad.map(|seen| &seen.body),
            )
        }
        "head" => {
            let bad = log
                .load()
                .into_iter()
                .find(|seen| !seen.head.contains(&rest(1)));
            holds(
                bad.is_none() && !log.load().is_empty(),
                &bad.map(|seen| &seen.head),
            )
        }
        "columns" => {
            let headers = run
                .stdout
                .lines()
                .filter(|line| line.starts_with("│ Metric "));
            let headers: Vec<String> = headers
                .map(|line| {
                    line.split(['│', '┆'])
                        .map(str::trim)
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect();
            let wanted = format!(" Metric {} ", rest(1));
            holds(
                !headers.is_empty() && headers.iter().all(|header| *header == wanted),
                &headers,
            )
        }
        "stdout" => holds(run.stdout.contains(&rest(1)), &"other text"),
        "no-stdout" => holds(!run.stdout.contains(&rest(1)), &"it"),
        "stderr" => holds(run.stderr.contains(&rest(1)), &"other text"),
        "no-stderr" => holds(!run.stderr.contains(&rest(1)), &"it"),
        "silent" => holds(run.stderr.is_empty(), &run.stderr),
        other => panic!("no check is called {other:?}"),
    }
}
