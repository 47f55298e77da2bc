//! Lengths drawn from a plan's distributions.
//!
//! In: a [`Length`] and a generator. Out: whole numbers of tokens, turns or milliseconds. Never: a negative one.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::config::{Length, LengthPair, RandomStyle};

/// Draws before a distribution that is nearly always negative is given up and 0 taken.
const REDRAWS_MAX: usize = 10_000;

/// Greatest length drawn; far above any context window, so that a typing error cannot ask for all memory at once.
const LENGTH_MAX: f64 = 16_777_216.0;

/// A length: the mean, rounded half to even, when the standard deviation is 0, else the first draw of the normal
/// distribution that is at least 0, rounded up. Never below `least`.
pub(super) fn draw(length: Length, least: u32, generator: &mut ChaCha12Rng) -> u32 {
    let value = if length.stddev <= 0.0 {
        length.mean.round_ties_even()
    } else {
        normal(length, generator).ceil()
    };
    // In range after the clamp; a NaN becomes 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = value.clamp(0.0, LENGTH_MAX) as u32;
    whole.max(least)
}

/// An output limit: as [`draw`], with mean and standard deviation cut to whole numbers first.
pub(super) fn draw_output(length: Length, generator: &mut ChaCha12Rng) -> u32 {
    let whole = Length {
        mean: length.mean.trunc(),
        stddev: length.stddev.trunc(),
    };
    draw(whole, 1, generator)
}

/// A length drawn evenly from the window that `ratio` opens about `mean`; `taken` tokens of it are put there by somebody else. At least 1.
///
/// In the style of vLLM the window is of what is left of the mean, from `floor(m (1 - r))` to `ceil(m (1 + r))`. In that of SGLang it goes
/// from `m r`, cut to a whole number and at least 1, to `m`, and what is taken comes off the length drawn.
pub(super) fn draw_within(
    mean: f64,
    ratio: f64,
    style: RandomStyle,
    taken: f64,
    generator: &mut ChaCha12Rng,
) -> u32 {
    let (low, high, after) = match style {
        RandomStyle::Vllm => {
            let left = mean - taken;
            let (low, high) = (left * (1.0 - ratio), left * (1.0 + ratio));
            (low.floor(), high.ceil(), 0.0)
        }
        RandomStyle::Sglang => ((mean * ratio).trunc().max(1.0), mean.trunc(), taken),
    };
    // In range after the clamp; a NaN becomes 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = |value: f64| value.clamp(0.0, LENGTH_MAX) as u32;
    let (low, high) = (whole(low), whole(high));
    let drawn = generator.random_range(low..=high.max(low));
    drawn.saturating_sub(whole(after)).max(1)
}

/// The pair that a draw from the percentages picks. `pairs` is not empty.
pub(super) fn pick_pair<'a>(
    pairs: &'a [LengthPair],
    generator: &mut ChaCha12Rng,
) -> &'a LengthPair {
    let sum: f64 = pairs.iter().map(|pair| pair.percent).sum();
    let mut left = generator.random::<f64>() * sum;
    for pair in pairs {
        left -= pair.percent;
        if left < 0.0 {
            return pair;
        }
    }
    // Rounding left a rest: it belongs to the last one.
    &pairs[pairs.len() - 1]
}

fn normal(length: Length, generator: &mut ChaCha12Rng) -> f64 {
    for _ in 0..REDRAWS_MAX {
        let unit: f64 = StandardNormal.sample(generator);
        let value = length.mean + length.stddev * unit;
        if value >= 0.0 {
            return value;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::stream;

    #[test]
    fn constants_round_half_to_even_and_respect_the_least() {
        let mut generator = stream(1, "length", 0);
        let cases = [
            (0.5, 1, 1),
            (1.5, 1, 2),
            (2.5, 1, 2),
            (550.0, 1, 550),
            (-3.0, 1, 1),
            (0.2, 0, 0),
            (f64::NAN, 1, 1),
        ];
        for (mean, least, right) in cases {
            assert_eq!(
                draw(Length::constant(mean), least, &mut generator),
                right,
                "{mean}"
            );
        }
    }

    #[test]
    fn normal_lengths_have_the_mean_and_deviation_asked_for() {
        let mut generator = stream(2, "length", 0);
        let length = Length {
            mean: 500.0,
            stddev: 50.0,
        };
        let values: Vec<f64> = (0..20_000)
            .map(|_| f64::from(draw(length, 1, &mut generator)))
            .collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 20_000.0;
        // Rounding up adds half a token; five standard errors of each estimate.
        assert!((mean - 500.5).abs() < 1.8, "{mean}");
        assert!((variance.sqrt() - 50.0).abs() < 1.3, "{}", variance.sqrt());
    }

    #[test]
    fn a_distribution_around_zero_never_goes_below_the_least() {
        let mut generator = stream(3, "length", 0);
        let hopeless = Length {
            mean: -1e12,
            stddev: 1.0,
        };
        assert_eq!(draw(hopeless, 1, &mut generator), 1);
        let wide = Length {
            mean: 1.0,
            stddev: 30.0,
        };
        assert!((0..1_000).all(|_| draw(wide, 1, &mut generator) >= 1));
    }

    #[test]
    fn output_limits_cut_mean_and_deviation() {
        let mut generator = stream(4, "length", 0);
        let length = Length {
            mean: 128.9,
            stddev: 0.9,
        };
        assert_eq!(draw_output(length, &mut generator), 128);
    }

    #[test]
    fn windows_are_even_and_reach_both_ends() {
        let mut generator = stream(6, "length", 0);
        // Mean, ratio, style, taken by others, and the least and greatest length.
        let cases = [
            (100.0, 0.2, RandomStyle::Vllm, 0.0, 80, 120),
            (101.0, 0.25, RandomStyle::Vllm, 1.0, 75, 125),
            (10.0, 0.25, RandomStyle::Vllm, 0.0, 7, 13),
            (7.0, 0.0, RandomStyle::Vllm, 0.0, 7, 7),
            (1.0, 0.9, RandomStyle::Vllm, 0.0, 1, 2),
            (100.0, 0.2, RandomStyle::Sglang, 0.0, 20, 100),
            (100.0, 0.995, RandomStyle::Sglang, 2.0, 97, 98),
            (100.0, 1.0, RandomStyle::Sglang, 0.0, 100, 100),
            (20.0, 0.0, RandomStyle::Sglang, 3.0, 1, 17),
        ];
        for (mean, ratio, style, taken, least, most) in cases {
            let drawn: Vec<u32> = (0..4_000)
                .map(|_| draw_within(mean, ratio, style, taken, &mut generator))
                .collect();
            let shown = format!("{mean} {ratio} {style:?} {taken}");
            assert_eq!(drawn.iter().min(), Some(&least), "{shown}");
            assert_eq!(drawn.iter().max(), Some(&most), "{shown}");
        }
        let drawn = (0..20_000).map(|_| {
            f64::from(draw_within(
                100.0,
                0.2,
                RandomStyle::Vllm,
                0.0,
                &mut generator,
            ))
        });
        // Five standard errors of the mean of an even draw from 41 values.
        let mean = drawn.sum::<f64>() / 20_000.0;
        assert!((mean - 100.0).abs() < 0.42, "{mean}");
    }

    #[test]
    fn pairs_come_in_their_percentages() {
        let pair = |mean, percent| LengthPair {
            input: Length::constant(mean),
            output: Length::constant(1.0),
            percent,
        };
        let pairs = [pair(1.0, 70.0), pair(2.0, 0.0), pair(3.0, 30.0)];
        let mut generator = stream(5, "pairs", 0);
        let mut seen = [0_u32; 4];
        for _ in 0..10_000 {
            let mean = pick_pair(&pairs, &mut generator).input.mean;
            seen[if mean < 1.5 {
                1
            } else if mean < 2.5 {
                2
            } else {
                3
            }] += 1;
        }
        assert_eq!(seen[2], 0);
        assert!((6_770..7_230).contains(&seen[1]), "{seen:?}");
    }
}
