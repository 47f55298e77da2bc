//! URLs, checked and joined.
//!
//! In: `--url` and the endpoint's path. Out: [`TargetUrl`]. Never: resolves a name.

use super::zone;

/// One request URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    /// `https`.
    pub tls: bool,
    /// Host name or literal address without brackets.
    pub host: String,
    /// Interface that a link-local address is on: of this machine alone, so that no server is told (RFC 6874 section 4).
    pub zone: Option<String>,
    /// 1..=65535.
    pub port: u16,
    /// Origin-form request target: joined path and query, begins with `/`.
    pub target: String,
    /// Origin with the base path as the user gave it, for display and for `/v1/models` probes (no trailing slash).
    pub base: String,
}

impl TargetUrl {
    /// Value of the `Host` header: the port is left out when it is the scheme's default; IPv6 literals get brackets.
    #[must_use]
    pub fn host_header(&self) -> String {
        let host = bracketed(&self.host);
        let default = if self.tls { 443 } else { 80 };
        if self.port == default {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }
}

/// A host as it stands before a port: an IPv6 address gets brackets.
#[must_use]
pub fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// Takes one `--url` apart and joins the endpoint's path to it.
///
/// `path` is the endpoint's default path or `--custom-endpoint`; it may carry a query of its own. `http://` is put in front when
/// there is no `://`. The error is the end of a sentence that begins with the URL.
pub fn join(url: &str, path: &str) -> Result<TargetUrl, String> {
    if let Some(bad) = url
        .chars()
        .find(|c| c.is_whitespace() || c.is_control() || !c.is_ascii())
    {
        return Err(format!(
            "has {bad:?} in it; percent-encode it or leave it out"
        ));
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(format!("has the scheme {scheme:?}; use http or https")),
    };
    if rest.contains('#') {
        return Err("has a fragment (#), which is not sent to a server; leave it out".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if authority.contains('@') {
        return Err(
            "has a user name before the host; give the key with --api-key or --header".to_owned(),
        );
    }
    let (host, zone, port) = authority_parts(authority)?;
    let port = match port {
        None => {
            if tls {
                443
            } else {
                80
            }
        }
        Some(text) => text
            .parse::<u16>()
            .ok()
            .filter(|p| *p > 0 && text.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| format!("has the port {text:?}; use 1 to 65535"))?,
    };
    let (base_path, base_query) = tail
        .split_once('?')
        .map_or((tail, None), |(p, q)| (p, Some(q)));
    let base_path = base_path.trim_end_matches('/');
    let scheme = if tls { "https" } else { "http" };
    Ok(TargetUrl {
        tls,
        host,
        zone,
        port,
        target: target(base_path, base_query, path),
        base: format!("{scheme}://{authority}{base_path}"),
    })
}

/// The bytes that a text with escapes such as `%40` means (RFC 3986 section 2.1); `None` where a `%` begins no escape.
pub(super) fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut out: Vec<u8> = parts.next()?.bytes().collect();
    for part in parts {
        out.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(out)
}

/// Host without brackets, its zone, and the port's text.
type Authority<'a> = (String, Option<String>, Option<&'a str>);

fn authority_parts(authority: &str) -> Result<Authority<'_>, String> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or_else(|| "has a bracket that is not closed; write [::1]".to_owned())?;
        let address = zone::of_url(host)?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => {
                return Err(format!(
                    "has {after:?} after the address; a port begins with a colon"
                ));
            }
        };
        // As it was written, but for the zone.
        let (host, _) = zone::apart(host);
        return Ok((host.to_owned(), address.zone, port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("has more than one colon in its host; write an IPv6 address in brackets, such as [::1]".to_owned());
        }
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    if host.is_empty() {
        return Err("has no host; write http://HOST:PORT".to_owned());
    }
    if let Some(bad) = host
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "-._~".contains(*c)))
    {
        return Err(format!(
            "has {bad:?} in its host; use letters, digits, dots and hyphens"
        ));
    }
    Ok((host.to_owned(), None, port))
}

/// Nothing is added when the base already ends with the path, and a `v1/` is not doubled. Queries of both are kept.
fn target(base_path: &str, base_query: Option<&str>, path: &str) -> String {
    let (path, path_query) = path
        .split_once('?')
        .map_or((path, None), |(p, q)| (p, Some(q)));
    let path = path.trim_start_matches('/');
    let mut target = base_path.to_owned();
    if !(path.is_empty() || base_path.ends_with(&format!("/{path}"))) {
        let path = if base_path.ends_with("/v1") {
            path.strip_prefix("v1/").unwrap_or(path)
        } else {
            path
        };
        target.push('/');
        target.push_str(path);
    }
    if target.is_empty() {
        target.push('/');
    }
    let queries: Vec<&str> = base_query
        .into_iter()
        .chain(path_query)
        .filter(|q| !q.is_empty())
        .collect();
    if !queries.is_empty() {
        target.push('?');
        target.push_str(&queries.join("&"));
    }
    target
}

/// A custom path goes into the request line, so that nothing may end it early.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    match path.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
        Some(bad) => Err(format!("has {bad:?} in it; percent-encode it")),
        None if path.contains("://") => {
            Err("is a whole URL; give the path alone, and the rest with --url".to_owned())
        }
        None => Ok(()),
    }
}
