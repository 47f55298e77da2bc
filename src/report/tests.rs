//! In: a fixed made-up run. Out: checks of every file. Never: a clock or a server.

use std::collections::HashMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::clock::{Anchor, Calibration, Nanos, Tick};
use crate::config::*;
use crate::metric::{ErrorGroup, Group, Metric, Row, Stats, Steady, SteadyState, Value, Window};
use crate::record::{
    ErrorDetails, EventMark, Exchange, Read, Record, ReplyEvent, RequestId, Ticks,
};

static LATENCY: Metric = Metric {
    tag: "request_latency",
    header: "Request Latency",
    unit: "ms",
    group: Group::Default,
    order: Some(300),
    larger_is_better: false,
    in_records: true,
    hidden: false,
};
static COUNT: Metric = Metric {
    tag: "request_count",
    header: "Request Count",
    unit: "requests",
    order: Some(1000),
    in_records: false,
    ..LATENCY
};

fn phase(kind: PhaseKind) -> PhasePlan {
    PhasePlan {
        kind,
        seamless: false,
        arrivals: Arrivals::ClosedLoop,
        concurrency: Some(1),
        slots: SlotPlan::default(),
        late: crate::config::LatePolicy::default(),
        stop: StopRule::default(),
        grace: None,
    }
}

fn plan(directory: &Path, prefix: Option<&str>) -> Plan {
    Plan {
        models: vec!["m".into()],
        model_selection: ModelSelection::RoundRobin,
        endpoint: EndpointPlan {
            streaming: true,
            request_timeout: Nanos(1),
            time_limits: crate::config::TimeLimits::default(),
            ..EndpointPlan::plain(EndpointKind::Chat)
        },
        tokenizer: TokenizerPlan {
            apply_chat_template: false,
            name: None,
            revision: "main".into(),
        },
        dataset: DatasetPlan {
            source: DatasetSource::File(FilePlan::new("x".into(), FileFormat::SingleTurn)),
            entries: 1,
            sampling: Sampling::Sequential,
            output_tokens: None,
            system_prompt: None,
            prompts: PromptPlan::default(),
            fixed_schedule: None,
            trace: crate::config::TracePlan::default(),
            streaming: Streaming::Auto,
        },
        phases: vec![phase(PhaseKind::Profiling)],
        goodput: Vec::new(),
        output: OutputPlan {
            directory: directory.to_owned(),
            prefix: prefix.map(str::to_owned),
            level: ExportLevel::Raw,
            outputs_json: true,
            http_trace: true,
            show_trace_timing: false,
            ui: UiKind::None,
            log_level: LogLevel::Info,
            stats_interval: None,
            slices: None,
        },
        workers: WorkerPlan::default(),
        random_seed: Some(1),
        failed_request_threshold: None,
        cancellation: None,
        cli_command: "tokenring profile -m 'm'".into(),
        input_config: json!({"models": {"items": [{"name": "m"}]}}),
    }
}

fn spread(x: f64, count: u64) -> Stats {
    let v = Some(x);
    Stats {
        avg: v,
        min: v,
        max: v,
        sum: v,
        p1: v,
        p5: v,
        p10: v,
        p25: v,
        p50: v,
        p75: v,
        p90: v,
        p95: v,
        p99: v,
        std: v,
        count: Some(count),
    }
}

fn report(directory: &Path, prefix: Option<&str>, stats: Stats) -> RunReport {
    let summary = Summary {
        rows: vec![
            Row {
                metric: &COUNT,
                stats: Stats::scalar(6.0),
            },
            Row {
                metric: &LATENCY,
                stats,
            },
        ],
        errors: vec![ErrorGroup {
            details: ErrorDetails {
                code: Some(500),
                kind: "Internal Server Error".into(),
                message: "bad \u{1b}[31mred\u{7}".into(),
                class: crate::record::ErrorClass::HttpStatus,
            },
            count: 1,
        }],
        window: Window {
            start_ns: 1_000_000_000,
            end_ns: 1_250_000_000,
        },
        success_count: 6,
        error_count: 1,
        ..Summary::default()
    };
    let phase = |name: &str, kind, index| PhaseReport {
        name: name.into(),
        kind,
        index,
        start_ns: 1,
        end_ns: 2,
        was_cancelled: false,
        summary: summary.clone(),
    };
    RunReport {
        plan: Arc::new(plan(directory, prefix)),
        benchmark_id: "0123456789ab".into(),
        random_seed: 1,
        phases: vec![
            phase("warmup", PhaseKind::Warmup, 0),
            phase("profiling", PhaseKind::Profiling, 1),
        ],
        profiling: summary.clone(),
        slices: None,
        warmup: Some(summary),
        was_cancelled: false,
        incomplete_reason: None,
        bad_lines: None,
        client: ClientReport {
            sent: 7,
            ..ClientReport::default()
        },
    }
}

#[test]
fn the_csv_is_as_aiperf_writes_it() {
    let report = report(Path::new("d"), None, spread(70.506, 6));
    let n = ",70.51".repeat(14);
    let expected = format!(
        "Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std\r\nRequest Latency (ms){n}\r\n\r\nMetric,Value\r\nRequest Count,6.00\r\n"
    );
    let text = summary_csv::render(&report.profiling);
    assert_eq!(text, expected);
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(text.as_bytes());
    assert_eq!(reader.records().filter_map(Result::ok).count(), 3);
}

#[test]
fn the_console_shows_counts_marks_scarce_percentiles_and_escapes_the_server() {
    let report = report(Path::new("d"), None, spread(1234.5, 6));
    for width in [0, 40, 80, 140] {
        let text = render_console(&report, width, &[]);
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
    }
    let text = render_console(&report, 140, &[]);
    for part in [
        "7 sent, 6 succeeded, 1 failed (1 Internal Server Error), 0 cancelled",
        "1,234.50*",
        "\\u{1b}[31m",
        "Benchmark Duration: 0.25 sec",
        "Request Count (requests)",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 140), "{text}");
    let many = render_console(
        &super::tests::report(Path::new("d"), None, spread(1.0, 100)),
        140,
        &[],
    );
    assert!(!many.contains("1.00*"), "{many}");
}

#[test]
fn all_files_are_written_under_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let report = report(folder.path(), Some("foo"), spread(1.0, 6));
    let body = |turn| format!("{{\"turn\":{turn}}}").into_bytes().into();
    let bodies = InputBodies {
        count: 1,
        secrets: &crate::config::Secrets::default(),
        conversation: &|_| Some(("c".to_owned(), vec![body(0), body(1)])),
    };
    write_all(&report, Inputs::Now(&bodies), &[]).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let parse = |name: &str| serde_json::from_str::<Json>(&read(name)).unwrap();
    assert!(read("foo.csv").contains("\r\n"));
    let main = parse("foo.json");
    assert_eq!(
        main["request_count"],
        json!({"unit": "requests", "avg": 6.0})
    );
    assert!(read("foo.json").contains("\"avg\": 6.0\n"));
    assert!(main.get("incomplete_reason").is_none());
    assert_eq!(
        parse("inputs.json"),
        json!({"data": [{"session_id": "c", "payloads": [{"turn": 0}, {"turn": 1}]}]})
    );
    assert_eq!(
        parse(".aiperf_results_ready.json"),
        json!({"ready": true, "was_cancelled": false, "partial": false})
    );
    let manifest = parse("phase_manifest.json");
    let places: Vec<&Json> = (0..2)
        .map(|i| &manifest["phases"][i]["profiling_index"])
        .collect();
    assert_eq!(places, [&Json::Null, &json!(0)]);
    assert!(
        manifest["phases"][0]
            .as_object()
            .unwrap()
            .contains_key("profiling_index")
    );
    for phase in manifest["phases"].as_array().unwrap() {
        read(phase["metrics_csv"].as_str().unwrap());
        parse(phase["metrics_json"].as_str().unwrap());
    }
    assert!(read("foo_console.txt").contains("foo.csv"));
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 7, "a temporary file was left behind");
}

#[test]
fn every_line_of_the_records_parses_and_secrets_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.jsonl");
    let mut writer = RecordsWriter::create(&path, true).unwrap();
    let mut outputs = OutputsWriter::create(&folder.path().join("o.json")).unwrap();
    let tag = PhaseTag {
        name: "profiling".into(),
        kind: PhaseKind::Profiling,
        index: 0,
        profiling_index: Some(0),
    };
    for number in [2_u64, 0, 1] {
        let mut record = Record {
            id: RequestId {
                number,
                ..RequestId::default()
            },
            text: Some(format!("t{number}")),
            other_texts: vec![(1, "u".to_owned()); usize::from(number == 1)],
            ..Record::default()
        };
        record.trace.request_headers = vec![
            ("Authorization".into(), "Bearer hush".into()),
            ("Accept".into(), "*/*".into()),
        ];
        let values = [
            (&LATENCY, Value::One(f64::NAN)),
            (&LATENCY, Value::One(1.5)),
        ];
        writer.write(&record, &values, &tag).unwrap();
        outputs.write(&record, &values, &tag).unwrap();
    }
    writer.write(&Record::default(), &[], &tag).unwrap();
    writer.flush().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 3);
    for line in text.lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        assert_eq!(
            line["metrics"]["request_latency"],
            json!({"value": 1.5, "unit": "ms"})
        );
        assert_eq!(
            line["trace_data"]["request_headers"],
            json!({"Authorization": "<redacted>", "Accept": "*/*"})
        );
    }
    let out: Json =
        serde_json::from_str(&std::fs::read_to_string(outputs.finish().unwrap()).unwrap()).unwrap();
    let texts: Vec<&str> = out["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e["response_text"].as_str())
        .collect();
    assert_eq!(texts, ["t0", "t1", "t2"]);
    let others = [0, 1, 2].map(|entry| out["data"][entry].get("other_response_texts"));
    let several = json!([{"choice": 1, "text": "u"}]);
    assert_eq!(others, [None, Some(&several), None]);
}

#[test]
fn secret_names_are_known_in_any_spelling() {
    let cases: HashMap<&str, bool> = [
        ("authorization", true),
        ("X-API-KEY", true),
        ("api_key", true),
        ("Set-Cookie", true),
        ("X-Session-Affinity", true),
        ("x-amz-signature", true),
        ("Accept", false),
        ("Content-Type", false),
    ]
    .into();
    for (name, secret) in cases {
        assert_eq!(is_secret_header(name), secret, "{name}");
    }
}

/// Two reads, the second with both events, and the moments of its request; the monotonic clock stood at 100 at tick 0.
fn two_events_in_one_read() -> (Exchange, Record) {
    let body = b"data: {\"a\":1}\n\ndata: [DONE]\n\n".to_vec();
    let length = body.len() as u64;
    let event = |begin, end, tokens| ReplyEvent {
        mark: EventMark {
            begin,
            end,
            read: 1,
            first_read: 0,
        },
        tokens,
    };
    let read = |tick, kernel, parsed, body_end, wire_bytes| Read {
        tick: Tick(tick),
        kernel,
        parsed: Tick(parsed),
        body_end,
        wire_bytes,
        by_kernel: kernel != Tick::NEVER,
    };
    let exchange = Exchange {
        reads: vec![
            read(7, Tick::NEVER, 8, 10, 130),
            read(20, Tick(18), 25, length, 20),
        ],
        ticks: Ticks {
            due: Tick(1),
            submitted: Tick(2),
            first_byte_sent: Tick(3),
            last_byte_sent: Tick(4),
            end: Tick(18),
            ..Ticks::default()
        },
        body,
        ..Exchange::default()
    };
    let record = Record {
        events: vec![event(0, 15, Some(3)), event(15, length, None)],
        ..Record::default()
    };
    (exchange, record)
}

/// The text of the raw export of one exchange, sent with each of `bodies`.
fn raw_export(exchange: &Exchange, record: &Record, bodies: &[&[u8]]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw.jsonl");
    let anchor = Anchor {
        tick: Tick(0),
        raw_ns: 0,
        monotonic_ns: 100,
        wall_ns: 0,
        width: 0,
    };
    let calibration = Calibration::from_start(anchor, 1.0);
    let tag = PhaseTag {
        name: "profiling".into(),
        kind: PhaseKind::Profiling,
        index: 0,
        profiling_index: Some(0),
    };
    let mut writer = RawWriter::create(&path).unwrap();
    for sent in bodies {
        writer
            .write(exchange, record, sent, &calibration, &tag)
            .unwrap();
    }
    writer.flush().unwrap();
    std::fs::read_to_string(&path).unwrap()
}

#[test]
fn the_raw_export_keeps_payload_and_packets() {
    let (exchange, record) = two_events_in_one_read();
    let bodies = [&b"{\"n\":1.50}"[..], b"{\n\"n\":1}", b"\xff\n"];
    let text = raw_export(&exchange, &record, &bodies);
    assert!(text.contains("\"payload\":{\"n\":1.50}"), "{text}");
    let keys = [
        "metadata",
        "start_perf_ns",
        "request_headers",
        "responses",
        "payload",
    ];
    let places: Vec<_> = keys
        .iter()
        .map(|key| text.find(&format!("\"{key}\":")))
        .collect();
    assert!(places.is_sorted() && places[0].is_some(), "{text}");
    let lines = text.lines().map(serde_json::from_str::<Json>);
    assert_eq!(lines.filter(Result::is_ok).count(), 3);
}

#[test]
fn the_raw_export_keeps_every_stamp() {
    let (exchange, record) = two_events_in_one_read();
    let text = raw_export(&exchange, &record, &[b"{}"]);
    let line: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(
        line["responses"],
        json!([
            {"perf_ns": 118, "packets": [{"name": "data", "value": "{\"a\":1}"}],
                "read": 1, "first_read": 0, "events_in_read": 2, "tokens": 3},
            {"perf_ns": 118, "packets": [{"name": "data", "value": "[DONE]"}],
                "read": 1, "first_read": 0, "events_in_read": 2},
        ])
    );
    assert_eq!(
        line["stamps"],
        json!({
            "due_perf_ns": 101, "submitted_perf_ns": 102, "first_byte_sent_perf_ns": 103,
            "last_byte_sent_perf_ns": 104, "end_perf_ns": 118,
        })
    );
    assert_eq!(
        line["reads"],
        json!([
            {"perf_ns": 107, "user_perf_ns": 107, "parsed_perf_ns": 108, "wire_bytes": 130, "body_bytes": 10, "events": 0},
            {"perf_ns": 118, "kernel_perf_ns": 118, "user_perf_ns": 120, "parsed_perf_ns": 125, "wire_bytes": 20,
                "body_bytes": 19, "events": 2},
        ])
    );
}

/// `BLESS=1` writes the files anew.
#[test]
fn the_golden_files_hold() {
    let report = report(Path::new("artifacts"), None, spread(1234.5, 6));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report");
    for (name, text) in [
        ("console.txt", render_console(&report, 140, &[])),
        ("summary.csv", summary_csv::render(&report.profiling)),
    ] {
        let path = folder.join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
    }
}

proptest! {
    #[test]
    fn no_number_breaks_a_file(x in any::<f64>(), count in any::<u64>()) {
        let report = report(Path::new("d"), None, spread(x, count));
        let text = summary_json::render(&report);
        prop_assert!(serde_json::from_str::<Json>(&text).is_ok());
        for text in [text, summary_csv::render(&report.profiling), render_console(&report, 140, &[])] {
            prop_assert!(!text.contains("NaN") && !text.contains("inf,") && !text.contains("Infinity"));
        }
    }
}

#[test]
fn the_steady_state_stands_beside_the_whole_run() {
    let mut report = report(Path::new("d"), None, spread(70.506, 6));
    let plain = summary_csv::render(&report.profiling);
    let reason = "there, is none";
    report.profiling.steady = Some(Steady::Absent(reason.into()));
    let absent = format!("{plain}\r\nSteady State,Value\r\nReason,\"{reason}\"\r\n");
    assert_eq!(summary_csv::render(&report.profiling), absent);
    let json = |report: &RunReport| {
        serde_json::from_str::<Json>(&summary_json::render(report)).unwrap()["steady_state"].clone()
    };
    assert_eq!(json(&report), json!({ "reason": reason }));
    let text = render_console(&report, 140, &[]);
    assert!(
        text.contains("Steady State: none, there, is none\n"),
        "{text}"
    );

    report.profiling.steady = Some(Steady::State(SteadyState {
        window: Window {
            start_ns: 1_050_000_000,
            end_ns: 1_175_000_000,
        },
        share: 0.5,
        target: 4,
        level: 4,
        rows: vec![Row {
            metric: &COUNT,
            stats: Stats::scalar(3.0),
        }],
    }));
    let section = "Steady State,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std\r\n\
        Start (ns),1050000000\r\nEnd (ns),1175000000\r\nShare (ratio),0.50\r\n\
        Target In Flight,4\r\nLeast In Flight,4\r\nRequest Count,3.00";
    let text = summary_csv::render(&report.profiling);
    assert!(text.starts_with(&format!("{plain}\r\n{section}")), "{text}");
    let expected = json!({
        "start_ns": 1_050_000_000, "end_ns": 1_175_000_000, "duration_seconds": 0.125, "share": 0.5,
        "target_in_flight": 4, "least_in_flight": 4,
        "request_count": {"unit": "requests", "avg": 3.0},
    });
    assert_eq!(json(&report), expected);
    let text = render_console(&report, 140, &[]);
    let title =
        "Steady State: 0.12 sec from 0.05 sec on, 50.0 % of the run, at least 4 of 4 in flight";
    assert!(text.contains(title), "{text}");
}
