//! Values as Python prints them.
//!
//! In: a value of a template. Out: its `str()`. Never: Rust's or JSON's own words (`true`, `null`), which a template written for
//! Python does not mean.

use std::fmt::{self, Write};

use minijinja::Value;
use minijinja::value::ValueKind;

/// Nested deeper than this, a value is printed as dots.
const DEPTH_MAX: usize = 200;

/// `str(value)`; nothing for what is undefined.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, value);
    out
}

/// Writes `str(value)`.
pub(super) fn write_text(out: &mut impl Write, value: &Value) -> fmt::Result {
    match (value.kind(), value.as_str()) {
        (_, Some(text)) => out.write_str(text),
        (ValueKind::Undefined, _) => Ok(()),
        _ => representation(out, value, 0),
    }
}

/// `repr(value)`.
fn representation(out: &mut impl Write, value: &Value, depth: usize) -> fmt::Result {
    if depth > DEPTH_MAX {
        return out.write_str("...");
    }
    match value.kind() {
        ValueKind::None => out.write_str("None"),
        ValueKind::Undefined => out.write_str("Undefined"),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => out.write_str(&real(number)),
            Err(_) => write!(out, "{value}"),
        },
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.write_char('[')?;
            for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
                if index > 0 {
                    out.write_str(", ")?;
                }
                representation(out, &item, depth + 1)?;
            }
            out.write_char(']')
        }
        ValueKind::Map => {
            out.write_char('{')?;
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                if index > 0 {
                    out.write_str(", ")?;
                }
                representation(out, &key, depth + 1)?;
                out.write_str(": ")?;
                let item = value.get_item(&key).unwrap_or_default();
                representation(out, &item, depth + 1)?;
            }
            out.write_char('}')
        }
        _ => write!(out, "{value}"),
    }
}

/// A text between quotes: single ones, unless only they stand in it.
fn quoted(out: &mut impl Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.write_char(quote)?;
    for letter in text.chars() {
        match letter {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            letter if letter == quote => write!(out, "\\{letter}")?,
            letter
                if letter < ' '
                    || ('\u{7f}'..='\u{a0}').contains(&letter)
                    || letter == '\u{ad}' =>
            {
                write!(out, "\\x{:02x}", u32::from(letter))?;
            }
            letter => out.write_char(letter)?,
        }
    }
    out.write_char(quote)
}

/// White space as Python's `strip` takes it.
pub(super) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// `repr` of a float: the shortest digits that mean it, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn real(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
