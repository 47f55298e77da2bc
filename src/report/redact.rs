//! What must not be shown as it is.
//!
//! In: headers, text from a peer. Out: headers without secrets; text without control characters.
//! Never: keeps a secret because its name is spelled unusually.

use crate::config::{REDACTED, is_secret_header};

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
        let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let ends_line = matches!(c, '\u{2028}' | '\u{2029}');
        if c.is_control() || turns || ends_line {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
