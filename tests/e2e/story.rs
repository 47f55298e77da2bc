//! All files of a run, held against each other and against what the server saw.
//!
//! In: runs with every export. Out: verdicts on their agreement. Never: a number that only one file has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::server::{Script, Server};
use super::tool::{KEY, Run, Tool};

fn run(server: &Server, flags: &str) -> Run {
    Tool::profile(&format!(
        "--model m --url {} --tokenizer gpt2 --artifact-dir out --streaming --isl 16 --export-level raw \
         --export-outputs-json --export-http-trace --api-key {KEY} {flags}",
        server.url()
    ))
    .run()
}

fn by_id(lines: Vec<Value>) -> BTreeMap<String, Value> {
    let id = |line: &Value| {
        line["metadata"]["x_request_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    lines.into_iter().map(|line| (id(&line), line)).collect()
}

#[test]
fn every_file_tells_the_same_story() {
    let server = Server::start(
        Script::default()
            .answer("3", "status 500")
            .answer("5", "part alpha; close")
            .answer("*", "wait 3; usage 11 2; words alpha beta"),
    );
    let run = run(
        &server,
        "--concurrency 3 --workers-max 2 --request-count 20 --warmup-request-count 2 --num-prompts 6",
    );
    assert_eq!(run.code, Some(0), "{run}");
    let records = by_id(run.lines("profile_export.jsonl"));
    let raw = by_id(run.lines("profile_export_raw.jsonl"));
    assert_eq!(records.len(), 22);
    assert_eq!(raw.len(), 22);
    let log = server.log();
    assert_eq!(log.load().len(), 22);
    for seen in log.load() {
        let id = seen.header("x-request-id").unwrap();
        let (record, line) = (&records[id], &raw[id]);
        assert_eq!(record["metadata"], line["metadata"]);
        assert_eq!(
            line["payload"], seen.body,
            "what was sent is what is written"
        );
        assert_eq!(
            seen.header("x-correlation-id"),
            record["metadata"]["x_correlation_id"].as_str()
        );
        assert_eq!(
            seen.header("authorization").unwrap(),
            format!("Bearer {KEY}")
        );
        assert_eq!(
            record["trace_data"]["request_headers"]["Authorization"],
            "<redacted>"
        );
        assert_eq!(record.get("error"), line.get("error"), "{id}");
    }
    each_text_is_the_servers(&run, &records);
    counts_agree(&run);
    bodies_are_listed(&run, &raw);
    for line in raw.values() {
        stamps_are_in_order(line, true);
    }
}

/// Every latency can be computed anew from the raw records: what was recorded comes out.
#[test]
fn raw_records_give_every_latency_again() {
    latencies_again("", true);
    latencies_again("--driver portable", true);
    latencies_again("--timestamp-source user", false);
}

/// `by_kernel`: arrivals are the kernel's stamps, where it gave one.
fn latencies_again(flags: &str, by_kernel: bool) {
    let server = Server::start(Script::always(
        "wait 4; usage 11 6; words a b c d e f every 3",
    ));
    let run = run(
        &server,
        &format!("--concurrency 2 --request-count 8 {flags}"),
    );
    assert_eq!(run.code, Some(0), "{run}");
    let records = by_id(run.lines("profile_export.jsonl"));
    let raw = by_id(run.lines("profile_export_raw.jsonl"));
    let mut compared = 0;
    for (id, line) in &raw {
        stamps_are_in_order(line, by_kernel);
        let responses = line["responses"].as_array().unwrap();
        let content = responses.iter().filter(|response| {
            let data = response["packets"][0]["value"].as_str().unwrap_or("");
            let json: Value = serde_json::from_str(data).unwrap_or_default();
            let text = json["choices"][0]["delta"]["content"].as_str();
            text.is_some_and(|text| !text.is_empty())
        });
        let at: Vec<i64> = content.map(|response| ns(&response["perf_ns"])).collect();
        let start = ns(&line["start_perf_ns"]);
        let metrics = &records[id]["metrics"];
        let value = |tag: &str| metrics[tag]["value"].as_f64().unwrap();
        let same = |tag: &str, nanos: i64| {
            // The monotonic clock may be slewed by 500 parts in a million, lengths of time are not.
            let off = (value(tag) - nanos as f64 / 1e6).abs();
            assert!(off < 0.01 + value(tag) * 1e-3, "{tag}: {off} in {line}");
        };
        same("time_to_first_token", at[0] - start);
        same("time_to_second_token", at[1] - at[0]);
        same("request_latency", at[at.len() - 1] - start);
        let longest = at.windows(2).map(|two| two[1] - two[0]).max();
        same("max_inter_chunk_gap", longest.unwrap());
        let tokens = value("output_sequence_length") - 1.0;
        let decode = (at[at.len() - 1] - at[0]) as f64 / 1e6;
        assert!((value("inter_token_latency") - decode / tokens).abs() < 0.01);
        compared += 1;
    }
    assert_eq!(compared, 8);
    let clock = run.json("profile_export_aiperf.json")["client"]["facts"]["Clock"].to_string();
    let said = ["TSC (invariant), ", "clock_gettime, because ", "counter, "];
    assert!(said.iter().any(|words| clock.contains(words)), "{clock}");
    assert!(clock.contains("ns a reading"), "{clock}");
}

fn ns(value: &Value) -> i64 {
    value
        .as_i64()
        .unwrap_or_else(|| panic!("{value} is no time"))
}

/// Of one raw record: a request is due, handed on, sent; a read is received, seen, parsed; an event has the stamp of its read.
fn stamps_are_in_order(line: &Value, by_kernel: bool) {
    let stamps = &line["stamps"];
    let moments = [
        "due_perf_ns",
        "submitted_perf_ns",
        "first_byte_sent_perf_ns",
        "last_byte_sent_perf_ns",
    ];
    let sent: Vec<i64> = moments.iter().map(|name| ns(&stamps[name])).collect();
    assert!(sent.is_sorted(), "{stamps}");
    // The kernel may stamp an answer before the worker hears that all was sent.
    assert!(sent[2] <= ns(&stamps["end_perf_ns"]), "{stamps}");
    let reads = line["reads"].as_array().unwrap();
    for read in reads {
        let user = ns(&read["user_perf_ns"]);
        let kernel = read.get("kernel_perf_ns").map_or(user, ns);
        let arrival = if by_kernel { kernel } else { user };
        assert_eq!(ns(&read["perf_ns"]), arrival, "{read}");
        assert!(
            kernel <= user && user <= ns(&read["parsed_perf_ns"]),
            "{read}"
        );
    }
    let body: i64 = reads.iter().map(|read| ns(&read["body_bytes"])).sum();
    assert!(body > 0 || line["responses"] == serde_json::json!([]));
    let responses = line["responses"].as_array().unwrap();
    let events: i64 = reads.iter().map(|read| ns(&read["events"])).sum();
    let streamed = responses.iter().filter(|r| r.get("packets").is_some());
    assert_eq!(events as usize, streamed.clone().count(), "{line}");
    for response in streamed {
        let read = &reads[ns(&response["read"]) as usize];
        assert_eq!(response["perf_ns"], read["perf_ns"], "{response}");
        assert_eq!(response["events_in_read"], read["events"], "{response}");
        assert!(ns(&response["first_read"]) <= ns(&response["read"]));
    }
}

fn each_text_is_the_servers(run: &Run, records: &BTreeMap<String, Value>) {
    let outputs = run.json("outputs.json");
    let good = outputs["data"].as_array().unwrap();
    for entry in good {
        let id = entry["x_request_id"].as_str().unwrap();
        if records[id].get("error").is_none() {
            assert_eq!(entry["response_text"], "alpha beta ");
        }
        for (tag, value) in entry["metrics"].as_object().unwrap() {
            assert_eq!(
                records[id]["metrics"][tag]["value"].as_f64(),
                value.as_f64(),
                "{tag}"
            );
        }
    }
    assert!(good.len() >= 18, "{}", good.len());
}

/// JSON, CSV, records and table have the same counts, and the mean of the records is the summary's.
fn counts_agree(run: &Run) {
    let [sent, good, failed, cut] = run.counts();
    assert_eq!(run.metric("request_count", "avg"), good as f64);
    assert_eq!(run.metric("error_request_count", "avg"), failed as f64);
    let counts = &run.summary()["client"]["counts"];
    assert_eq!(counts["success"], good);
    assert_eq!(counts["error"], failed);
    assert_eq!(counts["cancelled"], cut);
    assert_eq!(counts["sent"], sent);
    let line = format!("Requests: {sent} sent, {good} succeeded, {failed} failed");
    assert!(run.stdout.contains(&line), "{line}: {run}");
    assert!(run.text("profile_export_console.txt").contains(&line));
    assert!(
        run.text("profile_export_aiperf.csv")
            .contains(&format!("Request Count,{good}.00"))
    );
    let records = run.records("profiling");
    for tag in [
        "request_latency",
        "time_to_first_token",
        "output_sequence_length",
        "input_sequence_length",
    ] {
        let good = records
            .iter()
            .filter(|record| record.get("error").is_none());
        let values: Vec<f64> = good
            .map(|record| record["metrics"][tag]["value"].as_f64().unwrap())
            .collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let told = run.metric(tag, "avg");
        assert!((mean - told).abs() <= 1e-6 * mean, "{tag}: {mean} {told}");
        let most = values.iter().copied().fold(0.0, f64::max);
        assert!(
            (most - run.metric(tag, "max")).abs() <= 1e-6 * most,
            "{tag}"
        );
    }
}

/// Every body that was sent is in `inputs.json`.
fn bodies_are_listed(run: &Run, raw: &BTreeMap<String, Value>) {
    let inputs = run.json("inputs.json");
    let sessions = inputs["data"].as_array().unwrap();
    assert_eq!(sessions.len(), 6);
    for line in raw.values() {
        let conversation = &line["metadata"]["conversation_id"];
        let session = sessions
            .iter()
            .find(|session| session["session_id"] == *conversation)
            .unwrap();
        let turn = line["metadata"]["turn_index"].as_u64().unwrap() as usize;
        assert_eq!(session["payloads"][turn], line["payload"]);
    }
}

#[test]
fn stalled_streams_end_at_the_limit() {
    let server = Server::start(Script::always("part alpha; stall"));
    let run = run(
        &server,
        "--concurrency 50 --workers-max 2 --request-count 50 --request-timeout-seconds 0.7",
    );
    assert_eq!(run.counts(), [50, 0, 50, 0], "{run}");
    for record in run.records("profiling") {
        let time = |key: &str| record["metadata"][key].as_i64().unwrap();
        let took = (time("request_end_ns") - time("request_start_ns")) / 1_000_000;
        // The limit runs from the moment at which the request is begun; with 50 at once, the last connects some ms later.
        assert!((660..900).contains(&took), "{took} ms");
        assert_eq!(record["error"]["type"], "RequestTimeout");
    }
}

#[test]
fn a_peer_that_takes_no_connection_times_out() {
    // Connections beyond a backlog of none are left unanswered.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let fill: Vec<_> = (0..4)
        .map(|_| {
            std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(100))
        })
        .collect();
    assert!(
        fill.iter().any(Result::is_err),
        "the backlog never fills on this system"
    );
    let run = Tool::profile(&format!(
        "--model m --url http://{address} --tokenizer gpt2 --isl 16 --artifact-dir out --streaming \
         --concurrency 3 --request-count 3 --request-timeout-seconds 0.5"
    ))
    .run();
    assert_eq!(run.code, Some(1), "{run}");
    assert_eq!(run.counts(), [3, 0, 3, 0], "{run}");
    for record in run.records("profiling") {
        assert_eq!(record["error"]["type"], "ConnectTimeout", "{record}");
    }
}
