//! What must not be shown as it is.
//!
//! In: header names, text from a peer. Out: whether a header is secret; text without control characters.
//! Never: keeps a secret because its name is spelled unusually.

/// Put in place of a secret.
pub(super) const REDACTED: &str = "<redacted>";

/// Parts of a header name that make its value a secret, in lower case with `_` as `-`.
const PARTS: [&str; 14] = [
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

/// The value of a header of this name is never written.
#[must_use]
pub fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    PARTS.iter().any(|part| name.contains(part))
}

/// Headers as a JSON object, secrets redacted.
pub(super) fn headers(pairs: &[(String, String)]) -> serde_json::Value {
    let pairs = pairs.iter().map(|(name, value)| {
        let shown = if is_secret_header(name) {
            REDACTED
        } else {
            value
        };
        (name.clone(), serde_json::Value::from(shown))
    });
    serde_json::Value::Object(pairs.collect())
}

/// Text with control characters (and the marks that turn the direction of writing) spelled out, so that a server cannot steer
/// the terminal.
#[must_use]
pub fn escape_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
