//! Conversations of files, with a server that sees what is sent.
//!
//! In: small files, scripted replies. Out: bodies, headers and their order as the server got them. Never: a bound on a time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::server::{Script, Server};
use super::tool::{Run, Tool};

const REPLIES: &str = "words live reply";

fn tool(server: &Server, file: &str, flags: &str) -> Tool {
    Tool::profile(&format!(
        "--model m --url {} --tokenizer gpt2 --artifact-dir out --streaming --ui-type none --input-file in.jsonl {flags}",
        server.url()
    ))
    .file("in.jsonl", file)
}

/// Messages of each request in the order they came, as pairs of role and content.
fn sent(server: &Server) -> Vec<Value> {
    let log = server.log();
    let pair = |message: &Value| json!([message["role"], message["content"]]);
    let messages = |body: &Value| {
        body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(pair)
            .collect()
    };
    log.load().iter().map(|seen| messages(&seen.body)).collect()
}

const RECORDED: &str = r#"{"session_id": "a", "turns": [{"role": "system", "text": "s"}, {"text": "one"}, {"role": "assistant", "text": "R"}, {"text": "two"}]}"#;

#[test]
fn recorded_replies_take_the_place_of_live_ones() {
    let server = Server::start(Script::always(REPLIES));
    let run = tool(
        &server,
        RECORDED,
        "--custom-dataset-type multi_turn --num-conversations 1",
    )
    .run();
    assert_eq!(run.counts(), [2, 2, 0, 0], "{run}");
    assert_eq!(
        sent(&server),
        [
            json!([["system", "s"], ["user", "one"]]),
            json!([
                ["system", "s"],
                ["user", "one"],
                ["assistant", "R"],
                ["user", "two"]
            ])
        ]
    );
    assert!(
        run.to_string()
            .contains("1 of 1 conversations carry recorded replies"),
        "{run}"
    );
    // All of it is known before the run.
    let inputs = run.json("inputs.json");
    assert_eq!(
        inputs["data"][0]["payloads"][1],
        server.log().load()[1].body
    );
}

#[test]
fn a_line_may_say_how_its_history_is_built() {
    let says = |mode: &str| {
        RECORDED.replace(
            "\"turns\"",
            &format!("\"context_mode\": \"{mode}\", \"turns\""),
        )
    };
    let live = "live reply ";
    for (mode, last) in [
        (
            "deltas_with_responses",
            json!([
                ["system", "s"],
                ["user", "one"],
                ["assistant", "R"],
                ["user", "two"]
            ]),
        ),
        (
            "message_array_with_responses",
            json!([["system", "s"], ["user", "two"]]),
        ),
        (
            "deltas_without_responses",
            json!([
                ["system", "s"],
                ["user", "one"],
                ["assistant", live],
                ["assistant", "R"],
                ["assistant", live],
                ["user", "two"]
            ]),
        ),
    ] {
        let server = Server::start(Script::always(REPLIES));
        let run = tool(
            &server,
            &says(mode),
            "--custom-dataset-type multi_turn --num-conversations 1",
        )
        .run();
        assert_eq!(sent(&server).last(), Some(&last), "{mode}: {run}");
    }
}

#[test]
fn results_of_tools_follow_the_live_calls() {
    let file = r#"{"turns": [{"text": "one", "tools": [{"type": "function", "function": {"name": "f"}}]}, {"messages": [{"role": "tool", "tool_call_id": "t", "content": "4"}]}]}"#;
    let server = Server::start(Script::always(REPLIES));
    let run = tool(&server, file, "--num-conversations 1").run();
    assert_eq!(run.counts(), [2, 2, 0, 0], "{run}");
    let log = server.log();
    let second = &log.load()[1].body;
    assert_eq!(
        second["messages"][2],
        json!({"role": "tool", "tool_call_id": "t", "content": "4"})
    );
    assert_eq!(second["tools"], log.load()[0].body["tools"]);
}

#[test]
fn a_turn_behind_a_failed_one_goes_on_without_its_reply_and_that_is_told() {
    let file = r#"{"turns": [{"text": "one"}, {"text": "two"}, {"text": "three"}]}"#;
    let server = Server::start(
        Script::default()
            .answer("1", "status 500")
            .answer("*", REPLIES),
    );
    let run = tool(&server, file, "--num-conversations 1").run();
    assert_eq!(run.counts(), [3, 2, 1, 0], "{run}");
    let last = json!([
        ["user", "one"],
        ["user", "two"],
        ["assistant", "live reply "],
        ["user", "three"]
    ]);
    assert_eq!(sent(&server).last(), Some(&last));
    assert!(
        run.stdout
            .contains("1 of 1 failed requests were not the last of their conversations"),
        "{run}"
    );
}

/// Whatever a request fails of, later turns go on as if its reply had not been, and the others' replies stand in their places.
#[test]
fn no_word_of_a_failed_reply_is_in_a_later_turn() {
    let conversation = |number: usize| {
        format!(
            r#"{{"session_id": "{number}", "turns": [{{"text": "0"}}, {{"text": "1"}}, {{"text": "2"}}, {{"text": "3"}}]}}"#
        ) + "\n"
    };
    let file: String = (0..6).map(conversation).collect();
    let broken = "part half a reply";
    for (answer, flags, error) in [
        ("status 500".to_owned(), "", "Internal Server Error"),
        (format!("{broken}; close"), "", "Truncated"),
        (format!("{broken}; end"), "", "Truncated"),
        (format!("{broken}; error died; end"), "", "ServerError"),
        (
            format!("{broken}; stall"),
            "--request-timeout-seconds 0.2",
            "RequestTimeout",
        ),
        (
            "words half a reply every 20".to_owned(),
            "--request-cancellation-rate 40 --request-cancellation-delay 0.03 --random-seed 5",
            "RequestCancellationError",
        ),
    ] {
        let cut = answer.starts_with("words");
        let mut script = Script::default();
        for number in [1, 3, 4, 9, 14, 20, 23] {
            let this = if cut { REPLIES } else { &answer };
            script = script.answer(&number.to_string(), this);
        }
        let others = if cut { &answer } else { REPLIES };
        let server = Server::start(script.answer("*", others));
        let run = tool(&server, &file, &format!("--num-conversations 6 {flags}")).run();
        let failed = errors(&run);
        assert!(
            failed.values().any(|kind| kind == error),
            "{failed:?} {run}"
        );
        assert_eq!(failed.len(), 24, "{run}");
        let log = server.log();
        for seen in log.load() {
            let name = seen.header("x-correlation-id").unwrap();
            let messages = seen.body["messages"].as_array().unwrap();
            let role = |message: &Value| message["role"] == "user";
            let users = messages.iter().filter(|message| role(message)).count();
            let heard: usize = (0..users - 1)
                .filter(|turn| failed[&(name.to_owned(), *turn)].is_empty())
                .count();
            assert_eq!(messages.len(), users + heard, "{messages:?} {failed:?}");
            let whole = |message: &Value| message["content"] == "live reply ";
            let others = messages.iter().filter(|message| !role(message));
            assert!(cut || others.clone().all(whole), "{messages:?}");
        }
    }
}

/// The error of each request, empty where there was none, by the name of its session and its turn.
fn errors(run: &Run) -> BTreeMap<(String, usize), String> {
    let of = |record: &Value| {
        let metadata = &record["metadata"];
        let name = metadata["x_correlation_id"].as_str().unwrap().to_owned();
        let turn = metadata["turn_index"].as_u64().unwrap();
        let kind = record["error"]["type"].as_str().unwrap_or("").to_owned();
        ((name, usize::try_from(turn).unwrap()), kind)
    };
    run.records("profiling").iter().map(of).collect()
}

fn order(run: &Run, phase: &str) -> Vec<(i64, String)> {
    let of = |record: &Value| {
        let metadata = &record["metadata"];
        let id = metadata["conversation_id"].as_str().unwrap();
        (metadata["session_num"].as_i64().unwrap(), id.to_owned())
    };
    let mut order: Vec<(i64, String)> = run.records(phase).iter().map(of).collect();
    order.sort();
    order
}

#[test]
fn warmup_and_profiling_draw_from_one_order_on_any_number_of_workers() {
    let line = |number: usize| format!("{{\"text\": \"word\", \"session_id\": \"{number}\"}}\n");
    let file: String = (0..7).map(line).collect();
    for strategy in ["sequential", "shuffle", "random"] {
        let drawn = [1, 2].map(|workers| {
            let server = Server::start(Script::always(REPLIES));
            let flags = format!(
                "--dataset-sampling-strategy {strategy} --warmup-request-count 3 --request-count 11 --concurrency 4 \
                 --random-seed 3 --workers-max {workers}"
            );
            let run = tool(&server, &file, &flags).run();
            assert_eq!(server.log().load().len(), 14, "{run}");
            let both = ["warmup", "profiling"].map(|phase| order(&run, phase));
            let ids = both.into_iter().flatten().map(|(_, id)| id);
            ids.collect::<Vec<String>>()
        });
        assert_eq!(drawn[0], drawn[1], "{strategy}");
        let rounds: Vec<Vec<String>> = drawn[0].chunks(7).map(<[String]>::to_vec).collect();
        let sorted = |round: &Vec<String>| {
            let mut round = round.clone();
            round.sort();
            round
        };
        let all: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(rounds.len(), 2, "{strategy}: {drawn:?}");
        let permuted = sorted(&rounds[0]) == all && sorted(&rounds[1]) == all;
        assert_eq!(permuted, strategy != "random", "{rounds:?}");
        assert_eq!(rounds[0] == all, strategy == "sequential", "{rounds:?}");
        assert_eq!(
            rounds[0] == rounds[1],
            strategy == "sequential",
            "{rounds:?}"
        );
    }
}

#[test]
fn routers_get_the_sessions_name_under_the_headers_that_are_asked_for() {
    let server = Server::start(Script::always(REPLIES));
    let file = r#"{"turns": [{"text": "one"}, {"text": "two"}]}"#;
    let run = tool(
        &server,
        file,
        "--num-conversations 2 --session-header X-Mine",
    )
    .env("AIPERF_HTTP_X_SESSION_ID_FROM_CORRELATION_ID", "1")
    .env("AIPERF_HTTP_X_SMG_ROUTING_KEY_FROM_CORRELATION_ID", "true")
    .run();
    assert_eq!(run.counts(), [4, 4, 0, 0], "{run}");
    let log = server.log();
    let mut names = Vec::new();
    for seen in log.load() {
        let name = seen.header("x-mine").unwrap().to_owned();
        for header in ["x-session-id", "x-session-affinity", "x-smg-routing-key"] {
            assert_eq!(seen.header(header), Some(&name[..]), "{header}");
        }
        assert_eq!(seen.header("x-correlation-id"), None);
        assert_eq!(seen.header("x-dynamo-session-id"), None);
        names.push(name);
    }
    assert!(
        names[0] == names[1] && names[2] == names[3] && names[0] != names[2],
        "{names:?}"
    );
    let server = Server::start(Script::always(REPLIES));
    let wrong = tool(&server, file, "")
        .env(
            "AIPERF_HTTP_X_SESSION_AFFINITY_FROM_CORRELATION_ID",
            "perhaps",
        )
        .run();
    assert!(
        wrong.to_string().contains("neither true nor false"),
        "{wrong}"
    );
    assert_eq!(server.log().load().len(), 0);
}
