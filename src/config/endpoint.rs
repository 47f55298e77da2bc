//! Flags of the endpoint become an [`EndpointPlan`].
//!
//! In: settings. Out: where and how requests go. Never: opens a connection.

use serde_json::{Map, Value};

use super::affinity;
use super::api_key;
use super::dialect::{DialectFacts, EndpointKind};
use super::error::Problems;
use super::lex::Settings;
use super::limits::{self, TimeLimits};
use super::network::{self, NetworkPlan};
use super::plan::{ConnectionReuse, EndpointPlan, WaitForModel, WaitMode};
use super::tls::{self, TlsPlan};
use super::url::{self, TargetUrl};
use super::url_strategy::{self, UrlStrategy};
use crate::clock::Nanos;

/// Longest time in seconds that a flag may give: some thirty years, far inside 64 bits of nanoseconds.
const SECONDS_MOST: f64 = 1e9;

/// Reads and checks everything about the endpoint.
pub(super) fn endpoint(settings: &Settings, problems: &mut Problems) -> EndpointPlan {
    let kind = kind(settings, problems);
    // The built-in server is there to show what the program does, and that is mostly streams.
    let streaming =
        kind.facts().streams && (settings.given("--streaming") || !settings.given("--url"));
    let custom_path = settings.text("--custom-endpoint").map(str::to_owned);
    check_dependencies(settings, kind, problems);
    check_seconds(settings, "--request-timeout-seconds", problems);
    check_built_in(settings, kind, problems);
    check_content_type(settings, kind, problems);
    let urls = urls(settings, kind.default_path(streaming), problems);
    let secure = urls.iter().any(|url| url.tls);
    EndpointPlan {
        kind,
        streaming,
        streaming_refused: settings.given("--streaming") && !streaming,
        tls: tls::tls(settings, secure, problems),
        network: network::network(settings, &urls, |name| std::env::var(name).ok(), problems),
        urls,
        url_strategy: url_strategy::url_strategy(settings, problems),
        built_in_server: !settings.given("--url"),
        custom_path,
        request_timeout: Nanos::from_seconds(
            settings
                .number("--request-timeout-seconds")
                .unwrap_or(21_600.0),
        ),
        time_limits: limits::limits(settings, problems),
        api_key: api_key::api_key(settings, problems),
        headers: headers(settings, problems),
        session_header: session_header(settings, problems),
        affinity_headers: affinity::headers(|name| std::env::var(name).ok(), problems),
        extra_inputs: settings
            .pairs("--extra-inputs")
            .cloned()
            .unwrap_or_default(),
        use_legacy_max_tokens: settings.given("--use-legacy-max-tokens"),
        use_server_token_count: settings.given("--use-server-token-count"),
        per_chunk_usage: settings.given("--per-chunk-usage"),
        reuse: match settings.choice("--connection-reuse-strategy") {
            Some("never") => ConnectionReuse::Never,
            Some("sticky_user_sessions") => ConnectionReuse::StickyUserSessions,
            _ => ConnectionReuse::Pooled,
        },
        wait_for_model: wait_for_model(settings, problems),
    }
}

/// The built-in server has this dialect's path; one whose path is the user's may name a path that it has.
fn check_built_in(settings: &Settings, kind: EndpointKind, problems: &mut Problems) {
    let facts = kind.facts();
    let users_path = facts.path.is_empty() && settings.given("--custom-endpoint");
    if settings.given("--url") || facts.built_in || users_path {
        return;
    }
    let or_path = if facts.path.is_empty() {
        ", or --custom-endpoint with a path of the built-in server"
    } else {
        ""
    };
    problems.push(format!(
        "--endpoint-type {} needs --url{or_path}: the built-in server speaks {}",
        facts.name,
        EndpointKind::names_of(|facts| facts.built_in)
    ));
}

/// Forms are for the dialects that have them. Those send nothing else, whatever is asked for, as AIPerf does.
fn check_content_type(settings: &Settings, kind: EndpointKind, problems: &mut Problems) {
    let flag = "--request-content-type";
    let form = |facts: &DialectFacts| facts.content_type.starts_with("multipart/");
    let wants_form = settings
        .choice(flag)
        .is_some_and(|kind| kind.starts_with("multipart"));
    if wants_form && !form(kind.facts()) {
        problems.push(format!(
            "{flag} multipart/form-data needs --endpoint-type {}: {} sends JSON",
            EndpointKind::names_of(form),
            kind.name()
        ));
    }
}

fn kind(settings: &Settings, problems: &mut Problems) -> EndpointKind {
    let name = settings.choice("--endpoint-type").unwrap_or("chat");
    EndpointKind::named(name).unwrap_or_else(|| {
        problems.push(format!(
            "--endpoint-type {name} is an AIPerf type that tokenring does not do yet; use {}",
            EndpointKind::names_of(|_| true)
        ));
        EndpointKind::Chat
    })
}

impl EndpointPlan {
    /// What asks for nothing in particular: no stream, no URL, no limit. For uses of a dialect outside a run, and for tests.
    #[must_use]
    pub fn plain(kind: EndpointKind) -> EndpointPlan {
        EndpointPlan {
            kind,
            streaming: false,
            streaming_refused: false,
            urls: Vec::new(),
            url_strategy: UrlStrategy::RoundRobin,
            built_in_server: false,
            custom_path: None,
            request_timeout: Nanos(0),
            time_limits: TimeLimits::default(),
            api_key: None,
            headers: Vec::new(),
            session_header: None,
            affinity_headers: vec!["X-Session-Affinity"],
            extra_inputs: Map::new(),
            use_legacy_max_tokens: false,
            use_server_token_count: false,
            per_chunk_usage: false,
            tls: TlsPlan::default(),
            network: NetworkPlan::default(),
            reuse: ConnectionReuse::Pooled,
            wait_for_model: None,
        }
    }

    /// What is joined to a base URL with [`join`](super::join): `--custom-endpoint`, or the default path of the API dialect. The
    /// built-in server's base is joined with it too.
    #[must_use]
    pub fn path(&self) -> &str {
        self.custom_path
            .as_deref()
            .unwrap_or(self.kind.default_path(self.streaming))
    }
}

fn urls(settings: &Settings, default_path: &str, problems: &mut Problems) -> Vec<TargetUrl> {
    let custom = settings.text("--custom-endpoint");
    if let Some(Err(sentence)) = custom.map(url::check_path) {
        let spelling = settings.spelling("--custom-endpoint");
        problems.push(format!(
            "{spelling} {:?} {sentence}",
            custom.unwrap_or_default()
        ));
        return Vec::new();
    }
    let path = custom.unwrap_or(default_path);
    let mut urls = Vec::new();
    for given in settings.list("--url") {
        match url::join(given, path) {
            Ok(joined) => urls.push(joined),
            Err(sentence) => {
                let shown = super::echo::redact_url(given);
                problems.push(format!(
                    "{} {shown:?} {sentence}",
                    settings.spelling("--url")
                ));
            }
        }
    }
    urls
}

fn check_dependencies(settings: &Settings, kind: EndpointKind, problems: &mut Problems) {
    let complete = kind.facts().usage_by_chunk
        && settings.given("--streaming")
        && settings.given("--use-server-token-count");
    if settings.given("--per-chunk-usage") && !complete {
        problems.push(format!(
            "--per-chunk-usage needs --endpoint-type {}, --streaming and --use-server-token-count",
            EndpointKind::names_of(|facts| facts.usage_by_chunk)
        ));
    }
    if settings.given("--uuid-and-strip") && !kind.facts().image_ids {
        problems.push(format!(
            "--uuid-and-strip needs --endpoint-type {}, whose pictures have ids",
            EndpointKind::names_of(|facts| facts.image_ids)
        ));
    }
}

/// A text that can stand in a header without ending it.
pub(super) fn fits_header(text: &str) -> bool {
    text.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f))
}

/// RFC 9110 section 5.6.2: a header's name is a token.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Headers that say how the body and the connection are framed; another value would break every request.
const FRAMING: &[&str] = &["content-length", "transfer-encoding", "connection"];

fn headers(settings: &Settings, problems: &mut Problems) -> Vec<(String, String)> {
    let spelling = settings.spelling("--header");
    let mut headers = Vec::new();
    for (name, value) in settings.pairs("--header").into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if !is_token(name) {
            problems.push(format!(
                "{spelling} name {name:?} is no header name; use letters, digits and hyphens"
            ));
        } else if FRAMING.contains(&name.to_ascii_lowercase().as_str()) {
            problems.push(format!(
                "{spelling} {name} says how requests are framed and cannot be set; leave it out"
            ));
        } else if !fits_header(&value) {
            problems.push(format!(
                "{spelling} {name} has a control character in its value; leave it out"
            ));
        }
        headers.push((name.clone(), value));
    }
    headers
}

fn session_header(settings: &Settings, problems: &mut Problems) -> Option<String> {
    let name = settings.text("--session-header")?;
    if !is_token(name) {
        problems.push(format!(
            "--session-header {name:?} is no header name; use letters, digits and hyphens"
        ));
    }
    Some(name.to_owned())
}

fn wait_for_model(settings: &Settings, problems: &mut Problems) -> Option<WaitForModel> {
    let timeout = settings.number("--wait-for-model-timeout").unwrap_or(0.0);
    for flag in ["--wait-for-model-timeout", "--wait-for-model-interval"] {
        check_seconds(settings, flag, problems);
    }
    for flag in ["--wait-for-model-mode", "--wait-for-model-interval"] {
        if settings.given(flag) && timeout <= 0.0 {
            problems.push(format!(
                "{flag} needs a --wait-for-model-timeout above 0: without it nothing is probed"
            ));
        }
    }
    (timeout > 0.0).then(|| WaitForModel {
        timeout: Nanos::from_seconds(timeout.min(SECONDS_MOST)),
        interval: Nanos::from_seconds(settings.number("--wait-for-model-interval").unwrap_or(5.0)),
        mode: match settings.choice("--wait-for-model-mode") {
            Some("models") => WaitMode::Models,
            Some("both") => WaitMode::Both,
            _ => WaitMode::Inference,
        },
    })
}

/// Finds a time that would not fit 64 bits of nanoseconds; `inf` is left to the flag's own rule.
pub(super) fn check_seconds(settings: &Settings, flag: &str, problems: &mut Problems) {
    if let Some(seconds) = settings
        .number(flag)
        .filter(|s| s.is_finite() && *s > SECONDS_MOST)
    {
        problems.push(format!(
            "{} {seconds} is more than {SECONDS_MOST} seconds; give less",
            settings.spelling(flag)
        ));
    }
}
