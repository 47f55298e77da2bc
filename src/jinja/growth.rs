//! Steps that make more than they are given.
//!
//! In: such a step's name and what it is given. Out: what it takes from the budget. Never: the step itself.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::budget::{spend, spend_deep};

/// Filters and methods whose result may be as large as a product of what they are given.
pub(super) const GROWING: &[&str] = &[
    "batch",
    "center",
    "expandtabs",
    "format",
    "indent",
    "join",
    "ljust",
    "map",
    "replace",
    "rjust",
    "slice",
    "tojson",
    "zfill",
];

/// `text * count` and `list * count`.
pub(super) fn times(one: &Value, other: &Value) -> Result<(), Error> {
    let (thing, count) = match (whole(one), whole(other)) {
        (None, Some(count)) => (one, count),
        (Some(count), None) => (other, count),
        // Two numbers are a number; two things are refused.
        _ => return Ok(()),
    };
    let size = spend_deep(thing)?;
    spend(size.saturating_mul(count))
}

/// One of [`GROWING`] with what it is given, the value it is applied to first.
pub(super) fn applied(name: &str, given: &[Value]) -> Result<(), Error> {
    let mut all = 0_u64;
    for value in given {
        all = all.saturating_add(spend_deep(value)?);
    }
    let Some((first, rest)) = given.split_first() else {
        return Ok(());
    };
    let text = |place: usize| rest.get(place).and_then(Value::as_str).unwrap_or_default();
    let own = first.as_str().unwrap_or_default();
    spend(match name {
        "replace" => {
            (own.matches(text(0)).count() as u64).saturating_mul(size(&rest[1.min(rest.len())..]))
        }
        // As a filter it is given the list first, as a method the separator.
        "join" => {
            let items = given.iter().filter_map(Value::len).max().unwrap_or(0);
            let longest = given
                .iter()
                .filter_map(|value| value.as_str().map(str::len))
                .max();
            (items as u64).saturating_mul(longest.unwrap_or(0).max(64) as u64)
        }
        "format" => {
            let places = own.matches(['%', '{']).count() as u64;
            all.saturating_mul(places).saturating_add(numbers(own))
        }
        "map" if GROWING.contains(&text(0)) => {
            for item in first.try_iter()? {
                let inner: Vec<Value> = std::iter::once(item)
                    .chain(rest[1..].iter().cloned())
                    .collect();
                applied(text(0), &inner)?;
            }
            0
        }
        "map" => 0,
        _ => all.saturating_mul(size(rest)),
    })
}

/// The greatest of what numbers say and how long texts are, also of those that are given by name.
fn size(given: &[Value]) -> u64 {
    let one = |value: &Value| {
        let text = value.as_str().map_or(0, |text| text.len() as u64);
        whole(value).unwrap_or(0).max(text)
    };
    let named = |value: &Value| -> u64 {
        let keys = value.try_iter().into_iter().flatten();
        keys.filter_map(|key| value.get_item(&key).ok())
            .map(|item| one(&item))
            .max()
            .unwrap_or(0)
    };
    let each = given.iter().map(|value| match value.kind() {
        ValueKind::Map => named(value),
        _ => one(value),
    });
    each.max().unwrap_or(0)
}

/// A count; what is below nothing counts as nothing.
fn whole(value: &Value) -> Option<u64> {
    if value.kind() != ValueKind::Number {
        return None;
    }
    let number = i128::try_from(value.clone()).ok()?;
    Some(u64::try_from(number.max(0)).unwrap_or(u64::MAX))
}

/// The sum of all numbers that stand in a text: widths of a format.
fn numbers(text: &str) -> u64 {
    let runs = text.split(|letter: char| !letter.is_ascii_digit());
    let runs = runs.filter(|run| !run.is_empty());
    runs.map(|run| run.parse().unwrap_or(u64::MAX))
        .fold(0, u64::saturating_add)
}
