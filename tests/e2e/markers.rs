//! Markers against prefix caches, with real sockets.
//!
//! In: the built-in server. Out: which requests had which marker. Never: a marker's own digits.

use std::collections::BTreeMap;

use super::tool::{Mock, Run, Tool};

fn run(mock: &Mock, words: &str) -> Run {
    let run = Tool::profile(&format!(
        "--model m --url {} --tokenizer gpt2 --artifact-dir out --ui-type none --streaming --isl 40 --osl 3 --random-seed 7 \
         --export-level raw {words}",
        mock.url
    ))
    .run();
    assert_eq!(run.code, Some(0), "{run}");
    run
}

/// Phase, session, turn, body and marker of each request.
fn requests(run: &Run) -> Vec<(String, String, u64, String, Option<String>)> {
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let lines = run.lines("profile_export_raw.jsonl");
    lines
        .iter()
        .map(|line| {
            let of = &line["metadata"];
            (
                text(&of["benchmark_phase"]).unwrap(),
                text(&of["x_correlation_id"]).unwrap(),
                of["turn_index"].as_u64().unwrap(),
                line["payload"].to_string(),
                text(&line["cache_bust_marker"]),
            )
        })
        .collect()
}

#[test]
fn each_session_has_a_marker_of_its_own_in_every_turn() {
    let mock = Mock::start("--ttft 2 --itl 1");
    let run = run(
        &mock,
        "--cache-bust first-turn-prefix --num-prompts 3 --num-conversations 9 --session-turns-mean 2 --concurrency 3",
    );
    let mut sessions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, session, _, body, marker) in requests(&run) {
        let marker = marker.unwrap();
        assert_eq!(body.matches(&marker).count(), 1, "{body}");
        assert!(!body.contains("____"), "{body}");
        sessions.entry(session).or_default().push(marker);
    }
    assert_eq!(sessions.len(), 9);
    assert!(sessions.values().all(|m| m.len() == 2 && m[0] == m[1]));
    let mut markers: Vec<&String> = sessions.values().map(|markers| &markers[0]).collect();
    markers.sort();
    markers.dedup();
    assert_eq!(markers.len(), 9);
    // A marker's own tokens differ by some; the text gives way by their mean.
    let first = run.metric("input_sequence_length", "min");
    assert!((35.0..46.0).contains(&first), "{first}");
}

#[test]
fn a_warmup_is_kept_apart_by_one_marker() {
    let mock = Mock::start("--ttft 2 --itl 1");
    let run = run(
        &mock,
        "--cache-bust warmup-isolation-system --warmup-request-count 4 --request-count 5 --num-prompts 5",
    );
    let (mut warm, mut cold) = (0, 0);
    for (phase, _, _, body, marker) in requests(&run) {
        if phase == "warmup" {
            warm += 1;
            assert_eq!(marker.as_deref(), Some("[warmup]"));
            assert!(
                body.starts_with("{\"messages\":[{\"role\":\"system\",\"content\":\"[warmup]\"},"),
                "{body}"
            );
        } else {
            cold += 1;
            assert_eq!(marker, None);
            assert!(!body.contains("[warmup]"), "{body}");
        }
    }
    assert_eq!((warm, cold), (4, 5));
}
