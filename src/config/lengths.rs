//! `--seq-dist` becomes pairs of lengths.
//!
//! In: its text, in any of three notations. Out: [`LengthPair`]s that sum to 100 percent. Never: draws one.

use serde::Deserialize;

use super::plan::{Length, LengthPair};

/// How far the percentages may sum from 100.
const PERCENT_TOLERANCE: f64 = 1e-6;
/// The longest prompt or output that can be asked for, in tokens.
const TOKENS_MOST: f64 = 16_777_216.0;

/// Reads `256|10,128|5:60;...`, the same as `[(256|10,128|5):60,...]`, or `{"pairs":[{"isl":256,"osl":128,"prob":60}]}`.
pub(super) fn pairs(text: &str) -> Result<Vec<LengthPair>, String> {
    let text = text.trim();
    let pairs = if text.starts_with('{') {
        from_json(text)?
    } else if let Some(inner) = text.strip_prefix('[') {
        let spaceless: String = inner.chars().filter(|c| !c.is_whitespace()).collect();
        let inner = spaceless.strip_suffix(']').ok_or_else(|| {
            format!("{text:?} has no closing bracket; write [(256,128):60,(512,256):40]")
        })?;
        let inner = inner.trim().trim_start_matches('(');
        inner
            .split(",(")
            .map(|item| match item.split_once("):") {
                Some((lengths, percent)) => from_item(&format!("{lengths}:{percent}")),
                None => Err(format!(
                    "{text:?} has an item without parentheses; write [(256,128):60,(512,256):40]"
                )),
            })
            .collect::<Result<Vec<_>, _>>()?
    } else {
        let items = text
            .split(';')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        items.map(from_item).collect::<Result<Vec<_>, _>>()?
    };
    let sum: f64 = pairs.iter().map(|pair| pair.percent).sum();
    if (sum - 100.0).abs() > PERCENT_TOLERANCE {
        return Err(format!(
            "{text:?} has percentages that sum to {sum}; they must sum to 100"
        ));
    }
    Ok(pairs)
}

/// `256|10,128|5:60`.
fn from_item(item: &str) -> Result<LengthPair, String> {
    let wrong = || format!("item {item:?} is not ISL,OSL:PERCENT, such as 256|10,128|5:60");
    let (lengths, percent) = item.rsplit_once(':').ok_or_else(wrong)?;
    let (input, output) = lengths.split_once(',').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
    let length = |text: &str| -> Result<Length, String> {
        let (mean, stddev) = text.split_once('|').unwrap_or((text, "0"));
        Ok(Length {
            mean: number(mean)?,
            stddev: number(stddev)?,
        })
    };
    checked(length(input)?, length(output)?, number(percent)?, item)
}

#[derive(Deserialize)]
struct Written {
    pairs: Vec<WrittenPair>,
}

#[derive(Deserialize)]
struct WrittenPair {
    isl: f64,
    osl: f64,
    prob: f64,
    #[serde(default)]
    isl_stddev: f64,
    #[serde(default)]
    osl_stddev: f64,
}

fn from_json(text: &str) -> Result<Vec<LengthPair>, String> {
    let written: Written = serde_json::from_str(text)
        .map_err(|e| format!("is no {{\"pairs\":[{{\"isl\",\"osl\",\"prob\"}}]}} object: {e}"))?;
    let pair = |pair: &WrittenPair| {
        let input = Length {
            mean: pair.isl,
            stddev: pair.isl_stddev,
        };
        let output = Length {
            mean: pair.osl,
            stddev: pair.osl_stddev,
        };
        checked(
            input,
            output,
            pair.prob,
            &format!("{},{}:{}", pair.isl, pair.osl, pair.prob),
        )
    };
    written.pairs.iter().map(pair).collect()
}

fn checked(input: Length, output: Length, percent: f64, item: &str) -> Result<LengthPair, String> {
    for length in [input, output] {
        if !(1.0..=TOKENS_MOST).contains(&length.mean)
            || !(0.0..=TOKENS_MOST).contains(&length.stddev)
        {
            return Err(format!(
                "item {item:?} has a length outside 1 to {TOKENS_MOST} tokens, or a standard deviation below 0"
            ));
        }
    }
    if !(0.0..=100.0).contains(&percent) {
        return Err(format!("item {item:?} has a percentage outside 0 to 100"));
    }
    Ok(LengthPair {
        input,
        output,
        percent,
    })
}
