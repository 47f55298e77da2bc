//! Sounds: noise.
//!
//! In: a [`SoundPlan`] and a sound's number. Out: `wav,<base64>` or `mp3,<base64>`. Never: another sound for the same seed and number.

use base64::prelude::{BASE64_STANDARD, Engine};
use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, StandardNormal};

use super::mp3;
use crate::config::{Length, SoundFormat, SoundPlan};
use crate::dataset::DatasetError;
use crate::dataset::seed::{child_seed, numbered};

/// Standard deviation of a sample, full scale being 1; what lies beyond is clipped.
const LOUDNESS: f64 = 0.3;

/// Shortest sound, in seconds.
const SECONDS_MIN: f64 = 0.01;

/// Longest sound, in seconds: a day.
const SECONDS_MOST: f64 = 86_400.0;

/// Makes sounds.
pub(super) struct Sounds<'a> {
    plan: &'a SoundPlan,
    sounds: u64,
}

impl<'a> Sounds<'a> {
    pub(super) fn new(plan: &'a SoundPlan, seed: u64) -> Sounds<'a> {
        Sounds {
            plan,
            sounds: child_seed(seed, "dataset.audio"),
        }
    }

    pub(super) fn per_turn(&self) -> usize {
        self.plan.per_turn
    }

    /// Sound number `index`.
    pub(super) fn make(&self, index: u64) -> Result<String, DatasetError> {
        let plan = self.plan;
        let mut generator = numbered(self.sounds, index);
        let seconds = seconds(plan.seconds, &mut generator);
        let rate = plan.rates_hz[generator.random_range(0..plan.rates_hz.len())];
        let depth = plan.depths[generator.random_range(0..plan.depths.len())];
        // At least a tenth of a thousandth of a day's samples, at most a day's: both fit.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let frames = (seconds * f64::from(rate)) as usize;
        let samples = frames * usize::from(plan.channels);
        if plan.format == SoundFormat::Mp3 {
            let sound = (0..samples)
                .map(|_| noise(&mut generator))
                .collect::<Vec<f64>>();
            let file = mp3::encoded(&sound, plan.channels, rate)?;
            return Ok(text("mp3,", &file));
        }
        let mut file = header(rate, depth, plan.channels, samples);
        for _ in 0..samples {
            write_sample(noise(&mut generator), depth, &mut file);
        }
        Ok(text("wav,", &file))
    }
}

fn text(prefix: &str, file: &[u8]) -> String {
    let mut text = String::from(prefix);
    BASE64_STANDARD.encode_string(file, &mut text);
    text
}

fn seconds(length: Length, generator: &mut ChaCha12Rng) -> f64 {
    let unit: f64 = StandardNormal.sample(generator);
    (length.mean + length.stddev * unit).clamp(SECONDS_MIN, SECONDS_MOST)
}

fn noise(generator: &mut ChaCha12Rng) -> f64 {
    let unit: f64 = StandardNormal.sample(generator);
    (unit * LOUDNESS).clamp(-1.0, 1.0)
}

/// The head of a RIFF file of PCM samples: a `fmt ` chunk of 16 bytes and the head of the `data` chunk.
fn header(rate: u32, depth: u8, channels: u8, samples: usize) -> Vec<u8> {
    let frame = u16::from(depth / 8) * u16::from(channels);
    // The lengths of a RIFF file have 32 bits; a longer one gets the greatest, as other writers do.
    let data = u32::try_from(samples * usize::from(depth / 8)).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(44 + data as usize);
    file.extend(b"RIFF");
    file.extend(data.saturating_add(36).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend(1_u16.to_le_bytes());
    file.extend(u16::from(channels).to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(frame)).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(u16::from(depth).to_le_bytes());
    file.extend(b"data");
    file.extend(data.to_le_bytes());
    file
}

/// Samples of 8 bits are unsigned, all others signed.
fn write_sample(value: f64, depth: u8, file: &mut Vec<u8>) {
    let scaled = value * (2_f64.powi(i32::from(depth) - 1) - 1.0);
    // Within the depth, since the value is within -1 to 1.
    #[allow(clippy::cast_possible_truncation)]
    let whole = scaled.round() as i32;
    if depth == 8 {
        file.extend(&(whole + 128).to_le_bytes()[..1]);
    } else {
        file.extend(&whole.to_le_bytes()[..usize::from(depth / 8)]);
    }
}
