//! Headers by which routers keep a session on one server.
//!
//! In: AIPerf's environment variables. Out: the headers that carry a session's name beside the one that always does. Never: a value other
//! than a session's name.

use super::error::Problems;

/// Headers in the order they are sent, each with AIPerf's variable that says whether it is, and what holds without.
const HEADERS: [(&str, &str, bool); 4] = [
    (
        "X-Session-ID",
        "AIPERF_HTTP_X_SESSION_ID_FROM_CORRELATION_ID",
        false,
    ),
    (
        "X-Session-Affinity",
        "AIPERF_HTTP_X_SESSION_AFFINITY_FROM_CORRELATION_ID",
        true,
    ),
    (
        "X-SMG-Routing-Key",
        "AIPERF_HTTP_X_SMG_ROUTING_KEY_FROM_CORRELATION_ID",
        false,
    ),
    (
        "X-Dynamo-Session-ID",
        "AIPERF_HTTP_X_DYNAMO_SESSION_ID_FROM_CORRELATION_ID",
        false,
    ),
];

/// The headers that are to be sent.
pub(super) fn headers(
    variable: impl Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> Vec<&'static str> {
    let mut sent = Vec::new();
    for (header, name, default) in HEADERS {
        let value = variable(name);
        let asked = match value.as_deref().map(str::trim) {
            None | Some("") => Some(default),
            Some(text) => switch(text),
        };
        match asked {
            Some(true) => sent.push(header),
            Some(false) => {}
            None => problems.push(format!(
                "the environment variable {name} is {:?}, which is neither true nor false; set it to one of them, or unset it",
                value.unwrap_or_default()
            )),
        }
    }
    sent
}

/// What AIPerf takes for yes and no.
fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_is_sent_unless_switched_off_and_the_others_when_switched_on() {
        for (set, sent, wrong) in [
            (&[][..], &["X-Session-Affinity"][..], 0),
            (&[("X_SESSION_AFFINITY", "False")], &[], 0),
            (&[("X_SESSION_AFFINITY", "")], &["X-Session-Affinity"], 0),
            (
                &[("X_SMG_ROUTING_KEY", "1"), ("X_SESSION_ID", " true ")],
                &["X-Session-ID", "X-Session-Affinity", "X-SMG-Routing-Key"],
                0,
            ),
            (
                &[("X_DYNAMO_SESSION_ID", "maybe")],
                &["X-Session-Affinity"],
                1,
            ),
        ] {
            let mut problems = Problems::default();
            let variable = |name: &str| {
                let of = |key: &str| name == format!("AIPERF_HTTP_{key}_FROM_CORRELATION_ID");
                let found = set.iter().find(|(key, _)| of(key));
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(headers(variable, &mut problems), sent, "{set:?}");
            assert_eq!(problems.0.len(), wrong, "{set:?}");
        }
    }
}
