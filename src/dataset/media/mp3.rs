//! Sounds as MPEG layer III.
//!
//! In: samples. Out: a file of a constant bit rate, with the tag that tells players its length. Never: a rate that the format has not, which
//! the configuration has refused.

use rusty_mp3::{Mp3Encoder, Mp3EncoderConfig};

use crate::dataset::DatasetError;

/// Samples from -1 to 1, one of each channel after the other, at `rate` a second and channel.
pub(super) fn encoded(samples: &[f64], channels: u8, rate: u32) -> Result<Vec<u8>, DatasetError> {
    // A sample's 24 bits are more than the format keeps.
    #[allow(clippy::cast_possible_truncation)]
    let samples: Vec<f32> = samples.iter().map(|&sample| sample as f32).collect();
    let mut encoder = Mp3Encoder::new(Mp3EncoderConfig::default());
    encoder
        .push_pcm_f32(&samples, u16::from(channels), rate)
        .map_err(|error| {
            DatasetError::Media(format!(
                "--audio-format mp3: {rate} Hz with {channels} channels cannot be encoded ({error:?}); use wav"
            ))
        })?;
    encoder.finish();
    let mut file = Vec::new();
    while let Ok(packet) = encoder.next_packet() {
        file.extend(packet);
    }
    Ok(file)
}
