//! `--proxy` becomes a [`ProxyPlan`].
//!
//! In: the flag. Out: where the proxy is and who we are to it. Never: reads `http_proxy` or another environment variable: a proxy
//! that a measurement goes through is asked for.

use std::fmt;

use base64::Engine as _;

use super::echo::redact_url;
use super::error::Problems;
use super::lex::Settings;
use super::url;

/// A proxy that connections are asked of, by CONNECT.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyPlan {
    /// Name or literal address without brackets.
    pub host: String,
    /// Interface that a link-local address is on.
    pub zone: Option<String>,
    /// 1..=65535.
    pub port: u16,
    /// Value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

/// Without the password, which may stand in no log.
impl fmt::Debug for ProxyPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ProxyPlan({})", self.shown())
    }
}

impl ProxyPlan {
    /// Its URL, for people; the password is hidden.
    #[must_use]
    pub fn shown(&self) -> String {
        let host = url::bracketed(&self.host);
        let who = if self.authorization.is_some() {
            format!("{}@", super::echo::REDACTED)
        } else {
            String::new()
        };
        format!("http://{who}{host}:{}", self.port)
    }
}

/// Reads and checks the flag.
pub(super) fn proxy(settings: &Settings, problems: &mut Problems) -> Option<ProxyPlan> {
    let given = settings.text("--proxy")?;
    match read(given) {
        Ok(plan) => Some(plan),
        Err(sentence) => {
            problems.push(format!("--proxy {:?} {sentence}", redact_url(given)));
            None
        }
    }
}

fn read(given: &str) -> Result<ProxyPlan, String> {
    let (scheme, rest) = given.split_once("://").unwrap_or(("http", given));
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(format!(
            "has the scheme {scheme:?}; use http://HOST:PORT, which asks by CONNECT"
        ));
    }
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    let place = place.strip_suffix('/').unwrap_or(place);
    if place.contains(['/', '?', '#']) {
        return Err("has a path; write http://HOST:PORT".to_owned());
    }
    let joined = url::join(&format!("http://{place}"), "/")?;
    let has_port = match place.rsplit_once(']') {
        Some((_, after)) => !after.is_empty(),
        None => place != joined.host,
    };
    Ok(ProxyPlan {
        host: joined.host,
        zone: joined.zone,
        // curl's default port of a proxy.
        port: if has_port { joined.port } else { 1_080 },
        authorization: user.map(basic).transpose()?,
    })
}

/// RFC 7617: user and password, percent-decoded, joined by a colon, in base64.
fn basic(user: &str) -> Result<String, String> {
    let decoded = url::percent_decoded(user)
        .ok_or_else(|| "has a % in its user name that begins no escape such as %40".to_owned())?;
    let encoded = base64::engine::general_purpose::STANDARD.encode(decoded);
    Ok(format!("Basic {encoded}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read() {
        for (given, host, port, authorization) in [
            ("http://proxy:3128", "proxy", 3128, None),
            ("proxy:3128/", "proxy", 3128, None),
            ("http://proxy", "proxy", 1080, None),
            ("http://proxy:80", "proxy", 80, None),
            ("http://[::1]:8", "::1", 8, None),
            ("http://[::1]", "::1", 1080, None),
            ("http://a:b@p:1", "p", 1, Some("Basic YTpi")),
            ("http://a%40c:b%3a@p:1", "p", 1, Some("Basic YUBjOmI6")),
        ] {
            let expected = ProxyPlan {
                host: host.to_owned(),
                zone: None,
                port,
                authorization: authorization.map(str::to_owned),
            };
            assert_eq!(read(given), Ok(expected), "{given}");
        }
        for wrong in [
            "https://p:1",
            "socks5://p:1",
            "http://p:0",
            "http://",
            "p:1/x",
            "a%4@p:1",
            "a%é@p:1",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let zoned = read("http://[fe80::1%25eth0]").unwrap();
        assert_eq!((zoned.host.as_str(), zoned.port), ("fe80::1", 1_080));
        assert_eq!(zoned.zone.as_deref(), Some("eth0"));
        let plan = read("http://user:secret@p:1").unwrap();
        assert!(!format!("{plan:?}{}", plan.shown()).contains("secret"));
    }
}
