//! Token counts beside each other, and finish reasons.
//!
//! In: a summary's counts. Out: lines for the console, objects for the JSON. Never: a letter of the server's that a terminal would obey.

use serde_json::{Map, Value, json};

use crate::metric::{Compared, Counts};
use crate::report::{escape_controls, number};

/// Lines for the console; none where nothing was counted.
pub(super) fn lines(counts: &Counts) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    for (what, compared) in [("prompt", counts.prompt), ("completion", counts.completion)] {
        if let Some(percent) = compared.difference_percent() {
            line(format!(
                "Tokens: {what} {} counted here, {} by the server ({percent:+.1} %), in {} requests, {} of them off by over 2 %",
                number::grouped(compared.client),
                number::grouped(compared.server),
                number::grouped(compared.requests),
                number::grouped(compared.over),
            ));
        }
    }
    if let Some((asked, produced)) = counts.length.means() {
        line(format!(
            "Tokens: output {} asked for and {} produced on average, {} of {} requests off by over 5 % or 50",
            number::thousands(Some(asked)),
            number::thousands(Some(produced)),
            number::grouped(counts.length.missed),
            number::grouped(counts.length.requests),
        ));
    }
    // A reply that told no reason is worth a word only beside others.
    let told = counts.finish_reasons.keys().any(|reason| reason != "none");
    if told {
        let mut reasons: Vec<(&String, &u64)> = counts.finish_reasons.iter().collect();
        reasons.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| {
                format!("{} {}", escape_controls(reason), number::grouped(**count))
            })
            .collect();
        line(format!("Finish Reasons: {}", reasons.join(", ")));
    }
    out
}

/// `token_counts`; null where nothing was counted.
pub(super) fn json(counts: &Counts) -> Value {
    let length = counts.length.means().map(|(asked, produced)| {
        json!({
            "requests": counts.length.requests,
            "asked_mean": number::json(asked),
            "produced_mean": number::json(produced),
            "mismatches": counts.length.missed,
        })
    });
    let template = &counts.template;
    let template = (template.requests + template.refused > 0).then(|| {
        json!({
            "requests": template.requests,
            "tokens": template.tokens,
            "refused": template.refused,
        })
    });
    let parts = [
        ("prompt", compared(counts.prompt, counts.asked_input)),
        ("completion", compared(counts.completion, None)),
        ("output_length", length),
        ("chat_template", template),
    ];
    let parts = parts.into_iter();
    let parts: Map<String, Value> = parts
        .filter_map(|(name, part)| Some((name.to_owned(), part?)))
        .collect();
    if parts.is_empty() {
        return Value::Null;
    }
    Value::Object(parts)
}

/// `finish_reasons`; null without a valid request.
pub(super) fn finish_reasons(counts: &Counts) -> Value {
    if counts.finish_reasons.is_empty() {
        return Value::Null;
    }
    json!(counts.finish_reasons)
}

fn compared(compared: Compared, asked: Option<f64>) -> Option<Value> {
    (compared.requests > 0).then(|| {
        json!({
            "asked_mean": asked.and_then(number::json),
            "requests": compared.requests,
            "client": compared.client,
            "server": compared.server,
            "difference_pct": compared.difference_percent().and_then(number::json),
            "requests_over_2_pct": compared.over,
        })
    })
}
