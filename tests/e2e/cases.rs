//! Runs the cases of `cases/*.txt`; `README.md` has their form.
//!
//! In: text files. Out: a verdict on each case, all failures of a file at once. Never: a case that is passed over in silence.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::relays::{Proxy, UnixRelay};
use super::server::{Script, Server};
use super::tool::{Mock, Run, Tool};

/// One case, as its file has it.
#[derive(Default)]
struct Case {
    name: String,
    mock: Option<String>,
    /// What a proxy in front of the server answers.
    proxy: Option<String>,
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
            "proxy" => case.proxy = Some(rest.to_owned()),
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
    let relay = flags
        .contains("{unix}")
        .then(|| UnixRelay::start(server.address));
    if let Some(relay) = &relay {
        flags = flags.replace("{unix}", &relay.path().to_string_lossy());
    }
    let proxy = case.proxy.as_ref();
    let proxy = proxy.map(|status| Proxy::start(server.address, status));
    if let Some(proxy) = &proxy {
        flags = flags.replace("{proxy}", &proxy.address.to_string());
    }
    let flags = with_defaults(flags, &url, case.built_in);
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
        .filter_map(|check| verdict(check, &run, &server, proxy.as_ref()).err())
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

/// The flags, with what a case usually wants where it does not say otherwise.
fn with_defaults(mut flags: String, url: &str, built_in: bool) -> String {
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
                "_rankings ",
                "no-isl",
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
        let unwanted = built_in && names[0] == "--url ";
        if !given && !unwanted {
            flags = format!("{flags} {default}");
        }
    }
    flags
        .replace("no-artifact-dir", "")
        .replace("no-ui", "")
        .replace("no-isl", "")
}

/// The verdict on one check line: its first word says what is looked at.
fn verdict(check: &str, run: &Run, server: &Server, proxy: Option<&Proxy>) -> Result<(), String> {
    let check = Check::new(check);
    let found = of_files(&check, run)
        .or_else(|| of_proxy(&check, proxy))
        .or_else(|| of_server(&check, run, server))
        .or_else(|| of_output(&check, run));
    found.unwrap_or_else(|| panic!("no check is called {:?}", check.line))
}

/// A check line, taken apart.
struct Check<'a> {
    line: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Check<'a> {
    fn new(line: &'a str) -> Check<'a> {
        Check {
            line,
            words: line.split(' ').collect(),
        }
    }

    fn rest(&self, from: usize) -> String {
        self.words[from..].join(" ")
    }

    fn number(&self, at: usize) -> f64 {
        let text = self
            .words
            .get(at)
            .unwrap_or_else(|| panic!("{}", self.line));
        text.parse().unwrap_or_else(|_| panic!("{}", self.line))
    }

    /// JSON from the third word on; `absent` is none.
    fn value(&self) -> Option<Value> {
        (self.words[2] != "absent").then(|| serde_json::from_str(&self.rest(2)).unwrap())
    }

    fn holds(&self, good: bool, found: &dyn std::fmt::Debug) -> Option<Result<(), String>> {
        Some(if good {
            Ok(())
        } else {
            Err(format!("`{}`: found {found:?}", self.line))
        })
    }

    /// `value` lies between the numbers at `low` and after it.
    fn within(&self, value: f64, low: usize) -> Option<Result<(), String>> {
        let inside = value >= self.number(low) && value <= self.number(low + 1);
        self.holds(inside, &value)
    }
}

fn of_files(check: &Check<'_>, run: &Run) -> Option<Result<(), String>> {
    match check.words[0] {
        "records" => {
            let counts = run.counts();
            let wanted = [1, 3, 5, 7].map(|at| check.number(at) as usize);
            check.holds(counts == wanted, &counts)
        }
        "warmup" => check.within(run.records("warmup").len() as f64, 1),
        "folder" => check.holds(
            run.artifact_folder() == check.rest(1),
            &run.artifact_folder(),
        ),
        "file" => check.holds(run.artifacts().join(check.words[1]).is_file(), &"none"),
        "no-file" => check.holds(!run.artifacts().join(check.words[1]).exists(), &"one"),
        "no-artifacts" => {
            let any = run
                .files()
                .keys()
                .any(|name| name.contains("profile_export"));
            check.holds(!any, &run.files())
        }
        "metric" => check.within(run.metric(check.words[1], check.words[2]), 3),
        "no-metric" => {
            let summary = run.summary();
            let found = summary.get(check.words[1]);
            check.holds(found.is_none(), &found)
        }
        "each" => {
            let records = run.records("profiling").into_iter();
            let good = records.filter(|record| record.get("error").is_none());
            let values: Vec<f64> = good
                .map(|record| {
                    record["metrics"][check.words[1]]["value"]
                        .as_f64()
                        .unwrap_or(f64::NAN)
                })
                .collect();
            let inside = |value: &f64| *value >= check.number(2) && *value <= check.number(3);
            check.holds(!values.is_empty() && values.iter().all(inside), &values)
        }
        "failed" => {
            let records = run.records("profiling").into_iter();
            let failed: Vec<Value> = records.filter(|r| r.get("error").is_some()).collect();
            let wanted = check.value();
            let same = |record: &Value| record.pointer(check.words[1]) == wanted.as_ref();
            check.holds(!failed.is_empty() && failed.iter().all(same), &failed)
        }
        "error" => {
            let summary = run.summary();
            let groups = summary["error_summary"].as_array().into_iter().flatten();
            let count: f64 = groups
                .filter(|group| group["error_details"]["type"] == check.rest(2))
                .filter_map(|group| group["count"].as_f64())
                .sum();
            check.holds(count == check.number(1), &summary["error_summary"])
        }
        "json" => {
            let summary = run.summary();
            let found = summary.pointer(check.words[1]);
            check.holds(found == check.value().as_ref(), &found)
        }
        _ => None,
    }
}

fn of_proxy(check: &Check<'_>, proxy: Option<&Proxy>) -> Option<Result<(), String>> {
    let heads = proxy?.heads();
    match check.words[0] {
        "tunnels" => check.within(heads.len() as f64, 1),
        "tunnel" => {
            let bad = heads.iter().find(|head| !head.contains(&check.rest(1)));
            check.holds(bad.is_none() && !heads.is_empty(), &bad)
        }
        _ => None,
    }
}

fn of_server(check: &Check<'_>, run: &Run, server: &Server) -> Option<Result<(), String>> {
    let log = server.log();
    let load = log.load();
    match check.words[0] {
        "seen" => check.within(load.len() as f64, 1),
        "probes" => check.within((log.requests.len() - load.len()) as f64, 1),
        "peak" => check.within(log.open_most as f64, 1),
        "connections" => check.within(log.connections as f64, 1),
        "peers" => {
            let peers: Vec<String> = log.peers.iter().map(ToString::to_string).collect();
            check.holds(peers.join(" ") == check.rest(1), &peers)
        }
        "wall" => check.within(run.wall.as_secs_f64(), 1),
        "body" => {
            let wanted = check.value();
            let bad = load
                .iter()
                .find(|seen| seen.body.pointer(check.words[1]) != wanted.as_ref());
            check.holds(
                bad.is_none() && !load.is_empty(),
                &bad.map(|seen| &seen.body),
            )
        }
        "head" => {
            let bad = load.iter().find(|seen| !seen.head.contains(&check.rest(1)));
            check.holds(
                bad.is_none() && !load.is_empty(),
                &bad.map(|seen| &seen.head),
            )
        }
        _ => None,
    }
}

fn of_output(check: &Check<'_>, run: &Run) -> Option<Result<(), String>> {
    match check.words[0] {
        "exit" => check.holds(
            run.code
                .is_some_and(|code| f64::from(code) == check.number(1)),
            &run.code,
        ),
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
            let wanted = format!(" Metric {} ", check.rest(1));
            let same = headers.iter().all(|header| *header == wanted);
            check.holds(!headers.is_empty() && same, &headers)
        }
        "stdout" => check.holds(run.stdout.contains(&check.rest(1)), &"other text"),
        "no-stdout" => check.holds(!run.stdout.contains(&check.rest(1)), &"it"),
        "stderr" => check.holds(run.stderr.contains(&check.rest(1)), &"other text"),
        "no-stderr" => check.holds(!run.stderr.contains(&check.rest(1)), &"it"),
        "silent" => check.holds(run.stderr.is_empty(), &run.stderr),
        _ => None,
    }
}
