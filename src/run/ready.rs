//! The readiness probe before the load.
//!
//! In: the plan. Out: the server is ready, or why not. Never: runs without `--wait-for-model-timeout`, or counts in any metric.

use std::time::{Duration, Instant};

use crate::config::{Plan, Secrets, WaitForModel, WaitMode};
use crate::endpoint::Api;

use super::RunError;

/// Waits until the server is ready, as the plan asks.
#[expect(
    clippy::disallowed_methods,
    reason = "before the load; nothing is measured here"
)]
pub(super) fn wait(api: &Api, plan: &Plan) -> Result<(), RunError> {
    let Some(probe) = plan.endpoint.wait_for_model else {
        return Ok(());
    };
    let tls = super::tls::probe_config(&plan.endpoint.tls)?;
    let deadline = Instant::now() + Duration::from_nanos(probe.timeout.0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = ask_all(api, plan, probe, &tls, left.max(Duration::from_millis(100)));
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

fn ask_all(
    api: &Api,
    plan: &Plan,
    probe: WaitForModel,
    tls: &ureq::tls::TlsConfig,
    limit: Duration,
) -> Result<(), String> {
    let config = ureq::Agent::config_builder()
        .tls_config(tls.clone())
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .proxy(None)
        .user_agent(concat!("tokenring/", env!("CARGO_PKG_VERSION")))
        .build();
    let agent = ureq::Agent::new_with_config(config);
    for url in &plan.endpoint.urls {
        let scheme = if url.tls { "https" } else { "http" };
        let origin = format!("{scheme}://{}", url.host_header());
        if matches!(probe.mode, WaitMode::Models | WaitMode::Both) {
            ask_models(api, plan, &agent, &url.base)?;
        }
        if matches!(probe.mode, WaitMode::Inference | WaitMode::Both) {
            ask_inference(api, plan, &agent, &format!("{origin}{}", url.target))?;
        }
    }
    Ok(())
}

/// `GET /v1/models` lists the model; a server without that path need only answer on its base URL.
fn ask_models(api: &Api, plan: &Plan, agent: &ureq::Agent, base: &str) -> Result<(), String> {
    let base = base.split('?').next().unwrap_or(base).trim_end_matches('/');
    let models = format!("{}/v1/models", base.strip_suffix("/v1").unwrap_or(base));
    let mut answer = with_headers(api, agent.get(&models))
        .call()
        .map_err(|error| format!("{models}: {error}"))?;
    match answer.status().as_u16() {
        404 => {
            let answer = with_headers(api, agent.get(base))
                .call()
                .map_err(|error| format!("{base}: {error}"))?;
            let status = answer.status().as_u16();
            if status < 500 {
                Ok(())
            } else {
                Err(format!("{base} answered {status}"))
            }
        }
        200..300 => {
            let list: serde_json::Value = answer
                .body_mut()
                .read_json()
                .map_err(|error| format!("{models}: {error}"))?;
            let ids = list["data"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|model| model["id"].as_str());
            let model = plan.models.first().map(String::as_str).unwrap_or_default();
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
fn ask_inference(api: &Api, plan: &Plan, agent: &ureq::Agent, url: &str) -> Result<(), String> {
    let model = plan.models.first().map(String::as_str).unwrap_or_default();
    let request = with_headers(api, agent.post(url)).header("Content-Type", api.content_type());
    let answer = request
        .send(api.probe(model))
        .map_err(|error| format!("{url}: {error}"))?;
    let status = answer.status().as_u16();
    if status < 500 {
        Ok(())
    } else {
        Err(format!("{url} answered {status}"))
    }
}

fn with_headers<T>(api: &Api, mut request: ureq::RequestBuilder<T>) -> ureq::RequestBuilder<T> {
    let users = &api.plan().headers;
    for (name, value) in api.headers() {
        if !users.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)) {
            request = request.header(name, value);
        }
    }
    for (name, value) in users {
        request = request.header(name, value);
    }
    request
}
