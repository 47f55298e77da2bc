//! Keys, and text that would steer a terminal.
//!
//! In: servers that send back what they were sent, or worse. Out: verdicts on all files, both outputs and the list of processes. Never: a key
//! that is one.

use std::time::Duration;

use rustix::process::Signal;

use super::faulty::{Faulty, Script};
use super::tool::{KEY, Run, Tool};

/// Ways to give the key; `KEY` stands for it.
const WAYS: [&str; 6] = [
    "--api-key KEY",
    "--header 'Authorization: Bearer KEY'",
    "--header 'X-Api-Key:KEY' 'Cookie:session=KEY'",
    "--custom-endpoint /v1/chat/completions?api-key=KEY",
    "--api-key-env THE_KEY",
    "--api-key-file key.txt",
];

fn tool(server: &Faulty, flags: &str) -> Tool {
    let url = server.url();
    Tool::profile(&format!(
        "--model m --url {url} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming {}",
        flags
            .replace("KEY", KEY)
            .replace("THE_sk-TOP-secret-0123456789", "THE_KEY")
    ))
    .env("THE_KEY", KEY)
    .file("key.txt", &format!("{KEY}\n"))
}

/// [`Run::check_always`] has looked for the key in every file but the one that holds it.
fn has_no_key(run: &Run, place: &str) {
    for (name, path) in run.files() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(KEY) || name == "key.txt", "{place}: {name}");
    }
}

#[test]
fn a_key_that_a_server_sends_back_is_in_no_file() {
    for echo in ["status", "event", "data", "words", "redirect"] {
        for way in WAYS {
            for ui in ["simple", "none"] {
                let place = format!("{way}, {echo}, {ui}");
                let server = Faulty::start(Script::every_other(&format!("echo {echo}")));
                let run = tool(
                    &server,
                    &format!(
                        "--request-count 4 --ui-type {ui} --export-level raw --export-http-trace --export-outputs-json --verbose {way}"
                    ),
                )
                .run();
                assert_eq!(run.counts()[0], 4, "{place}: {run}");
                has_no_key(&run, &place);
                let raw = run.text("profile_export_raw.jsonl");
                assert!(raw.contains("<redacted>"), "{place}: {raw}");
            }
        }
    }
}

#[test]
fn a_key_in_a_body_is_in_no_file() {
    let server = Faulty::start(Script::every_other("send"));
    let flags = "--request-count 2 --export-level raw --extra-inputs user_api_key:KEY --extra-inputs '{\"a\":{\"password\":\"KEY\"}}'";
    let run = tool(&server, flags).run();
    has_no_key(&run, "a body");
    assert!(run.text("inputs.json").contains("<redacted>"), "{run}");
}

/// Wrong command lines, servers that are not there, names that are none.
#[test]
fn a_key_is_in_no_error() {
    for flags in [
        "--api-key KEY --header KEY",
        "--api-key KEY --api-key KEY",
        "--api-key=KEY --no-such-flag",
        "--apikey KEY",
        "--apikey=KEY",
        "--header 'Authorization Bearer KEY'",
        "--header '{\"Authorization\": \"KEY'",
        "--extra-inputs '{\"password\": \"KEY'",
        "--url http://user:KEY@127.0.0.1:1",
        "--url http://127.0.0.1:1/?api-key=KEY#x",
        "--url http://127.0.0.1:1/?api-key=KEY --url http://no.such.host.invalid/?api-key=KEY",
        "--custom-endpoint x?token=KEY",
        "--api-key KEY --api-key-env THE_KEY",
        "--api-key-env NO_SUCH_VARIABLE",
        "--api-key-file no-such-file",
        "--api-key KEY --wait-for-model-timeout 0.2 --wait-for-model-interval 0.1 --custom-endpoint /x?api-key=KEY",
    ] {
        let words =
            format!("--model m --tokenizer gpt2 --request-count 1 --artifact-dir out {flags}");
        let words = if words.contains("--url") {
            words
        } else {
            words + " --url http://127.0.0.1:1"
        };
        let run =
            Tool::profile(&words.replace("THE_KEY", "THE_VARIABLE").replace("KEY", KEY)).run();
        assert_eq!(run.code, Some(1), "{flags}: {run}");
        let told = run.stderr.contains("Error") || run.stdout.contains("1 failed");
        assert!(told, "{flags}: {run}");
        has_no_key(&run, flags);
    }
}

#[test]
fn a_key_is_not_in_the_list_of_processes() {
    for way in WAYS {
        let server = Faulty::start(Script::every_other("stall"));
        let going = tool(&server, &format!("--request-count 2 {way}")).start();
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while server.requests() == 0 {
            assert!(
                std::time::Instant::now() < end,
                "{way}: the load never came"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        let title = going.title();
        assert!(
            title.contains("profile") && !title.contains(KEY),
            "{way}: {title}"
        );
        for _ in 0..2 {
            going.signal(Signal::INT);
            std::thread::sleep(Duration::from_millis(60));
        }
        let run = going.end();
        assert_eq!(run.summary()["was_cancelled"], true, "{way}");
        assert!(
            run.stdout.contains("<redacted>") || way.contains("--api-key-"),
            "{way}: {run}"
        );
        has_no_key(&run, way);
    }
}

/// Clears of the screen, bells, titles, and marks that turn the direction of writing.
#[test]
fn what_a_server_says_cannot_steer_a_terminal() {
    let nasty = "\x1b[2J\x1b]0;owned\x07\u{9b}31m\u{202e}evil\u{2066}\u{200f}\u{2028}\r";
    for reply in [
        // As a status: phrase, body, headers.
        format!(
            "HTTP/1.1 500 Bad{0}\r\nX-Nasty: {0}\r\nContent-Length: {1}\r\n\r\n{0}",
            nasty.trim_end(),
            nasty.trim_end().len()
        ),
        // As an error in a stream, and as words.
        stream(&serde_json::json!({"error": {"message": nasty, "type": nasty}})),
        stream(
            &serde_json::json!({"choices": [{"index": 0, "delta": {"content": nasty}, "finish_reason": nasty}]}),
        ),
    ] {
        let raw = reply.clone();
        let server = Faulty::start(Script::raw_every_other(raw.into_bytes()));
        let run = Tool::profile(&format!(
            "--model 'm\u{202e}\x1b[31m' --url {} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming --request-count 4 \
             --stats-interval 0.01 --ui-type simple --export-level raw --export-outputs-json --verbose",
            server.url()
        ))
        .run();
        assert_eq!(run.counts()[0], 4, "{run}");
        let mut shown = vec![run.stdout.clone(), run.stderr.clone()];
        shown.push(run.text("profile_export_console.txt"));
        shown.push(run.text("logs/aiperf.log"));
        for text in shown {
            let steers =
                |c: char| c != '\n' && (c.is_control() || nasty.contains(c) && !c.is_ascii());
            assert!(!text.contains(steers), "{text:?}");
        }
        // Files for programs keep what was said, in JSON's own spelling.
        assert!(!run.text("profile_export.jsonl").contains('\x1b'), "{run}");
    }
}

fn stream(data: &serde_json::Value) -> String {
    let body = format!("data: {data}\n\ndata: [DONE]\n\n");
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
