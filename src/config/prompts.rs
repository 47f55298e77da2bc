//! Flags about prompts that go beyond their lengths.
//!
//! In: settings. Out: a [`PromptPlan`]. Never: makes a prompt.

use serde_json::Value;

use super::cache_bust::{CacheBust, cache_bust};
use super::dialect::EndpointKind;
use super::error::Problems;
use super::lex::Settings;
use super::media::{MediaPlan, media};

/// What is done to prompts beside their lengths. The default does nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptPlan {
    /// Windows from which lengths are drawn evenly, in place of means with deviations.
    pub ranges: Option<RangePlan>,
    /// Whose window, and whose random tokens.
    pub style: RandomStyle,
    /// Prompts go out as token ids.
    pub token_ids: bool,
    /// Pictures and sounds that go with them.
    pub media: MediaPlan,
    /// A marker that keeps servers from answering out of a prefix cache.
    pub cache_bust: Option<CacheBust>,
}

/// `--random-range-ratio`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangePlan {
    /// Of prompts: at least 0, and at most 1 ([`RandomStyle::Sglang`]) or below 1 ([`RandomStyle::Vllm`]).
    pub input: f64,
    /// Of output limits, within the same bounds.
    pub output: f64,
}

/// `--random-corpus-style`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomStyle {
    /// Windows of mean x (1 - r) to mean x (1 + r); random tokens that are not special.
    #[default]
    Vllm,
    /// Windows of mean x r to the mean; any random tokens.
    Sglang,
}

/// Reads and checks.
pub(super) fn prompts(
    settings: &Settings,
    kind: EndpointKind,
    problems: &mut Problems,
) -> PromptPlan {
    let (style, ratio) = ("--random-corpus-style", "--random-range-ratio");
    let random = settings.choice("--prompt-corpus") == Some("random");
    if settings.given(style) && !settings.given(ratio) && !random {
        problems.push(format!(
            "{style} says how --prompt-corpus random and {ratio} draw; give one of them with it"
        ));
    }
    let style = match settings.choice(style) {
        Some("sglang") => RandomStyle::Sglang,
        _ => RandomStyle::Vllm,
    };
    let token_ids = settings.switched("--tokenize-prompt");
    if token_ids && kind != EndpointKind::Completions {
        problems.push(
            "--tokenize-prompt needs --endpoint-type completions: the prompt is the one field that takes token ids",
        );
    }
    PromptPlan {
        ranges: ranges(settings, style, problems),
        style,
        token_ids,
        media: media(settings, kind, problems),
        cache_bust: cache_bust(settings, kind, problems),
    }
}

fn ranges(settings: &Settings, style: RandomStyle, problems: &mut Problems) -> Option<RangePlan> {
    let flag = "--random-range-ratio";
    let text = settings.text(flag)?;
    for (mean, short) in [
        ("--prompt-input-tokens-mean", "--isl"),
        ("--prompt-output-tokens-mean", "--osl"),
    ] {
        if !settings.given(mean) {
            problems.push(format!(
                "{flag} needs {short}, which says about which length the window lies"
            ));
        }
    }
    for other in [
        "--seq-dist",
        "--prompt-input-tokens-stddev",
        "--prompt-output-tokens-stddev",
    ] {
        if settings.given(other) {
            let other = settings.spelling(other);
            problems.push(format!(
                "{flag} and {other} exclude each other; give one of them"
            ));
        }
    }
    match ratios(text, style) {
        Ok(plan) => Some(plan),
        Err(sentence) => {
            problems.push(format!("{flag} {text:?} {sentence}"));
            None
        }
    }
}

/// A number, or an object with one for each side.
fn ratios(text: &str, style: RandomStyle) -> Result<RangePlan, String> {
    let bounds = match style {
        RandomStyle::Vllm => "a number from 0 to below 1",
        RandomStyle::Sglang => "a number from 0 to 1",
    };
    let fits = |ratio: &f64| match style {
        RandomStyle::Vllm => (0.0..1.0).contains(ratio),
        RandomStyle::Sglang => (0.0..=1.0).contains(ratio),
    };
    if !text.trim_start().starts_with('{') {
        let ratio = text.trim().parse::<f64>().ok().filter(fits);
        let both = ratio.map(|ratio| RangePlan {
            input: ratio,
            output: ratio,
        });
        return both.ok_or_else(|| format!("is not {bounds}"));
    }
    if style == RandomStyle::Sglang {
        return Err(
            "is an object, which the style vllm has alone; give one number for both lengths"
                .to_owned(),
        );
    }
    let wanted = format!("is not an object {{\"input\":A,\"output\":B}} with {bounds} for each");
    let Ok(Value::Object(object)) = serde_json::from_str(text) else {
        return Err(wanted);
    };
    let side = |name: &str| object.get(name).and_then(Value::as_f64).filter(fits);
    match (side("input"), side("output"), object.len()) {
        (Some(input), Some(output), 2) => Ok(RangePlan { input, output }),
        _ => Err(wanted),
    }
}
