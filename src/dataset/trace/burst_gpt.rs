//! The `burst_gpt_trace` format: CSV, each row one request of the BurstGPT traces.
//!
//! In: rows with `Timestamp` (seconds), `Request tokens` and `Response tokens`. Out: sessions of one turn. Never: another column.

use serde_json::{Map, Value};

use super::{Asked, INPUT_TOKENS_MOST, Trace};
use crate::dataset::Turn;
use crate::dataset::lines::{Entry, shown};

/// Columns that are read, wherever they stand.
const COLUMNS: &str = "Timestamp, Request tokens and Response tokens";

impl Trace<'_> {
    /// The turn that the row says, and the prompt to be made for it.
    pub(super) fn burst_gpt(
        &mut self,
        fields: &Map<String, Value>,
        line: u64,
    ) -> Result<Entry, String> {
        let seconds: f64 = cell(
            fields,
            "Timestamp",
            "a number of seconds from 0 up",
            |s: &f64| *s >= 0.0 && s.is_finite(),
        )?;
        let whole = format!("a whole number from 1 to {INPUT_TOKENS_MOST}");
        let fits = |tokens: &u32| (1..=INPUT_TOKENS_MOST).contains(&u64::from(*tokens));
        let tokens = cell(fields, "Request tokens", &whole, fits)?;
        let output = cell(fields, "Response tokens", &whole, fits)?;
        self.asked.push(Asked {
            record: self.records,
            line,
            tokens,
            ids: Vec::new(),
        });
        Ok(Entry {
            turns: vec![Turn {
                role: "user".to_owned(),
                max_tokens: Some(output),
                timestamp_ms: Some(seconds * 1e3),
                ..Turn::default()
            }],
            ..Entry::default()
        })
    }
}

/// The number in the column `name`, which must be `right`.
fn cell<T: std::str::FromStr>(
    fields: &Map<String, Value>,
    name: &str,
    right: &str,
    fits: impl Fn(&T) -> bool,
) -> Result<T, String> {
    let Some(value) = fields.get(name) else {
        return Err(format!(
            "column {name}: missing or empty; the first row names the columns {COLUMNS}"
        ));
    };
    let number = value.as_str().and_then(|text| text.trim().parse().ok());
    number
        .filter(fits)
        .ok_or_else(|| format!("column {name}: {} is not {right}", shown(value)))
}
