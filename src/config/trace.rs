//! What is done to a trace before it is replayed.
//!
//! In: the flags of traces. Out: a [`TracePlan`]. Never: reads a trace.

use super::error::Problems;
use super::lex::Settings;
use super::plan::DatasetSource;

/// How a trace is reshaped. The default leaves it as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracePlan {
    /// Lines with more prompt tokens are left out; what grows beyond is cut.
    pub input_tokens_most: Option<u32>,
    /// Longer outputs of the file are cut to this.
    pub output_tokens_most: Option<u32>,
    /// Times after the schedule's zero are divided by this; above 0.
    pub speedup: f64,
    /// Stretches or shrinks the leading blocks that lines share.
    pub prefix_length: f64,
    /// Independent copies of the shared blocks over which lines are spread; at least 1.
    pub prefix_roots: u32,
    /// Scales what is behind the shared blocks.
    pub prompt_length: f64,
    /// Scales the outputs of the file.
    pub output_length: f64,
    /// Neither times nor delays are followed.
    pub ignore_delays: bool,
    /// Longest delay before a later turn, in milliseconds.
    pub delay_ms_most: Option<f64>,
}

impl Default for TracePlan {
    fn default() -> TracePlan {
        TracePlan {
            input_tokens_most: None,
            output_tokens_most: None,
            speedup: 1.0,
            prefix_length: 1.0,
            prefix_roots: 1,
            prompt_length: 1.0,
            output_length: 1.0,
            ignore_delays: false,
            delay_ms_most: None,
        }
    }
}

impl TracePlan {
    /// Prompts have other lengths or other shared beginnings than the file says.
    #[must_use]
    pub fn reshapes_prompts(&self) -> bool {
        self.prefix_length != 1.0 || self.prompt_length != 1.0 || self.prefix_roots > 1
    }
}

impl DatasetSource {
    /// It is a recorded load.
    #[must_use]
    pub fn is_trace(&self) -> bool {
        matches!(
            self,
            DatasetSource::MooncakeTrace { .. }
                | DatasetSource::BailianTrace { .. }
                | DatasetSource::BurstGptTrace { .. }
        )
    }
}

const SPEEDUP: &str = "--synthesis-speedup-ratio";
const INPUT_MOST: &str = "--synthesis-max-isl";
const OUTPUT_MOST: &str = "--synthesis-max-osl";
const PREFIX: &str = "--synthesis-prefix-len-multiplier";
const ROOTS: &str = "--synthesis-prefix-root-multiplier";
const PROMPT: &str = "--synthesis-prompt-len-multiplier";
const OUTPUT: &str = "--synthesis-output-len-multiplier";
const IGNORE: &str = "--ignore-trace-delays";
const DELAY_MOST: &str = "--inter-turn-delay-cap-seconds";

/// What the flags ask for, and whether `source` has it.
pub(super) fn trace(
    settings: &Settings,
    source: &DatasetSource,
    problems: &mut Problems,
) -> TracePlan {
    for flag in [
        SPEEDUP,
        INPUT_MOST,
        OUTPUT_MOST,
        PREFIX,
        ROOTS,
        PROMPT,
        OUTPUT,
        IGNORE,
    ] {
        if settings.given(flag) && !source.is_trace() {
            problems.push(format!(
                "{flag} needs --input-file with a trace: mooncake_trace, bailian_trace or burst_gpt_trace"
            ));
        }
    }
    if settings.given(DELAY_MOST) && matches!(source, DatasetSource::Synthetic(_)) {
        problems.push(format!(
            "{DELAY_MOST} needs --input-file, whose delays it limits; made-up ones follow --conversation-turn-delay-mean"
        ));
    }
    for flag in [PREFIX, ROOTS] {
        if settings.given(flag) && matches!(source, DatasetSource::BurstGptTrace { .. }) {
            problems.push(format!(
                "{flag} needs hash ids, which a burst_gpt_trace does not have; use a mooncake_trace or bailian_trace"
            ));
        }
    }
    let short = |flag| {
        let value = settings.integer(flag)?;
        Some(u32::try_from(value).unwrap_or(u32::MAX))
    };
    let factor = |flag| settings.number(flag).unwrap_or(1.0);
    let speedup = factor(SPEEDUP);
    TracePlan {
        input_tokens_most: short(INPUT_MOST),
        output_tokens_most: short(OUTPUT_MOST),
        // AIPerf takes 0 and leaves the times as they are.
        speedup: if speedup > 0.0 { speedup } else { 1.0 },
        prefix_length: factor(PREFIX),
        prefix_roots: short(ROOTS).unwrap_or(1),
        prompt_length: factor(PROMPT),
        output_length: factor(OUTPUT),
        ignore_delays: settings.given(IGNORE),
        delay_ms_most: settings.number(DELAY_MOST).map(|seconds| seconds * 1e3),
    }
}
