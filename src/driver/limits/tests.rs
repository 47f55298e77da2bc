//! Cases of `tests/limits`.
//!
//! In: a machine in files, a need. Out: whether what is said is as the case has it. Never: this machine's own limits.

use std::fs;
use std::path::Path;

use super::*;

/// Reads `NAME value` lines into a machine's files and a need; the lines after `->` are the findings.
fn play(text: &str, folder: &Path) -> (Vec<Finding>, Vec<String>) {
    let mut needs = Needs::default();
    let (given, wanted) = text.split_once("->\n").unwrap();
    for line in given.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "" => {}
            "connections" => needs.connections = value.parse().unwrap(),
            "to" => {
                let (to, count) = value.split_once(' ').unwrap();
                needs.destinations.push(Destination {
                    to: to.parse().unwrap(),
                    connections: count.parse().unwrap(),
                    closing: None,
                });
            }
            "from" => needs.sources.push(value.parse().unwrap()),
            "closing" => {
                let (per_second, count) = value.split_once(' ').unwrap();
                let last = needs.destinations.last_mut().unwrap();
                last.closing = Some(Closing {
                    per_second: per_second.parse().ok(),
                    count: count.parse().ok(),
                });
            }
            "locked" => needs.locked = value.parse().unwrap(),
            "own-ports" => needs.own_ports = value.parse().unwrap(),
            "both-ends" => needs.both_ends = true,
            "at-once" => needs.at_once = true,
            path => {
                let path = folder.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let before = fs::read_to_string(&path).unwrap_or_default();
                fs::write(&path, format!("{before}{value}\n")).unwrap();
            }
        }
    }
    let facts = Facts::read(folder, &needs.ways());
    let wanted = wanted.lines().map(str::to_owned).collect();
    (judge(&needs, &facts), wanted)
}

#[test]
fn each_machine_is_judged_as_its_case_says() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/limits");
    let mut seen = 0;
    for case in fs::read_dir(cases).unwrap().map(Result::unwrap) {
        if case.path().extension().is_none_or(|end| end != "txt") {
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(case.path()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (findings, wanted) = play(&text, folder.path());
        let said: Vec<String> = findings
            .iter()
            .map(|finding| match finding {
                Finding::Refusal(text) => format!("refused: {text}"),
                Finding::Warning(text) => format!("warning: {text}"),
            })
            .collect();
        assert_eq!(said, wanted, "{}", case.path().display());
    }
    assert!(seen >= 8, "{seen} cases");
}

#[test]
fn this_machine_carries_one_connection() {
    let to = "127.0.0.1:9".parse().unwrap();
    let needs = Needs {
        connections: 1,
        destinations: vec![Destination {
            to,
            connections: 1,
            closing: None,
        }],
        ..Needs::default()
    };
    let findings = judge(&needs, &Facts::here(&needs.ways()));
    let refused = |finding: &Finding| matches!(finding, Finding::Refusal(_));
    assert!(!findings.iter().any(refused), "{findings:?}");
}
