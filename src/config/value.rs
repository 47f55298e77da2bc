//! The text after a flag becomes a value.
//!
//! In: a flag's row and what was written after it. Out: a typed [`Value`], or a sentence. Never: compares one flag with another.

use serde_json::{Map, Number, Value as Json};

use super::flags::{Flag, Kind, SWEEPABLE};

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Switch,
    Text(String),
    Integer(u64),
    Number(f64),
    /// The name as the table spells it.
    Choice(&'static str),
    List(Vec<String>),
    /// Names with values; JSON types as coerced.
    Pairs(Map<String, Json>),
    Objectives(Vec<(String, f64)>),
    Cores(Vec<usize>),
}

/// Reads what was written after `spelling`; on failure says what would be right.
pub(super) fn read(flag: &Flag, spelling: &str, raw: &[String]) -> Result<Value, String> {
    let first = raw.first().map_or("", String::as_str);
    match flag.kind {
        Kind::Switch => Ok(Value::Switch),
        Kind::Text | Kind::Path if first.is_empty() => {
            Err(format!("{spelling} has an empty value; give a text"))
        }
        Kind::Text | Kind::Path if first.contains('\0') => Err(format!(
            "{spelling} has a NUL byte in its value; leave it out"
        )),
        Kind::Text | Kind::Path => Ok(Value::Text(first.to_owned())),
        Kind::Integer(least, most) => {
            integer(single(flag, spelling, first)?, spelling, least, most).map(Value::Integer)
        }
        Kind::AutoOr(_) if first.trim().eq_ignore_ascii_case("auto") => Ok(Value::Choice("auto")),
        Kind::AutoOr(most) => integer(first.trim(), spelling, 0, most)
            .map(Value::Integer)
            .map_err(|error| format!("{error}, nor auto")),
        Kind::AtLeast(_) | Kind::Above(_) | Kind::Between(..) => {
            number(single(flag, spelling, first)?, spelling, flag.kind).map(Value::Number)
        }
        Kind::Choice(names) => choice(first, names).map(Value::Choice).ok_or_else(|| {
            let known: Vec<String> = names.iter().map(|n| n.replace('_', "-")).collect();
            format!("{spelling} {first:?} is not one of {}", known.join(", "))
        }),
        Kind::List => list(raw, spelling).map(Value::List),
        Kind::Pairs => pairs(raw, spelling).map(Value::Pairs),
        Kind::Objectives => objectives(raw, spelling).map(Value::Objectives),
        Kind::Cores => cores(raw, spelling).map(Value::Cores),
    }
}

/// Takes a one-element list for its element, and refuses a sweep.
fn single<'a>(flag: &Flag, spelling: &str, text: &'a str) -> Result<&'a str, String> {
    if !text.contains(',') || !SWEEPABLE.contains(&flag.names[0]) {
        return Ok(text.trim());
    }
    let mut elements = text.split(',').map(str::trim).filter(|e| !e.is_empty());
    match (elements.next(), elements.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(format!(
            "{spelling} {text:?} is a list, which AIPerf runs as a sweep; tokenring does not do sweeps yet, so give one value"
        )),
        _ => Err(format!("{spelling} {text:?} has no value; give a number")),
    }
}

fn integer(text: &str, spelling: &str, least: u64, most: u64) -> Result<u64, String> {
    let wanted = if most == u64::MAX {
        format!("a whole number of at least {least}")
    } else {
        format!("a whole number from {least} to {most}")
    };
    text.parse::<u64>()
        .ok()
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(|| format!("{spelling} {text:?} is not {wanted}"))
}

fn number(text: &str, spelling: &str, kind: Kind) -> Result<f64, String> {
    let (fits, wanted): (fn(f64, Kind) -> bool, String) = match kind {
        Kind::Above(limit) => (
            |n, k| matches!(k, Kind::Above(limit) if n > limit && n.is_finite()),
            format!("a number above {limit}"),
        ),
        Kind::Between(low, high) => (
            |n, k| matches!(k, Kind::Between(low, high) if (low..=high).contains(&n)),
            format!("a number from {low} to {high}"),
        ),
        Kind::AtLeast(limit) => (
            |n, k| matches!(k, Kind::AtLeast(limit) if n >= limit),
            format!("a number of at least {limit}"),
        ),
        _ => (|_, _| true, "a number".to_owned()),
    };
    text.parse::<f64>()
        .ok()
        .filter(|n| !n.is_nan() && fits(*n, kind))
        .ok_or_else(|| format!("{spelling} {text:?} is not {wanted}"))
}

/// Enum names are compared without regard to case, and `-` is `_`.
pub(super) fn choice(text: &str, names: &'static [&'static str]) -> Option<&'static str> {
    let wanted = text.trim().to_ascii_lowercase().replace('-', "_");
    names.iter().copied().find(|n| *n == wanted)
}

fn list(raw: &[String], spelling: &str) -> Result<Vec<String>, String> {
    let elements: Vec<String> = raw
        .iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|e| !e.is_empty())
        .map(str::to_owned)
        .collect();
    if elements.is_empty() {
        return Err(format!(
            "{spelling} has an empty list; give at least one value"
        ));
    }
    Ok(elements)
}

fn pairs(raw: &[String], spelling: &str) -> Result<Map<String, Json>, String> {
    let mut all = Map::new();
    for text in raw {
        if text.trim_start().starts_with('{') {
            let object: Map<String, Json> = serde_json::from_str(text).map_err(|e| {
                // Not the text itself: it may hold a key.
                format!("{spelling} begins like a JSON object but is none: {e}")
            })?;
            all.extend(object);
            continue;
        }
        for (place, item) in (1..).zip(text.split(',')) {
            let place: u32 = place;
            let Some((name, value)) = item
                .split_once(':')
                .filter(|(name, _)| !name.trim().is_empty())
            else {
                return Err(format!(
                    "{spelling} item {place} is not name:value; a comma separates items, so write values that have one as a \
                     JSON object"
                ));
            };
            all.insert(name.trim().to_owned(), coerce(value.trim()));
        }
    }
    Ok(all)
}

/// Types of values outside JSON: booleans, null, digits without a leading zero, and decimals with one dot; else a text.
pub(super) fn coerce(text: &str) -> Json {
    match text.to_ascii_lowercase().as_str() {
        "true" => return Json::Bool(true),
        "false" => return Json::Bool(false),
        "none" | "null" => return Json::Null,
        _ => {}
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let no_leading_zero = |part: &str| part == "0" || !part.starts_with('0');
    if all_digits(digits) && no_leading_zero(digits) {
        if let Ok(whole) = text.parse::<i64>() {
            return Json::from(whole);
        }
        if let Ok(whole) = text.parse::<u64>() {
            return Json::from(whole);
        }
    } else if let Some((whole, fraction)) = digits.split_once('.')
        && all_digits(whole)
        && all_digits(fraction)
        && let Some(real) = text.parse::<f64>().ok().and_then(Number::from_f64)
    {
        return Json::Number(real);
    }
    Json::String(text.to_owned())
}

fn objectives(raw: &[String], spelling: &str) -> Result<Vec<(String, f64)>, String> {
    let mut all: Vec<(String, f64)> = Vec::new();
    for item in raw.iter().flat_map(|text| text.split_whitespace()) {
        let read = item.split_once(':').and_then(|(tag, number)| {
            let threshold = number.parse::<f64>().ok().filter(|n| n.is_finite())?;
            let fits =
                !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            fits.then(|| (tag.to_owned(), threshold))
        });
        let Some((tag, threshold)) = read else {
            return Err(format!(
                "{spelling} item {item:?} is not tag:number, such as time_to_first_token:100"
            ));
        };
        if all.iter().any(|(known, _)| *known == tag) {
            return Err(format!(
                "{spelling} names {tag} twice; give one threshold for each metric"
            ));
        }
        all.push((tag, threshold));
    }
    if all.is_empty() {
        return Err(format!(
            "{spelling} is empty; give tag:number, such as time_to_first_token:100"
        ));
    }
    Ok(all)
}

/// Core numbers above this are surely a mistake.
const CORE_MOST: usize = 65_535;

fn cores(raw: &[String], spelling: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    let wrong =
        |item: &str| format!("{spelling} {item:?} is not a core number or a range such as 2-3");
    for item in raw.iter().flat_map(|text| text.split(',')).map(str::trim) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let core = |text: &str| text.parse::<usize>().ok().filter(|n| *n <= CORE_MOST);
        let (Some(first), Some(last)) = (core(first), core(last)) else {
            return Err(wrong(item));
        };
        if first > last {
            return Err(format!(
                "{spelling} {item:?} runs backwards; write {last}-{first}"
            ));
        }
        for number in first..=last {
            if all.contains(&number) {
                return Err(format!("{spelling} names core {number} twice"));
            }
            all.push(number);
        }
    }
    Ok(all)
}
