//! Numbers as text.
//!
//! In: reals. Out: `%.2f`, `%,.2f`, JSON numbers. Never: NaN or an infinity.

use serde_json::{Number, Value};

use crate::metric::Stats;

/// `%.2f`; empty when missing or not finite.
pub(super) fn two_decimals(value: Option<f64>) -> String {
    value
        .filter(|v| v.is_finite())
        .map(|v| format!("{v:.2}"))
        .unwrap_or_default()
}

/// `%,.2f`; `N/A` when missing or not finite.
pub(super) fn thousands(value: Option<f64>) -> String {
    let Some(value) = value.filter(|v| v.is_finite()) else {
        return "N/A".to_owned();
    };
    let text = format!("{:.2}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "00"));
    let mut out = String::new();
    if value.is_sign_negative() {
        out.push('-');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out.push('.');
    out.push_str(fraction);
    out
}

/// A count with a comma between thousands.
pub(super) fn grouped(count: u64) -> String {
    let text = thousands(Some(count as f64));
    text.trim_end_matches(".00").to_owned()
}

/// Full precision; `None` when not finite. An integral real keeps its `.0`.
pub(super) fn json(value: f64) -> Option<Value> {
    Number::from_f64(value).map(Value::Number)
}

/// The percentiles in rising order.
pub(super) fn percentiles(stats: &Stats) -> [(&'static str, Option<f64>); 9] {
    [
        ("p1", stats.p1),
        ("p5", stats.p5),
        ("p10", stats.p10),
        ("p25", stats.p25),
        ("p50", stats.p50),
        ("p75", stats.p75),
        ("p90", stats.p90),
        ("p95", stats.p95),
        ("p99", stats.p99),
    ]
}
