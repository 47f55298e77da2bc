//! What the user asked for, said back without secrets.
//!
//! In: settings and the finished phases. Out: the command line and the `input_config` of the report. Never: a key, a password
//! or a secret header's value.

mod phase;

use serde_json::{Map, Value, json};

use super::flags::{Flag, Kind};
use super::lex::Settings;
use super::media::sound_lists;
use super::network;
use super::plan::{DatasetSource, ExportLevel, Plan};
use super::rankings;
use super::url_strategy::UrlStrategy;

/// Stands for what is hidden.
pub const REDACTED: &str = "<redacted>";

/// Parts of header names whose values are hidden.
const SECRET_PARTS: &[&str] = &[
    "auth",
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "cookie",
    "api-key",
    "apikey",
    "access-key",
    "private-key",
    "session",
    "signature",
    "subscription-key",
];

/// Parts of body field and query names whose values are hidden; `max_tokens` and the like stay.
const SECRET_FIELD_PARTS: &[&str] = &[
    "secret",
    "password",
    "credential",
    "api-key",
    "api_key",
    "apikey",
    "authorization",
];

/// Whether a header's value is hidden in everything that is written; `_` counts as `-`.
#[must_use]
pub fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

pub(super) fn is_secret_field(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let token = ["token", "key", "sig"].contains(&name.as_str())
        || name.ends_with("_token")
        || name.ends_with("-token");
    token || SECRET_FIELD_PARTS.iter().any(|part| name.contains(part))
}

/// `tokenring profile --model 'm' ...`: every value single-quoted for a shell.
pub(super) fn cli_command(settings: &Settings) -> String {
    let mut line = String::from("tokenring profile");
    for (flag, spelling, values) in &settings.order {
        line.push(' ');
        line.push_str(spelling);
        for value in values {
            line.push_str(" '");
            line.push_str(&redact(flag, value).replace('\'', "'\\''"));
            line.push('\'');
        }
    }
    line
}

pub(super) fn redact(flag: &Flag, value: &str) -> String {
    let secret: fn(&str) -> bool = match flag.names[0] {
        "--api-key" => return REDACTED.to_owned(),
        "--url" | "--custom-endpoint" | "--proxy" => {
            return value
                .split(',')
                .map(redact_url)
                .collect::<Vec<_>>()
                .join(",");
        }
        "--header" => is_secret_header,
        "--extra-inputs" => is_secret_field,
        _ => return value.to_owned(),
    };
    debug_assert!(flag.kind == Kind::Pairs);
    if value.trim_start().starts_with('{') {
        return match serde_json::from_str::<Map<String, Value>>(value) {
            Ok(object) => Value::Object(redact_object(object, secret)).to_string(),
            Err(_) => REDACTED.to_owned(),
        };
    }
    let item = |item: &str| match item.split_once(':') {
        Some((name, _)) if secret(name.trim()) => format!("{name}:{REDACTED}"),
        _ => item.to_owned(),
    };
    value.split(',').map(item).collect::<Vec<_>>().join(",")
}

/// Hides secret members at any depth.
fn redact_object(object: Map<String, Value>, secret: fn(&str) -> bool) -> Map<String, Value> {
    object
        .into_iter()
        .map(|(name, value)| {
            let value = match value {
                _ if secret(&name) => json!(REDACTED),
                Value::Object(inner) => Value::Object(redact_object(inner, secret)),
                other => other,
            };
            (name, value)
        })
        .collect()
}

/// Hides a password before the host and secret parameters of the query.
pub(super) fn redact_url(url: &str) -> String {
    let url = redact_query(url);
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..]
        .find(['/', '?'])
        .map_or(url.len(), |at| start + at);
    match url[start..end].rfind('@') {
        Some(at) => format!("{}{REDACTED}{}", &url[..start], &url[start + at..]),
        None => url,
    }
}

fn redact_query(url: &str) -> String {
    let Some((base, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let parameter = |text: &str| match text.split_once('=') {
        Some((name, _)) if is_secret_field(name) => format!("{name}={REDACTED}"),
        _ => text.to_owned(),
    };
    format!(
        "{base}?{}",
        query
            .split('&')
            .map(parameter)
            .collect::<Vec<_>>()
            .join("&")
    )
}

/// Where each flag that is set stands in `input_config`.
const PLACES: &[(&str, &str)] = &[
    ("--custom-endpoint", "endpoint.path"),
    ("--url-strategy", "endpoint.url_strategy"),
    ("--request-timeout-seconds", "endpoint.timeout"),
    ("--connect-timeout-seconds", "endpoint.connect_timeout"),
    (
        "--first-byte-timeout-seconds",
        "endpoint.first_byte_timeout",
    ),
    ("--idle-timeout-seconds", "endpoint.idle_timeout"),
    (
        "--keep-alive-resets-idle",
        "endpoint.keep_alive_resets_idle",
    ),
    (
        "--wait-for-model-timeout",
        "endpoint.wait_for_model_timeout",
    ),
    ("--wait-for-model-mode", "endpoint.wait_for_model_mode"),
    (
        "--wait-for-model-interval",
        "endpoint.wait_for_model_interval",
    ),
    ("--api-key", "endpoint.api_key"),
    ("--api-key-env", "endpoint.api_key_env"),
    ("--api-key-file", "endpoint.api_key_file"),
    ("--header", "endpoint.headers"),
    ("--extra-inputs", "endpoint.extra"),
    ("--use-legacy-max-tokens", "endpoint.use_legacy_max_tokens"),
    (
        "--use-server-token-count",
        "endpoint.use_server_token_count",
    ),
    ("--per-chunk-usage", "endpoint.per_chunk_usage"),
    ("--connection-reuse-strategy", "endpoint.connection_reuse"),
    ("--session-header", "endpoint.session_header"),
    ("--uuid-and-strip", "endpoint.uuid_and_strip"),
    ("--request-content-type", "endpoint.request_content_type"),
    ("--tokenizer", "tokenizer.name"),
    ("--tokenizer-revision", "tokenizer.revision"),
    ("--apply-chat-template", "tokenizer.apply_chat_template"),
    ("--output-artifact-dir", "artifacts.dir"),
    ("--profile-export-prefix", "artifacts.prefix"),
    ("--export-outputs-json", "artifacts.export_outputs_json"),
    ("--export-http-trace", "artifacts.trace"),
    ("--show-trace-timing", "artifacts.show_trace_timing"),
    ("--slice-duration", "artifacts.slice_duration"),
    ("--slice-attribution", "artifacts.slice_attribution"),
    ("--failed-request-threshold", "failed_request_threshold"),
    ("--log-level", "logging.level"),
    ("--ui-type", "runtime.ui"),
    ("--workers-max", "runtime.workers"),
    ("--cpus", "runtime.cpus"),
    ("--stats-interval", "runtime.stats_interval"),
];

/// The same for the dataset.
const DATASET_PLACES: &[(&str, &str)] = &[
    ("--custom-dataset-type", "format"),
    ("--input-file", "path"),
    ("--random-seed", "random_seed"),
    ("--stream-input", "stream"),
    ("--dataset-sampling-strategy", "sampling"),
    ("--prompt-input-tokens-mean", "prompts.isl.mean"),
    ("--prompt-input-tokens-stddev", "prompts.isl.stddev"),
    ("--prompt-output-tokens-mean", "prompts.osl.mean"),
    ("--prompt-output-tokens-stddev", "prompts.osl.stddev"),
    ("--seq-dist", "prompts.sequence_distribution"),
    ("--prompt-batch-size", "prompts.batch_size"),
    ("--prompt-input-tokens-block-size", "prompts.block_size"),
    ("--random-range-ratio", "prompts.random_range_ratio"),
    ("--random-corpus-style", "prompts.random_corpus_style"),
    ("--prompt-corpus", "prompts.corpus"),
    ("--tokenize-prompt", "prompts.tokenize_prompt"),
    ("--cache-bust", "prompts.cache_bust"),
    ("--system-prompt", "system_prompt"),
    ("--system-prompt-file", "system_prompt_file"),
    ("--prompt-prefix-pool-size", "prefix_prompts.pool_size"),
    ("--prompt-prefix-length", "prefix_prompts.length"),
    (
        "--shared-system-prompt-length",
        "prefix_prompts.shared_system_length",
    ),
    (
        "--user-context-prompt-length",
        "prefix_prompts.user_context_length",
    ),
    ("--image-width-mean", "images.width.mean"),
    ("--image-width-stddev", "images.width.stddev"),
    ("--image-height-mean", "images.height.mean"),
    ("--image-height-stddev", "images.height.stddev"),
    ("--image-batch-size", "images.batch_size"),
    ("--image-format", "images.format"),
    ("--image-source", "images.source"),
    ("--image-source-sampling", "images.source_sampling"),
    ("--audio-length-mean", "audio.length.mean"),
    ("--audio-length-stddev", "audio.length.stddev"),
    ("--audio-batch-size", "audio.batch_size"),
    ("--audio-format", "audio.format"),
    ("--audio-num-channels", "audio.channels"),
    ("--ignore-trace-delays", "ignore_trace_delays"),
    (
        "--inter-turn-delay-cap-seconds",
        "inter_turn_delay_cap_seconds",
    ),
    ("--synthesis-speedup-ratio", "synthesis.speedup_ratio"),
    (
        "--synthesis-prefix-len-multiplier",
        "synthesis.prefix_len_multiplier",
    ),
    (
        "--synthesis-prefix-root-multiplier",
        "synthesis.prefix_root_multiplier",
    ),
    (
        "--synthesis-prompt-len-multiplier",
        "synthesis.prompt_len_multiplier",
    ),
    (
        "--synthesis-output-len-multiplier",
        "synthesis.output_len_multiplier",
    ),
    ("--synthesis-max-isl", "synthesis.max_isl"),
    ("--synthesis-max-osl", "synthesis.max_osl"),
    ("--conversation-turn-mean", "turns.mean"),
    ("--conversation-turn-stddev", "turns.stddev"),
    ("--conversation-turn-delay-mean", "turn_delay.mean"),
    ("--conversation-turn-delay-stddev", "turn_delay.stddev"),
    ("--conversation-turn-delay-ratio", "turn_delay_ratio"),
];

/// What the user set, nested as in AIPerf's report, and what a reader of the report needs to know of a run whether it was set or
/// not: the API, the number of entries and each phase's load. `aiperf plot` looks these up.
pub(super) fn input_config(settings: &Settings, plan: &Plan) -> Value {
    let mut root = Map::new();
    let items: Vec<Value> = plan
        .models
        .iter()
        .map(|name| json!({ "name": name }))
        .collect();
    root.insert("models".to_owned(), json!({ "items": items }));
    if let Some(strategy) = settings.choice("--model-selection-strategy") {
        put(&mut root, "models.strategy", json!(strategy));
    }
    if let UrlStrategy::Weighted(weights) = &plan.endpoint.url_strategy {
        put(&mut root, "endpoint.url_weights", json!(weights));
    }
    if settings.given("--url") {
        let urls: Vec<String> = settings
            .list("--url")
            .iter()
            .map(|url| redact_url(url))
            .collect();
        put(&mut root, "endpoint.urls", json!(urls));
    }
    put(&mut root, "endpoint.type", json!(plan.endpoint.kind.name()));
    put(
        &mut root,
        "endpoint.streaming",
        json!(plan.endpoint.streaming),
    );
    place(settings, PLACES, &mut root);
    place(settings, network::PLACES, &mut root);
    for (path, value) in network::echo(&plan.endpoint.network, settings) {
        put(&mut root, path, value);
    }
    if settings.given("--export-level") {
        let records = plan.output.level >= ExportLevel::Records;
        let records = if records {
            json!(["jsonl"])
        } else {
            json!(false)
        };
        put(&mut root, "artifacts.records", records);
        let raw = plan.output.level == ExportLevel::Raw;
        put(&mut root, "artifacts.raw", json!(raw));
    }
    root.insert(
        "datasets".to_owned(),
        json!([dataset_config(settings, plan)]),
    );
    let phases: Vec<Value> = plan
        .phases
        .iter()
        .map(|phase| phase::config(phase, plan))
        .collect();
    root.insert("phases".to_owned(), json!(phases));
    if !plan.goodput.is_empty() {
        let slos: Map<String, Value> = plan
            .goodput
            .iter()
            .map(|slo| (slo.tag.clone(), json!(slo.threshold)))
            .collect();
        root.insert("slos".to_owned(), Value::Object(slos));
    }
    Value::Object(root)
}

fn dataset_config(settings: &Settings, plan: &Plan) -> Map<String, Value> {
    let mut dataset = Map::new();
    let source = match plan.dataset.source {
        DatasetSource::Synthetic(_) => "synthetic",
        DatasetSource::File(_) => "file",
    };
    dataset.insert("name".to_owned(), json!("main"));
    dataset.insert("type".to_owned(), json!(source));
    let entries = matches!(plan.dataset.source, DatasetSource::Synthetic(_));
    if entries || settings.given("--num-dataset-entries") {
        dataset.insert("entries".to_owned(), json!(plan.dataset.entries));
    }
    place(settings, DATASET_PLACES, &mut dataset);
    place(settings, rankings::PLACES, &mut dataset);
    for (path, values) in sound_lists(settings, &plan.dataset.prompts.media) {
        put(&mut dataset, path, values);
    }
    dataset
}

fn place(settings: &Settings, places: &[(&str, &str)], object: &mut Map<String, Value>) {
    for (flag, path) in places {
        if let Some(mut value) = settings.json(flag) {
            // A mean is a real, also when the user writes 50.
            if path.ends_with(".mean")
                && let Some(mean) = value.as_u64()
            {
                value = json!(mean as f64);
            }
            put(object, path, value);
        }
    }
}

/// The flag's value with secrets hidden.
impl Settings {
    fn json(&self, flag: &str) -> Option<Value> {
        let secret: fn(&str) -> bool = match flag {
            "--api-key" if self.given(flag) => return Some(json!(REDACTED)),
            "--header" => is_secret_header,
            _ => is_secret_field,
        };
        if let Some(number) = self.number(flag) {
            return Some(if number.is_finite() {
                json!(number)
            } else {
                json!("inf")
            });
        }
        let text = self
            .text(flag)
            .or(self.choice(flag))
            .map(|text| match flag {
                "--custom-endpoint" => json!(redact_query(text)),
                _ => json!(text),
            });
        text.or_else(|| self.integer(flag).map(|n| json!(n)))
            .or_else(|| {
                self.pairs(flag)
                    .map(|pairs| Value::Object(redact_object(pairs.clone(), secret)))
            })
            .or_else(|| self.switched(flag).then_some(Value::Bool(true)))
            .or_else(|| {
                Some(self.cores(flag))
                    .filter(|cores| !cores.is_empty())
                    .map(|cores| json!(cores))
            })
    }
}

fn put(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            object.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object
                .entry(first.to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}
