//! The readiness probe before the load.
//!
//! In: the plan. Out: the server is ready, or why not. Never: runs without `--wait-for-model-timeout`, or counts in any metric.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Plan, Secrets, WaitForModel, WaitMode};
use crate::endpoint::Api;

use super::RunError;
use super::ask::{Question, Reply, Way, ask};
use super::names::socket_options;
use super::prepare::Prepared;

/// Waits until the server is ready, as the plan asks.
#[expect(
    clippy::disallowed_methods,
    reason = "before the load; nothing is measured here"
)]
pub(super) fn wait(prepared: &Prepared) -> Result<(), RunError> {
    let plan = &prepared.material.plan;
    let Some(probe) = plan.endpoint.wait_for_model else {
        return Ok(());
    };
    let targets = prepared.targets()?;
    let sockets = Arc::new(socket_options(&plan.endpoint.network)?);
    let ways = plan.endpoint.urls.iter().zip(&targets);
    let own = plan.endpoint.headers.iter();
    let own = own
        .rev()
        .find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let hosts = plan.endpoint.urls.iter().map(|url| match own {
        Some((_, host)) => host.clone(),
        None => url.host_header(),
    });
    let hosts: Vec<String> = hosts.collect();
    let ways: Vec<Way<'_>> = ways
        .zip(&hosts)
        .map(|((url, target), host)| Way {
            url,
            host,
            addresses: &target.addresses,
            sockets: &sockets,
            tunnel: target.tunnel.as_deref(),
            tls: target
                .tls
                .as_ref()
                .map(|tls| (Arc::clone(&tls.config), tls.name.clone())),
        })
        .collect();
    let prober = Prober {
        api: &prepared.material.api,
        plan,
        fields: fields(&prepared.material.api),
    };
    let deadline = Instant::now() + Duration::from_nanos(probe.timeout.0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = prober.ask_all(&ways, probe, left.max(Duration::from_millis(100)));
        let Err(reason) = answer else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = probe.timeout.seconds();
            let secrets = Secrets::of(&plan.endpoint);
            let reason = secrets.hide(&reason);
            return Err(RunError::NotReady(format!(
                "not ready after {seconds} s: {reason}"
            )));
        }
        std::thread::sleep(left.min(Duration::from_nanos(probe.interval.0)));
    }
}

/// Asks one server after the other.
struct Prober<'a> {
    api: &'a Api,
    plan: &'a Plan,
    /// Header lines of every question.
    fields: Vec<u8>,
}

impl Prober<'_> {
    fn ask_all(
        &self,
        ways: &[Way<'_>],
        probe: WaitForModel,
        limit: Duration,
    ) -> Result<(), String> {
        for way in ways {
            if matches!(probe.mode, WaitMode::Models | WaitMode::Both) {
                self.ask_models(way, limit)?;
            }
            if matches!(probe.mode, WaitMode::Inference | WaitMode::Both) {
                self.ask_inference(way, limit)?;
            }
        }
        Ok(())
    }

    /// The answer to a `GET`, and the URL that was asked.
    fn fetch(
        &self,
        way: &Way<'_>,
        target: &str,
        limit: Duration,
    ) -> Result<(Reply, String), String> {
        let question = Question {
            method: "GET",
            target,
            fields: &self.fields,
            body: &[],
        };
        let shown = shown(way, target);
        let reply = ask(way, &question, limit).map_err(|error| format!("{shown}: {error}"))?;
        Ok((reply, shown))
    }

    /// `GET /v1/models` lists the model; a server without that path need only answer on its base URL.
    fn ask_models(&self, way: &Way<'_>, limit: Duration) -> Result<(), String> {
        let base = base_path(&way.url.base);
        let bare = base.strip_suffix("/v1").unwrap_or(base);
        let (reply, models) = self.fetch(way, &format!("{bare}/v1/models"), limit)?;
        match reply.status {
            404 => {
                let target = if base.is_empty() { "/" } else { base };
                let (reply, shown) = self.fetch(way, target, limit)?;
                if reply.status < 500 {
                    Ok(())
                } else {
                    Err(format!("{shown} answered {}", reply.status))
                }
            }
            200..300 => {
                let list: serde_json::Value = serde_json::from_slice(&reply.body)
                    .map_err(|error| format!("{models}: {error}"))?;
                let ids = list["data"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|model| model["id"].as_str());
                let model = self.model();
                if ids.clone().any(|id| id == model) {
                    return Ok(());
                }
                Err(format!(
                    "{models} lists {:?}, not {model}",
                    ids.collect::<Vec<_>>()
                ))
            }
            status => Err(format!("{models} answered {status}")),
        }
    }

    /// A one-token request is answered below 500.
    fn ask_inference(&self, way: &Way<'_>, limit: Duration) -> Result<(), String> {
        let body = self.api.probe(self.model());
        let mut fields = self.fields.clone();
        let users = &self.plan.endpoint.headers;
        if !users.iter().any(|(name, _)| is_content_type(name)) {
            field(&mut fields, "Content-Type", self.api.content_type());
        }
        let question = Question {
            method: "POST",
            target: &way.url.target,
            fields: &fields,
            body: &body,
        };
        let shown = shown(way, &way.url.target);
        let reply = ask(way, &question, limit).map_err(|error| format!("{shown}: {error}"))?;
        if reply.status < 500 {
            Ok(())
        } else {
            Err(format!("{shown} answered {}", reply.status))
        }
    }

    fn model(&self) -> &str {
        self.plan.models.first().map_or("", String::as_str)
    }
}

/// The URL of `target`, for people; a query may hold a key.
fn shown(way: &Way<'_>, target: &str) -> String {
    let scheme = if way.url.tls { "https" } else { "http" };
    let path = target.split('?').next().unwrap_or(target);
    format!("{scheme}://{}{path}", way.url.host_header())
}

/// What follows the host in a base URL, without a query.
fn base_path(base: &str) -> &str {
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    let rest = rest.split('?').next().unwrap_or(rest);
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    path.trim_end_matches('/')
}

/// Header lines of every question: the dialect's and the user's, and no name twice.
fn fields(api: &Api) -> Vec<u8> {
    let users = &api.plan().headers;
    let own = |name: &str| users.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let mut lines = Vec::new();
    let agent = concat!("tokenring/", env!("CARGO_PKG_VERSION"));
    for (name, value) in [("User-Agent", agent), ("Accept", "*/*")] {
        if !own(name) {
            field(&mut lines, name, value);
        }
    }
    for (name, value) in api.headers() {
        if !own(name) {
            field(&mut lines, name, &value);
        }
    }
    for (name, value) in users {
        if !name.eq_ignore_ascii_case("host") {
            field(&mut lines, name, value);
        }
    }
    lines
}

fn is_content_type(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-type")
}

fn field(lines: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        lines.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_paths_are_what_follows_the_host() {
        for (base, path) in [
            ("http://h:1", ""),
            ("http://h:1/", ""),
            ("https://h/v1?key=x", "/v1"),
            ("http://[::1]:1/a/b/", "/a/b"),
        ] {
            assert_eq!(base_path(base), path, "{base}");
        }
    }
}
