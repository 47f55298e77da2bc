//! How long a sound lasts.
//!
//! In: a sound as it is sent. Out: nanoseconds. Never: a fetch, or a decoded sample.

use base64::prelude::{BASE64_STANDARD, Engine};

/// Bit rates of MPEG-1 and of MPEG-2 and 2.5 at layer III, in kbit/s, by the index in a frame's head; 0 for those that say nothing.
const KILOBITS: [[u64; 16]; 2] = [
    [
        0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0,
    ],
    [
        0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0,
    ],
];

/// Sample rates of MPEG-1; those of MPEG-2 are half, those of 2.5 a quarter.
const RATES_HZ: [u64; 3] = [44_100, 48_000, 32_000];

/// A sound of `wav,<base64>`, `mp3,<base64>` or a data URL; 0 for anything else, and where the length cannot be told. An MP3 file is as long as
/// its frames, up to two of which are the encoder's own delay.
pub(in crate::dataset) fn length_ns(content: &str) -> u64 {
    let data = match content.split_once(',') {
        Some(("wav" | "mp3", data)) => data,
        Some((head, data)) if head.starts_with("data:") && head.ends_with(";base64") => data,
        _ => return 0,
    };
    let Ok(file) = BASE64_STANDARD.decode(data) else {
        return 0;
    };
    let (units, per_second) = if file.starts_with(b"RIFF") {
        wave(&file)
    } else {
        frames(&file)
    }
    .unwrap_or((0, 1));
    let nanos = u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
    u64::try_from(nanos).unwrap_or(0)
}

/// Bytes of samples of a RIFF file, and how many make a second. A length that reaches over the file's end is cut to it.
fn wave(file: &[u8]) -> Option<(u64, u64)> {
    let mut rest = file.get(12..)?;
    let mut per_second = None;
    loop {
        let (head, body) = rest.split_at_checked(8)?;
        let size = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
        match &head[..4] {
            b"fmt " => per_second = Some(u32::from_le_bytes(body.get(8..12)?.try_into().ok()?)),
            b"data" => return Some((size.min(body.len()) as u64, u64::from(per_second?))),
            _ => {}
        }
        // Chunks begin at even places.
        rest = body.get(size.checked_add(size % 2)?..)?;
    }
}

/// Samples of each channel in the frames of an MPEG file, and how many make a second.
fn frames(file: &[u8]) -> Option<(u64, u64)> {
    let mut rest = file.get(tag_bytes(file)..)?;
    let mut samples = 0;
    let mut first_rate = None;
    while let Some(frame) = Frame::read(rest) {
        let end = frame.bytes.min(rest.len());
        // A frame that only tells about the others has no sound.
        let head = &rest[..end.min(64)];
        let tells = |name: &[u8]| head.windows(4).any(|window| window == name);
        if first_rate.is_some() || !(tells(b"Xing") || tells(b"Info")) {
            samples += frame.samples;
        }
        first_rate.get_or_insert(frame.rate_hz);
        rest = &rest[end..];
    }
    Some((samples, first_rate?))
}

/// Length of an ID3 tag in front: 10 bytes and as many as it says, seven bits a byte.
fn tag_bytes(file: &[u8]) -> usize {
    match file {
        [b'I', b'D', b'3', _, _, _, sizes @ ..] if sizes.len() >= 4 => {
            let size = sizes[..4].iter();
            10 + size.fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f))
        }
        _ => 0,
    }
}

struct Frame {
    bytes: usize,
    samples: u64,
    rate_hz: u64,
}

impl Frame {
    /// By the four bytes of its head: 11 bits of ones, 2 of the version, 2 of the layer.
    fn read(bytes: &[u8]) -> Option<Frame> {
        let &[0xff, kind, rates, ..] = bytes else {
            return None;
        };
        if kind & 0xe6 != 0xe2 {
            return None;
        }
        let (older, divisor) = match kind >> 3 & 3 {
            3 => (0, 1),
            2 => (1, 2),
            0 => (1, 4),
            _ => return None,
        };
        let rate_hz = RATES_HZ.get(usize::from(rates >> 2 & 3))? / divisor;
        let kilobits = KILOBITS[older][usize::from(rates >> 4)];
        let samples = if older == 0 { 1152 } else { 576 };
        let padding = u64::from(rates >> 1 & 1);
        let length = samples / 8 * kilobits * 1_000 / rate_hz + padding;
        Some(Frame {
            bytes: usize::try_from(length).ok().filter(|_| kilobits > 0)?,
            samples,
            rate_hz,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Length, SoundFormat, SoundPlan};
    use crate::dataset::media::sound::Sounds;
    use proptest::prelude::*;

    fn plan(seconds: f64, rate: u32, channels: u8, format: SoundFormat) -> SoundPlan {
        SoundPlan {
            seconds: Length::constant(seconds),
            per_turn: 1,
            depths: vec![16],
            rates_hz: vec![rate],
            channels,
            format,
        }
    }

    #[test]
    fn a_made_up_sound_is_as_long_as_asked() {
        for rate in [8_000, 11_025, 16_000, 24_000, 32_000, 44_100, 48_000] {
            for (channels, format) in [
                (1, SoundFormat::Wav),
                (2, SoundFormat::Wav),
                (1, SoundFormat::Mp3),
                (2, SoundFormat::Mp3),
            ] {
                let plan = plan(0.5, rate, channels, format);
                let content = Sounds::new(&plan, 7).make(0).unwrap();
                assert_eq!(content, Sounds::new(&plan, 7).make(0).unwrap());
                let seconds = length_ns(&content) as f64 / 1e9;
                // An MP3 file is padded to whole frames, and delayed by up to two of them and half of one more.
                let most = if format == SoundFormat::Mp3 {
                    3.5 * 1152.0 / f64::from(rate.max(16_000))
                } else {
                    1e-6
                };
                assert!(
                    (0.5 - 1e-3..=0.5 + most).contains(&seconds),
                    "{rate} {channels} {format:?}: {seconds}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_told_is_nothing() {
        let cases = [
            "http://h/a.wav",
            "wav,",
            "wav,!",
            "mp3,QUJD",
            "wav,UklGRg==",
            "data:audio/wav;base64,QUJD",
            "data:audio/wav,QUJD",
        ];
        for content in cases {
            assert_eq!(length_ns(content), 0, "{content}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_some_length(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..3) {
            let head: &[u8] = [&b"RIFFxxxxWAVE"[..], b"ID3xxx", b"\xff\xfb\x90"][kind];
            bytes.splice(0..0, head.iter().copied());
            length_ns(&format!("wav,{}", BASE64_STANDARD.encode(bytes)));
        }
    }
}
